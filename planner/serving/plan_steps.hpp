// Times of the steps of a plan, of its own blocks, for players of requests. planner/requests/README.md [R6].
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "planner/requests/step_times.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/serving/step_table.hpp"

namespace shardline {

class PlanStageTimes;  // planner/serving/plan_stages.hpp

/// [R6] Steps of one attention group of a plan, lowered and priced as `simulate` and served sweeps do, the
/// engine's host included; those that decode by a StepTable. Steps with prompts are lowered as they are.
/// Lowered are batches in which all requests but the longest are alike: exact where every layer sees all
/// tokens, from below a window on it depends on who is shorter. A step of a plan with drafts verifies all of
/// them of each request that decodes [P29], and its time is of the whole step, whatever it yields. What is
/// known is kept, so one object per thread.
class PlanStepTimes : public StepTimes {
 public:
  static constexpr double kMostError = StepTable::kMostError;

  /// `plan` passes check; its batch does not matter. `cache` may be shared.
  PlanStepTimes(const Case& c, const Plan& plan, AllReduceRule rule,
                std::shared_ptr<FabricCache> cache = nullptr);
  PlanStepTimes(const PlanStepTimes&) = delete;  // the evaluator points to the case
  PlanStepTimes& operator=(const PlanStepTimes&) = delete;
  ~PlanStepTimes() override;

  Seconds of(const StepBatch& batch) const override;
  DecodeStretch decode(const StepBatch& batch) const override;
  /// [R10] Lowered as it is, beside others' tokens in all that groups share.
  Seconds of_group(std::span<const StepBatch* const> groups, std::size_t which) const override;
  PricedStep priced(const StepBatch& batch) const override;
  PricedStep priced_group(std::span<const StepBatch* const> groups, std::size_t which) const override;
  const StageTimes* stages() const override;

  /// A whole lowering of any batch of one attention group.
  Seconds lowered(const Batch& batch, const std::optional<GroupRows>& groups = {}) const;
  /// [R39] The same with what it draws.
  PricedStep lowered_priced(const Batch& batch, const std::optional<GroupRows>& groups = {}) const;
  /// The batch that is lowered for a step.
  static Batch batch_of(const StepBatch& step);

  /// What was done so far: steps that were lowered and cells of the tables; and the largest error of a cell
  /// that was asked since begin_play(), as looked at when it was made.
  struct Effort {
    std::uint64_t lowered = 0, cells = 0;
    double largest_error = 0;
  };
  Effort effort() const;
  /// What a play finds does not depend on what was played before.
  void begin_play();

 private:
  GroupRows rows_of(std::span<const StepBatch* const> groups, std::size_t which) const;

  struct Lowering;  // changes as steps are lowered
  std::unique_ptr<Lowering> lowering_;
  mutable StepTable table_;
  mutable std::uint64_t lowered_ = 0;
  std::unique_ptr<PlanStageTimes> stages_;  // nullptr: one stage
};

}  // namespace shardline
