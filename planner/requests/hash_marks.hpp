// Which hashes were met since a start, for many short rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace shardline {

/// A set of hashes, mixed so that their low bits are a place, that costs nothing to empty: open addressing,
/// at most half full, with the round in which a place was taken.
class HashMarks {
 public:
  /// From now on none was met.
  void restart() {
    ++round_;
    met_ = 0;
  }
  /// Whether a hash was not met before in this round; it is from now on.
  bool meet(std::uint64_t hash) {
    std::size_t at = place(hash);
    if (slots_[at].round == round_) return false;
    if (2 * (met_ + 1) > slots_.size()) {
      grow();
      at = place(hash);
    }
    slots_[at] = {hash, round_};
    ++met_;
    return true;
  }

 private:
  struct Slot {
    std::uint64_t hash = 0, round = 0;
  };
  // Where the hash is, or would be: a place of an older round is free.
  std::size_t place(std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    while (slots_[at].round == round_ && slots_[at].hash != hash) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Slot> before(2 * slots_.size());
    before.swap(slots_);
    for (const Slot& slot : before)
      if (slot.round == round_) slots_[place(slot.hash)] = slot;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(16);
  std::size_t met_ = 0;
  std::uint64_t round_ = 1;
};

}  // namespace shardline
