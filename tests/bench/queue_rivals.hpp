// Other ways to keep events in order, to be held against EventCalendar: same interface, same order of ties.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace shardline {

/// A heap of `Arity` children that knows where each timer stands, so that one can be moved or taken out.
template <std::size_t Arity>
class IndexedHeap {
 public:
  std::uint32_t add() {
    place_.push_back(kNowhere);
    return static_cast<std::uint32_t>(place_.size() - 1);
  }
  void set(std::uint32_t timer, double time) {
    const Entry entry{time, (settings_++ << 24) | timer};
    std::size_t hole = place_[timer];
    if (hole == kNowhere) {
      hole = heap_.size();
      heap_.push_back(entry);
    } else if (before(heap_[hole], entry)) {
      sink(hole, entry);
      return;
    }
    rise(hole, entry);
  }
  void stop(std::uint32_t timer) {
    const std::size_t hole = place_[timer];
    if (hole == kNowhere) return;
    place_[timer] = kNowhere;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (hole == heap_.size()) return;
    if (hole > 0 && before(last, heap_[(hole - 1) / Arity])) {
      rise(hole, last);
    } else {
      sink(hole, last);
    }
  }
  std::pair<double, std::uint32_t> pop() {
    const Entry first = heap_.front();
    stop(timer_of(first));
    return {first.time, timer_of(first)};
  }

 private:
  struct Entry {
    double time;
    std::uint64_t rank;
  };
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  static std::uint32_t timer_of(const Entry& e) { return static_cast<std::uint32_t>(e.rank & 0xFFFFFF); }
  static bool before(const Entry& a, const Entry& b) {
    return a.time < b.time || (a.time == b.time && a.rank < b.rank);
  }
  void put(std::size_t at, const Entry& entry) {
    heap_[at] = entry;
    place_[timer_of(entry)] = at;
  }
  void rise(std::size_t hole, const Entry& entry) {
    while (hole > 0 && before(entry, heap_[(hole - 1) / Arity])) {
      put(hole, heap_[(hole - 1) / Arity]);
      hole = (hole - 1) / Arity;
    }
    put(hole, entry);
  }
  void sink(std::size_t hole, const Entry& entry) {
    for (std::size_t child = Arity * hole + 1; child < heap_.size(); child = Arity * hole + 1) {
      const std::size_t end = std::min(child + Arity, heap_.size());
      std::size_t least = child;
      for (std::size_t i = child + 1; i < end; ++i) least = before(heap_[i], heap_[least]) ? i : least;
      if (!before(heap_[least], entry)) break;
      put(hole, heap_[least]);
      hole = least;
    }
    put(hole, entry);
  }

  std::vector<Entry> heap_;
  std::vector<std::size_t> place_;  // by timer
  std::uint64_t settings_ = 0;
};

/// Brown's calendar queue (CACM 31 (10), 1988): days of one width, each a sorted list of the timers due on
/// it in any year. Days double and halve with the number set; their width is the mean gap of the first
/// events.
class CalendarQueue {
 public:
  CalendarQueue() { rebuild(16, 1.0); }
  std::uint32_t add() {
    nodes_.push_back({0, 0, kNone, kNone, false});
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  void set(std::uint32_t timer, double time) {
    stop(timer);
    nodes_[timer].time = time;
    nodes_[timer].rank = settings_++;
    link(timer);
    if (++size_ > 2 * days_.size()) resize(2 * days_.size());
  }
  void stop(std::uint32_t timer) {
    if (!nodes_[timer].set) return;
    unlink(timer);
    if (--size_ < days_.size() / 2 && days_.size() > 16) resize(days_.size() / 2);
  }
  std::pair<double, std::uint32_t> pop() {
    const std::uint32_t timer = first();
    unlink(timer);
    const double time = nodes_[timer].time;
    if (--size_ < days_.size() / 2 && days_.size() > 16) resize(days_.size() / 2);
    return {time, timer};
  }

 private:
  struct Node {
    double time;
    std::uint64_t rank;
    std::uint32_t next, previous;
    bool set;
  };
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  bool before(std::uint32_t a, std::uint32_t b) const {
    const Node &x = nodes_[a], &y = nodes_[b];
    return x.time < y.time || (x.time == y.time && x.rank < y.rank);
  }
  std::uint64_t day_of(double time) const { return static_cast<std::uint64_t>(time * per_width_); }
  void link(std::uint32_t timer) {
    Node& node = nodes_[timer];
    const std::uint64_t day = day_of(node.time);
    today_ = std::min(today_, day);
    std::uint32_t& head = days_[day & (days_.size() - 1)];
    std::uint32_t previous = kNone, next = head;
    while (next != kNone && before(next, timer)) {
      previous = next;
      next = nodes_[next].next;
    }
    node.previous = previous;
    node.next = next;
    node.set = true;
    (previous == kNone ? head : nodes_[previous].next) = timer;
    if (next != kNone) nodes_[next].previous = timer;
  }
  void unlink(std::uint32_t timer) {
    Node& node = nodes_[timer];
    std::uint32_t& head = days_[day_of(node.time) & (days_.size() - 1)];
    (node.previous == kNone ? head : nodes_[node.previous].next) = node.next;
    if (node.next != kNone) nodes_[node.next].previous = node.previous;
    node.set = false;
  }
  std::uint32_t first() {
    for (std::size_t looked = 0; looked < days_.size(); ++looked, ++today_) {
      const std::uint32_t head = days_[today_ & (days_.size() - 1)];
      if (head != kNone && day_of(nodes_[head].time) == today_) return head;
    }
    // A year without events: the first of all heads.
    std::uint32_t best = kNone;
    for (const std::uint32_t head : days_) {
      if (head != kNone && (best == kNone || before(head, best))) best = head;
    }
    today_ = day_of(nodes_[best].time);
    return best;
  }
  void resize(std::size_t count) {
    std::vector<double> times;
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].set) times.push_back(nodes_[i].time);
    }
    const std::size_t sample = std::min<std::size_t>(times.size(), 64);
    std::partial_sort(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(sample), times.end());
    const double gap = (times[sample - 1] - times[0]) / static_cast<double>(sample);
    rebuild(count, gap > 0 ? 3 * gap : 1);
  }
  void rebuild(std::size_t count, double width) {
    days_.assign(count, kNone);
    per_width_ = 1 / width;
    today_ = ~std::uint64_t{0};
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].set) link(i);
    }
    if (size_ == 0) today_ = 0;
  }

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> days_;
  double per_width_ = 1;
  std::uint64_t today_ = 0, settings_ = 0;
  std::size_t size_ = 0;
};

}  // namespace shardline
