// How long a microbatch takes in each stage of a pipeline.
#pragma once

#include <vector>

#include "hardware/timing/lowering.hpp"

namespace shardline {

/// Of one stage: the time that one microbatch occupies it, and how much later the next stage has it.
struct StagePass {
  Seconds busy, handed;
};

/// Of every stage in order, copies counted, of a schedule of one round. They add up to simulate_pass()'s
/// latency and the longest is its busiest; ranks of classes that a stage leaves apart make the sum longer by
/// that much. Not of schedules that play all layers at once (checked).
std::vector<StagePass> stage_passes(const Schedule& schedule, CostModel& cost, PassScratch& scratch);

/// The same where ranks are of several classes or lanes detached [H19].
std::vector<StagePass> stages_of_classes(const Schedule& schedule, CostModel& cost, PassScratch& scratch);

}  // namespace shardline
