#include "sim/queue/calendar.hpp"

#include <limits>
#include <utility>

#include "sim/base/asking.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

// The first of all but the one taken out: the winner of those that it met on its way up.
EventCalendar::Key EventCalendar::first() const {
  if (capacity_ == 0) return {};
  if (taken_ == kNone) return tree_[1];
  Key out;
  for (std::size_t at = capacity_ + taken_; at > 1; at >>= 1) out = earlier(out, tree_[at ^ 1]);
  return out;
}

Seconds EventCalendar::next_time() const {
  return Seconds(set_ > 0 ? std::bit_cast<double>(first().time) : std::numeric_limits<double>::infinity());
}

void EventCalendar::grow() {
  const std::size_t wider = capacity_ == 0 ? 16 : 2 * capacity_;
  // Of a million timers the tree is 32 MiB, whose pages alone may take a tenth of a second.
  std::vector<Key> tree;
  resize_asking(tree, 2 * wider);
  CancelCheck check;
  for (std::size_t i = 0; i < capacity_; ++i) {
    check();
    tree[wider + i] = tree_[capacity_ + i];
  }
  for (std::size_t i = wider; i-- > 1;) {
    check();
    tree[i] = earlier(tree[2 * i], tree[2 * i + 1]);
  }
  tree_ = std::move(tree);
  capacity_ = wider;
}

Timer EventCalendar::add(std::uint64_t tag) {
  if (!free_.empty()) {
    const Timer timer = free_.back();
    free_.pop_back();
    tags_[timer] = tag;
    used_[timer] = 1;
    return timer;
  }
  const Timer timer = tags_.size();
  SL_CHECK(tags_.size() < kNone, "a calendar has at most 2^24 timers");
  if (timer == capacity_) grow();
  tags_.push_back(tag);
  used_.push_back(1);
  return timer;
}

void EventCalendar::remove(Timer timer) {
  stop(timer);
  used_[timer] = 0;
  free_.push_back(timer);
}

void EventCalendar::stop(Timer timer) {
  SL_CHECK(timer < used_.size() && used_[timer] != 0, "a timer that is stopped was added");
  clear_taken();
  if (leaf(timer).rank == kNever) return;
  --set_;
  settle(timer, Key{});
}

bool EventCalendar::is_set(Timer timer) const {
  return timer < used_.size() && timer != taken_ && leaf(timer).rank != kNever;
}

Seconds EventCalendar::time(Timer timer) const {
  return Seconds(is_set(timer) ? std::bit_cast<double>(leaf(timer).time)
                               : std::numeric_limits<double>::infinity());
}

}  // namespace shardline
