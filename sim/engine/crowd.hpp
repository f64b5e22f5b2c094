// Many tasks that use one resource and no other, timed together by a clock of their own.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sim/engine/event_heap.hpp"
#include "sim/engine/sharing.hpp"

namespace shardline {

/// A sum of two doubles, the second below the rounding of the first: about 106 bits. A clock may have run for
/// long before a short task comes, whose end must not drown in the rounding of the clock.
struct TwoDoubles {
  double high = 0, low = 0;

  /// Knuth's exact sum of two doubles, and what was below.
  TwoDoubles plus(double v) const {
    const double sum = high + v;
    const double part = sum - high;
    const double rest = (high - (sum - part)) + (v - part) + low;
    const double whole = sum + rest;
    return {whole, rest - (whole - sum)};
  }
  double minus(const TwoDoubles& v) const { return (high - v.high) + (low - v.low); }
  friend bool operator<(const TwoDoubles& a, const TwoDoubles& b) {
    return a.high < b.high || (a.high == b.high && a.low < b.low);
  }
};

/// Processor sharing in virtual time [S11]. Virtual time grows at the level of [S3]; a task of weight w that
/// begins at v with a seconds of work at full speed ends at v + a / w, whoever comes and goes meanwhile. So a
/// start or an end costs a step of a heap, not a visit to every task. Reusable: no allocation once the heap
/// is large enough.
class Crowd {
 public:
  struct Member {
    TwoDoubles end;  // in virtual time
    std::uint32_t task;

    friend bool before(const Member& a, const Member& b) {
      return a.end < b.end || (!(b.end < a.end) && a.task < b.task);
    }
  };

  /// Empty at time `now`; an equal_rate task has the weight `rate_weight` > 0, others 1. `awaited` is any
  /// task.
  void open(double now, std::uint32_t awaited, double rate_weight) {
    open_ = true;
    awaited_ = {{}, awaited};
    members_.clear();
    sizes_ = {0, 0};
    weights_[static_cast<std::size_t>(Sharing::equal_rate)] = rate_weight;
    clock_ = {};
    now_ = now;
    load_ = 0;
  }
  void close() { open_ = false; }
  bool is_open() const { return open_; }

  /// Lets time pass until `now`, not before the last time.
  void advance(double now) {
    if (now > now_) clock_ = clock_.plus((now - now_) / load_);
    now_ = now;
  }
  /// A task with `work` seconds left begins now.
  void add(std::uint32_t task, double work, Sharing sharing) {
    members_.push({clock_.plus(work / weight(sharing)), task});
    ++sizes_[static_cast<std::size_t>(sharing)];
  }
  /// The member that ends first leaves.
  void pop(Sharing sharing) {
    members_.pop();
    --sizes_[static_cast<std::size_t>(sharing)];
  }
  /// Shares from now on among the members and others of the weight `beside` together. Counted, not summed:
  /// a sum that is added to and taken from would drift.
  void share(double beside) {
    load_ =
        static_cast<double>(sizes_[0]) * weights_[0] + static_cast<double>(sizes_[1]) * weights_[1] + beside;
  }

  std::size_t size() const { return sizes_[0] + sizes_[1]; }
  std::span<const Member> members() const { return members_.events(); }
  const Member& next() const { return members_.top(); }
  /// The next to end, from now on the one whose end is awaited.
  const Member& await() { return awaited_ = members_.top(); }
  const Member& awaited() const { return awaited_; }
  /// Seconds of work that a member has left.
  double left(const Member& m, Sharing sharing) const {
    return std::max(0.0, m.end.minus(clock_)) * weight(sharing);
  }
  /// When a member with `left` seconds of work ends if nobody comes or goes.
  double end(double left, Sharing sharing) const { return now_ + left / weight(sharing) * load_; }
  double speed(Sharing sharing) const { return weight(sharing) / load_; }

 private:
  double weight(Sharing sharing) const { return weights_[static_cast<std::size_t>(sharing)]; }

  EventHeap<Member> members_;
  Member awaited_{};
  std::array<std::size_t, 2> sizes_{};       // by sharing
  std::array<double, 2> weights_{1.0, 1.0};  // by sharing
  TwoDoubles clock_;                         // virtual time at now_
  double now_ = 0;
  double load_ = 0;  // sum of the weights
  bool open_ = false;
};

}  // namespace shardline
