// Which of a fixed number of things is due first.
#pragma once

#include <bit>
#include <cstddef>
#include <limits>
#include <vector>

#include "sim/base/units.hpp"

namespace shardline {

/// A time for each of so many things, never at first: a tree of winners, so that a change costs log2 of them.
/// Of those that are due at the same time the first in number wins, whichever was set first (EventCalendar's
/// timers come in the order in which they were set).
class FirstDue {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  explicit FirstDue(std::size_t count) : leaves_(std::bit_ceil(count)), tree_(2 * leaves_) {
    for (std::size_t i = 0; i < leaves_; ++i) tree_[leaves_ + i] = {kNever, i};
    for (std::size_t at = leaves_; at-- > 1;) tree_[at] = tree_[2 * at];
  }

  Seconds time() const { return Seconds(tree_[1].time); }
  std::size_t which() const { return tree_[1].which; }

  void set(std::size_t which, Seconds time) {
    std::size_t at = leaves_ + which;
    if (tree_[at].time == time.value) return;
    tree_[at].time = time.value;
    for (at /= 2; at > 0; at /= 2)
      tree_[at] = tree_[2 * at + 1].time < tree_[2 * at].time ? tree_[2 * at + 1] : tree_[2 * at];
  }

 private:
  struct Due {
    double time = kNever;
    std::size_t which = 0;
  };
  std::size_t leaves_;
  std::vector<Due> tree_;  // the winner of all at [1]; number i at [leaves_ + i]
};

}  // namespace shardline
