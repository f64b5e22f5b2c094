// A whole step: the blocks that its stages run, each lowered from what it depends on. planner/README.md [P7].
#pragma once

#include <vector>

#include "models/ir/schedule.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// A step is made of these, each a block of the schedule, in this order: a block of every kind of attention,
/// of every kind of feed-forward network, then the others. receive: a later stage gathers the slices of the
/// activations that its ranks were handed; the two behind hand_off: the same with the choice of an index, of
/// stages that begin on a layer which takes it. The last three are layers with experts whose two halves of a
/// batch overlap [P23], each from the messages of a layer to those of the next. draft_input: what enters a
/// module that drafts; accept: the accepted states of recurrent layers are copied [P29].
enum class BlockKind : std::uint8_t {
  attention,
  ffn,
  head,
  receive,
  hand_off,
  receive_choice,
  hand_off_choice,
  draft_input,
  accept,
  opening,
  middle,
  closing,
};
/// A stage takes its next microbatch while it sends the one before.
constexpr bool is_handoff(BlockKind kind) {
  return kind == BlockKind::hand_off || kind == BlockKind::hand_off_choice;
}
constexpr bool is_woven(BlockKind kind) { return kind >= BlockKind::opening; }
struct StepBlock {
  BlockKind kind = BlockKind::attention;
  int index = 0;        // in Model::attentions, or in Model::ffns
  bool draft = false;   // of one token of each request, which is drafted, not of all that are verified
  bool module = false;  // attention, ffn: of a module that drafts, whose types are its own
  bool operator==(const StepBlock&) const = default;
};

/// The kind of attention, or of feed-forward network, that such a block is of.
inline const Attention& attention_of(const Case& c, StepBlock block) {
  return c.model.attentions[static_cast<std::size_t>(block.index)];
}
inline const FeedForward& ffn_of(const Case& c, StepBlock block) {
  return c.model.ffns[static_cast<std::size_t>(block.index)];
}

/// Ranks of a stage that share one token's matrices.
inline int stage_ranks(const Plan& p) { return p.ranks_per_stage() / p.cp; }

/// Those that a plan has. `out` is reused.
void step_blocks(const Case& c, const Plan& plan, std::vector<StepBlock>& out);

/// Whether blocks are lowered from views, which plans share: one round, no context-parallel ranks.
bool has_views(const Plan& plan);
/// All of the plan that the block depends on: equal views have equal blocks, since build_step() lowers views.
Plan block_view(const Case& c, const Plan& plan, StepBlock block);
/// Of a view that has_views().
void add_block(ScheduleBuilder& b, const Case& c, const Plan& view, StepBlock block);

/// [P18] What the engine's host starts of the plan's step by itself. graph, too, without an engine.
HostStarts host_starts(const Case& c, const Plan& plan);
/// Gives a case, of the batch of one of the plan's groups, what they compute together: in graphs all have as
/// many rows (vLLM, v1/worker/dp_utils.py, `_synchronize_dp_ranks`).
void set_groups(Case& c, const Plan& plan, const GroupRows& all);

/// All stages of the case's step, or of the rounds of a prefill in chunks: layers, LM head on the last stage,
/// hand-off between stages.
void build_step(Schedule& schedule, const Case& c, const Plan& plan);
/// The same of a plan that has_views(), whatever its batch, but blocks have no ops: which of step_blocks()
/// each stage runs, and how often.
void build_program(Schedule& schedule, const Case& c, const Plan& plan);

}  // namespace shardline
