// Times of the steps of a plan, of its own blocks, for players of requests. planner/requests/README.md [R6].
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "planner/requests/step_times.hpp"
#include "planner/search/evaluate.hpp"

namespace shardline {

/// [R6] Steps of one attention group of a plan, lowered and priced as `simulate` and served sweeps do, the
/// engine's host included. Of a step that decodes, the price follows from how many requests do, what they
/// have cached together and in the longest: between lowerings at knots of the mean and of what the longest
/// has beyond it, it is interpolated; knots are set closer until lowerings between them agree to
/// kMostError. Steps with prompts are lowered as they are. Lowered are batches in which all requests but the
/// longest are alike: exact where every layer sees all tokens, from below a window on it depends on who is
/// shorter. A step of a plan with drafts verifies all of them of each request that decodes [P29], and its
/// time is of the whole step, whatever it yields. What is known is kept, so one object per thread.
class PlanStepTimes : public StepTimes {
 public:
  /// Largest relative difference between a line and a lowering at the five points of a cell that are looked
  /// at (its middle and those of its edges), unless the cell is no wider than kLeast tokens.
  static constexpr double kMostError = 0.002;
  static constexpr std::uint32_t kLeast = 16;

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

  /// A whole lowering of any batch of one attention group.
  Seconds lowered(const Batch& batch, const std::optional<GroupRows>& groups = {}) const;
  /// The batch that is lowered for a step.
  static Batch batch_of(const StepBatch& step);

  /// What was done so far: steps that were lowered and cells of the tables; and the largest error of a cell
  /// that was asked since begin_play(), as looked at when it was made.
  struct Effort {
    std::uint64_t lowered = 0, cells = 0;
    double largest_error = 0;
  };
  const Effort& effort() const { return effort_; }
  /// What a play finds does not depend on what was played before.
  void begin_play() { effort_.largest_error = 0; }

 private:
  // Means [low, low + size) of what is cached, and [skew, skew + skew_size) tokens that the longest has
  // beyond the mean; the times at its corners, by [mean][skew].
  struct Cell {
    std::uint64_t low = 0, size = 0, skew = 0, skew_size = 0;
    double times[2][2] = {};
    double error = 0;
    std::uint32_t children = 0;  // the first of four; 0: none
  };
  // Of one number of requests.
  struct Table {
    std::vector<Cell> cells;
    std::map<std::uint64_t, std::uint32_t> roots;     // by both powers of two
    std::unordered_map<std::uint64_t, double> knots;  // lowered times
  };

  double knot(Table& table, std::uint32_t requests, std::uint64_t mean, std::uint64_t skew) const;
  void look(Table& table, std::uint32_t requests, std::uint32_t cell) const;
  const Cell& cell_of(std::uint32_t requests, std::uint64_t mean, std::uint64_t skew) const;

  struct Lowering;  // changes as steps are lowered
  std::unique_ptr<Lowering> lowering_;
  mutable std::vector<std::unique_ptr<Table>> tables_;  // by the number of requests
  mutable Effort effort_;
};

}  // namespace shardline
