// The events of a simulation in the order of their time, each of a timer that may be set anew or stopped.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/index.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// One thing that happens at most once at a time: the end of a step, the next arrival, a time-out.
using Timer = Index<struct TimerTag>;

/// Timers and what is due first [S13]. Timers that are due at the same time come in the order in which they
/// were set, so results are the same bits whatever else was set and stopped meanwhile. A timer has one leaf
/// of a tree of winners: setting it anew overwrites its leaf, nothing is left behind, and each change costs
/// at most log2(timers) comparisons without a branch. Memory: 45 to 77 B per timer that is in use at once.
class EventCalendar {
 public:
  struct Event {
    Seconds time;
    Timer timer;
    std::uint64_t tag;  // of the timer
  };

  /// A timer that is not set; `tag` tells its owner what it is for. At most 2^24 at once.
  Timer add(std::uint64_t tag = 0);
  /// Stops the timer and gives its number to the next one that is added.
  void remove(Timer timer);

  /// The timer is due at `time`, whether or not it was set before: never before now(), and finite (checked).
  void set(Timer timer, Seconds time);
  /// The timer is not due any more, if it was.
  void stop(Timer timer);

  bool is_set(Timer timer) const;
  /// When it is due; infinite where it is not set.
  Seconds time(Timer timer) const;

  /// How many timers are set.
  std::size_t size() const { return set_; }
  bool empty() const { return set_ == 0; }
  /// When the first event is due; infinite without one.
  Seconds next_time() const;
  /// Takes the first event out; its time is now. There is one (checked).
  Event pop();
  /// The time of the last event taken out, 0 before.
  Seconds now() const { return now_; }

 private:
  // Times are not negative, so their bits have their order. `rank` is the number of the setting, then the
  // timer: no two are equal, and the winner is known by it.
  struct Key {
    std::uint64_t time = kNever, rank = kNever;
  };
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  static constexpr int kTimerBits = 24;
  static constexpr std::uint64_t kNone = std::uint64_t{1} << kTimerBits;

  // Which of two random times is earlier cannot be predicted: a mask instead of a branch.
  static Key earlier(const Key& a, const Key& b) {
    __extension__ using Wide = unsigned __int128;
    const Wide wide_a = (static_cast<Wide>(a.time) << 64) | a.rank;
    const Wide wide_b = (static_cast<Wide>(b.time) << 64) | b.rank;
    const std::uint64_t second = -static_cast<std::uint64_t>(wide_b < wide_a);
    return {a.time ^ ((a.time ^ b.time) & second), a.rank ^ ((a.rank ^ b.rank) & second)};
  }
  void settle(std::size_t timer, Key key);
  void grow();
  // The first event was taken out and its leaf not yet cleared: mostly its timer is set again at once, which
  // saves one of two ways up the tree.
  void clear_taken();
  Key first() const;
  const Key& leaf(Timer timer) const { return tree_[capacity_ + timer]; }

  std::vector<Key> tree_;            // winner of leaves i at [1]; leaf of timer t at [capacity_ + t]
  std::vector<std::uint64_t> tags_;  // by timer
  std::vector<std::uint8_t> used_;   // by timer: added and not removed
  std::vector<Timer> free_;          // removed
  std::size_t capacity_ = 0, set_ = 0;
  std::uint64_t settings_ = 0, taken_ = kNone;
  Seconds now_;
};

inline void EventCalendar::settle(std::size_t timer, Key key) {
  Key* const tree = tree_.data();
  std::size_t at = capacity_ + timer;
  tree[at] = key;
  // Siblings' places are known at once, so their loads do not wait for one another. Where neither the old key
  // nor the new one wins, nothing changes above: never so for the first event, soon for one far off.
  while (at > 1) {
    key = earlier(key, tree[at ^ 1]);
    at >>= 1;
    if (tree[at].rank == key.rank) break;
    tree[at] = key;
  }
}

inline void EventCalendar::clear_taken() {
  if (taken_ == kNone) return;
  settle(taken_, Key{});
  taken_ = kNone;
}

inline void EventCalendar::set(Timer timer, Seconds time) {
  SL_CHECK(timer < used_.size() && used_[timer] != 0, "a timer that is set was added");
  SL_CHECK(time >= now_ && std::isfinite(time.value), "a timer is due now or later, at a finite time");
  SL_CHECK(settings_ < (std::uint64_t{1} << (64 - kTimerBits)) - 1, "timers are set less than 2^40 times");
  if (taken_ == timer) {
    taken_ = kNone;
    ++set_;
  } else {
    clear_taken();
    set_ += leaf(timer).rank == kNever ? 1 : 0;
  }
  // Adding 0 turns -0, whose bits are the largest, into 0.
  settle(timer, {std::bit_cast<std::uint64_t>(time.value + 0.0), (settings_++ << kTimerBits) | timer});
}

inline EventCalendar::Event EventCalendar::pop() {
  clear_taken();
  SL_CHECK(set_ > 0, "an event is due");
  const Key first = tree_[1];
  taken_ = first.rank & (kNone - 1);
  --set_;
  now_ = Seconds(std::bit_cast<double>(first.time));
  return {now_, Timer(taken_), tags_[taken_]};
}

}  // namespace shardline
