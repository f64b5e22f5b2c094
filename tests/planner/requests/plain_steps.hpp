// What a step of several attention groups takes, the plain way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "planner/requests/step_times.hpp"

namespace shardline {

// Seconds: the longest of what the groups take [R10]. Of each group a batch with its `work`, or nothing.
template <class Batches>
double plain_step_of_groups(const StepTimes& times, const Batches& batches) {
  const StepBatch nothing;
  std::vector<const StepBatch*> groups;
  std::uint32_t most = 0;
  bool prompts = false;
  for (const auto& b : batches) {
    groups.push_back(b ? &b->work : &nothing);
    most = std::max(most, groups.back()->decodes);
    prompts = prompts || !groups.back()->prompts.empty();
  }
  Seconds out;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g]->empty()) continue;
    StepBatch bare, bare_most;
    bare.decodes = groups[g]->decodes;
    bare_most.decodes = most;
    out = std::max(out, prompts ? times.of_group(groups, g)
                                : times.of(*groups[g]) + (times.of(bare_most) - times.of(bare)));
  }
  return out.value;
}

}  // namespace shardline
