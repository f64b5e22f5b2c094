// Room for the schedules of prompts in very many chunks.
#pragma once

#include <array>
#include <cstddef>

#include "models/ir/schedule.hpp"

namespace shardline {

/// Of a million chunks no vector may grow by being moved, which takes longer than a signal waits for: there
/// is room for as many as follow the second one, which has all ops that a chunk has.
class RoundRoom {
 public:
  explicit RoundRoom(Schedule& s) : s_(s) {}

  void before(std::size_t round, std::size_t rounds) {
    if (round == 1) first_ = sizes();
    if (round != 2) return;
    const std::array<std::size_t, 4> both = sizes();
    const auto all = [&](std::size_t i) {
      return both[i] + (both[i] - first_[i] + 1) * (rounds - round + 1);
    };
    s_.ops.reserve(all(0));
    s_.dependencies.reserve(all(1));
    s_.blocks.reserve(all(2));
    s_.variants.reserve(all(3));
  }

 private:
  std::array<std::size_t, 4> sizes() const {
    return {s_.ops.size(), s_.dependencies.size(), s_.blocks.size(), s_.variants.size()};
  }

  Schedule& s_;
  std::array<std::size_t, 4> first_{};
};

}  // namespace shardline
