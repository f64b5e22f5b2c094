#include "hardware/timing/stage_times.hpp"

#include "sim/base/error.hpp"

namespace shardline {

std::vector<StagePass> stage_passes(const Schedule& schedule, CostModel& cost, PassScratch& scratch) {
  SL_CHECK(schedule.rounds == 1 && !plays_all_layers(schedule), "stages are passed one after the other");
  if (schedule.classes > 1 || schedule.detached) return stages_of_classes(schedule, cost, scratch);
  simulate_pass(schedule, cost, scratch);
  std::vector<StagePass> out;
  for (const Stage& stage : schedule.stages) {
    StagePass pass;
    for (const Repeat& repeat : schedule.program_of(stage)) {
      for (const BlockIndex b : schedule.blocks_of(repeat))
        (schedule.blocks[b].handoff ? pass.handed : pass.busy) +=
            Seconds(scratch.makespans[b] * repeat.times);
    }
    out.insert(out.end(), static_cast<std::size_t>(stage.copies), pass);
  }
  return out;
}

}  // namespace shardline
