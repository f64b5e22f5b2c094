// Times of a plan's steps in each stage of its pipeline. planner/requests/README.md [R36].
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "hardware/timing/stage_times.hpp"
#include "planner/plan/case.hpp"
#include "planner/requests/step_times.hpp"
#include "planner/serving/prompt_power.hpp"
#include "planner/serving/step_table.hpp"

namespace shardline {

/// [R36] The blocks of a step's lowering, which one time of the whole pass adds up, stage by stage: a stage
/// is busy with its layers, the last one with the head, too, and hands on what it has computed. The engine's
/// host works beside the kernels of a step once: a stage begins with the next one no sooner than
/// beside_host() of its own kernels says, and a step alone takes beside_host() of all. Steps that decode are
/// interpolated as in [R6], each kind of stage by tables of its own.
class PlanStageTimes : public StageTimes {
 public:
  /// `plan` has several stages and passes check; its batch does not matter.
  PlanStageTimes(const Case& c, const Plan& plan, AllReduceRule rule,
                 std::shared_ptr<FabricCache> cache = nullptr);
  PlanStageTimes(const PlanStageTimes&) = delete;  // tables point to it
  PlanStageTimes& operator=(const PlanStageTimes&) = delete;

  std::size_t count() const override { return kind_of_.size(); }
  void of(const StepBatch& batch, std::span<StageTime> out) const override;
  StepEnergy pass(const StepBatch& batch, std::span<StageTime> out) const override;

  /// Of a whole lowering.
  std::vector<StageTime> lowered(const StepBatch& batch) const;

  double largest_error() const;
  void begin_play();

 private:
  // Stages next to each other that hold alike layers.
  struct Kind {
    std::size_t first = 0;   // of its stages
    StepTable busy, handed;  // that of the first kind has what all stages draw, too
  };

  // Without the host, and what it does beside them.
  struct Lowered {
    std::vector<StageTime> stages;
    Seconds host;
    StepEnergy drawn;  // in all of them
  };
  const Lowered& kernels(const StepBatch& batch, bool drawn = true) const;

  mutable Case study_;
  Plan plan_;
  mutable CostModel cost_;
  mutable PassScratch scratch_;
  mutable Schedule schedule_;
  std::vector<std::size_t> kind_of_;  // by stage
  mutable std::vector<Kind> kinds_;
  using Decodes = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>;
  mutable std::map<Decodes, Lowered> knots_;  // tables ask for the same ones
  mutable Lowered last_;                      // with prompts
  mutable PromptPower power_;
  mutable std::vector<Seconds> hosts_;  // by requests that decode, without prompts
};

}  // namespace shardline
