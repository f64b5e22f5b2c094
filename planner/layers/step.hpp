// A whole step: the blocks that its stages run, each lowered from what it depends on. planner/README.md [P7].
#pragma once

#include <array>

#include "models/ir/schedule.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// A step is made of these, each a block of the schedule, in this order. receive: a later stage gathers the
/// slices of the activations that its ranks were handed.
enum class StepBlock : std::uint8_t { attention, dense_ffn, expert_ffn, head, receive, hand_off };
inline constexpr std::size_t kStepBlocks = 6;

/// Those that a plan has.
class StepBlocks {
 public:
  void add(StepBlock b) { blocks_[size_++] = b; }
  const StepBlock* begin() const { return blocks_.data(); }
  const StepBlock* end() const { return blocks_.data() + size_; }

 private:
  std::array<StepBlock, kStepBlocks> blocks_{};
  std::size_t size_ = 0;
};
StepBlocks step_blocks(const Case& c, const Plan& plan);

/// Whether blocks are lowered from views, which plans share: one round, no context-parallel ranks.
bool has_views(const Plan& plan);
/// All of the plan that the block depends on: equal views have equal blocks, since build_step() lowers views.
Plan block_view(const Plan& plan, StepBlock block);
/// Of a view that has_views().
void add_block(ScheduleBuilder& b, const Case& c, const Plan& view, StepBlock block);

/// All stages of the case's step, or of the rounds of a prefill in chunks: layers, LM head on the last stage,
/// hand-off between stages.
void build_step(Schedule& schedule, const Case& c, const Plan& plan);

}  // namespace shardline
