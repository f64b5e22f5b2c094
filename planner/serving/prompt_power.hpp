// What steps with prompts draw, most of them by those that are alike. planner/requests/README.md [R39].
#pragma once

#include <bit>
#include <cstdint>
#include <unordered_map>

#include "planner/requests/step_times.hpp"

namespace shardline {

/// [R39] To add up what each op of a step draws takes a seventh of the time that lowering it does. Batches
/// whose tokens of prompts, keys of each of these, requests that decode and cached tokens lie in the same
/// half octaves draw the same power: that of the first kFirst of a play and of every kEach-th from then on.
class PromptPower {
 public:
  static constexpr std::uint64_t kFirst = 8, kEach = 16;

  void begin_play() { known_.clear(); }
  /// Of a batch with prompts, in a step in which all groups together compute `rows` tokens. `time()` of the
  /// step, or priced() with what it draws, is asked for, whichever is needed.
  template <class Time, class Priced>
  PricedStep of(const StepBatch& batch, std::uint64_t rows, Time time, Priced priced) {
    Alike& alike = known_[key_of(batch, rows)];
    const std::uint64_t before = alike.steps++;
    if (before >= kFirst && before % kEach > 0) {
      const Seconds took = time();
      const double part = took / alike.looked_at.time;
      return {took, alike.looked_at.energy * part, alike.looked_at.shared * part};
    }
    const PricedStep out = priced();
    alike.looked_at.time += out.time;
    alike.looked_at.energy += out.energy;
    alike.looked_at.shared += out.shared;
    return out;
  }

 private:
  struct Alike {
    std::uint64_t steps = 0;
    PricedStep looked_at;  // those that were, together
  };

  // Which half octave a number is in: 1, 2, 3, 4 to 5, 6 to 7, 8 to 11, ...
  static std::uint64_t half_octave(std::uint64_t n) {
    if (n < 2) return n;
    const auto width = static_cast<std::uint64_t>(std::bit_width(n));
    return 2 * width + (n >> (width - 2) & 1);
  }
  static std::uint64_t key_of(const StepBatch& batch, std::uint64_t rows) {
    const std::uint64_t tokens = batch.prompt_tokens();
    const double keys = tokens > 0 ? batch.prompt_pairs() / static_cast<double>(tokens) : 0;
    std::uint64_t key = half_octave(rows);
    for (const std::uint64_t n :
         {tokens, static_cast<std::uint64_t>(keys), std::uint64_t{batch.decodes}, batch.cached})
      key = key << 8 | half_octave(n);
    return key;
  }

  std::unordered_map<std::uint64_t, Alike> known_;
};

}  // namespace shardline
