// Schedules as text, to be compared with those derived by hand.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/requests/scheduler.hpp"

namespace shardline {

inline TraceRequest asks(std::int64_t input, std::int64_t output, std::vector<std::uint64_t> blocks = {}) {
  return {Seconds(0), input, output, std::move(blocks)};
}

// "2 decode (31), 8+0 4+16": requests that decode, their cached tokens, and parts of prompts (new + past).
inline std::string text_of(const StepBatch& b) {
  std::string out = std::to_string(b.decodes) + " decode (" + std::to_string(b.cached) + ")";
  for (const PromptPart& p : b.prompts) {
    out += (&p == b.prompts.data() ? ", " : " ") + std::to_string(p.tokens) + "+" + std::to_string(p.past);
  }
  return out;
}

// At most so many steps, one after another. Like the player, an engine in which nothing is decided is asked
// once more.
inline std::vector<std::string> steps_of(Scheduler& s, int most = 1000) {
  std::vector<std::string> out;
  for (int i = 0, idle = 0; i < most && idle < 2; ++i) {
    while (s.decided() < s.depth() && s.schedule()) {
    }
    if (s.decided() == 0) {
      ++idle;
      continue;
    }
    idle = 0;
    out.push_back(text_of(s.front()));
    s.finish_steps();
  }
  return out;
}

using Steps = std::vector<std::string>;

}  // namespace shardline
