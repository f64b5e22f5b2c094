// Which blocks a step has, and what of a plan each depends on. planner/README.md [P7].
#include <algorithm>
#include <iterator>

#include "planner/layers/drafts.hpp"
#include "planner/layers/share.hpp"
#include "planner/layers/stage_messages.hpp"
#include "planner/layers/stages.hpp"
#include "planner/layers/step.hpp"
#include "planner/layers/two_batches.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

// Whether traits alone make a row's attention of decoding requests.
bool common_attention(const Strategy& s) { return !s.decode_attention && !s.cache_share; }

// Whether two such rows lower equal plans to equal attention blocks: all that lowering one asks of a row.
bool same_attention(const Strategy& a, const Strategy& b) {
  return common_attention(a) && common_attention(b) && a.weights == b.weights && a.partials == b.partials &&
         a.prefill_attention == b.prefill_attention && a.binds_prefill == b.binds_prefill &&
         a.pads_queries == b.pads_queries && a.deal == b.deal && a.layout == b.layout;
}

// The first row of the table whose attention block is the same for the same degrees: plans of both share its
// time.
StrategyId alike(StrategyId id) {
  const auto all = strategies();
  const auto same = [&](const Strategy* s) { return same_attention(*s, strategy(id)); };
  return StrategyId(static_cast<std::size_t>(std::find_if(all.begin(), all.end(), same) - all.begin()));
}

}  // namespace

void step_blocks(const Case& c, const Plan& p, std::vector<StepBlock>& out) {
  out.clear();
  const bool woven = overlaps_batches(p);
  for (int i = 0; i < std::ssize(c.model.attentions); ++i) {
    if (c.model.attentions[static_cast<std::size_t>(i)].none()) continue;
    if (p[kDrafts] == 0 && of_drafts_alone(c.model, i)) continue;
    if (!woven || has_dense(c.model)) out.push_back({BlockKind::attention, i});
  }
  for (int i = 0; i < std::ssize(c.model.ffns); ++i) {
    const FeedForward& f = c.model.ffns[static_cast<std::size_t>(i)];
    if (f.none()) continue;
    if (!woven || f.dense()) {
      out.push_back({BlockKind::ffn, i});
      continue;
    }
    for (const BlockKind kind : {BlockKind::opening, BlockKind::middle, BlockKind::closing})
      out.push_back({kind, i});
  }
  out.push_back({BlockKind::head});
  if (p.pp > 1) {
    const bool choices = hands_choices(c, p.pp), gathers = gathers_hand_off(c, p);
    if (gathers) out.push_back({BlockKind::receive});
    out.push_back({BlockKind::hand_off});
    if (choices && gathers) out.push_back({BlockKind::receive_choice});
    if (choices) out.push_back({BlockKind::hand_off_choice});
  }
  if (p[kDrafts] == 0) return;
  if (accepts_states(c, p)) out.push_back({BlockKind::accept});
  out.push_back({BlockKind::draft_input});
  out.push_back({BlockKind::head, 0, true});
  // The first pass has the rows of a layer of the model: with types of its own it is another block than
  // that's.
  const DraftLayer layer = *draft_layer(c.model);
  const bool module = c.precision.drafts.has_value();
  if (module) {
    out.push_back({BlockKind::attention, layer.attention, false, true});
    out.push_back({BlockKind::ffn, layer.ffn, false, true});
  }
  if (later_passes(c, p) == 0) return;
  out.push_back({BlockKind::draft_input, 0, true});
  out.push_back({BlockKind::attention, layer.attention, true, module});
  out.push_back({BlockKind::ffn, layer.ffn, true, module});
}

bool has_views(const Plan& p) { return p.cp == 1 && p[kPrefillChunk] == 0; }

// Fields that a block does not read are left at their defaults, so that it cannot depend on them.
Plan block_view(const Case& c, const Plan& p, StepBlock block) {
  Plan v;
  v.batch = p.batch;
  v.set(kDrafts, block.draft ? 0 : p[kDrafts]);
  switch (block.kind) {
    case BlockKind::attention:
      v.kvp = p.kvp;
      v.tpa = p.tpa;
      v.options = p.options;
      if (block.draft) v.set(kDrafts, 0);
      v.strategy = common_attention(strategy(p.strategy)) ? alike(p.strategy) : p.strategy;
      break;
    case BlockKind::ffn:
      if (ffn_of(c, block).dense()) {
        v.dense_tp = dense_ffn_ranks(p);
        v.kvp = strategy(p.strategy).weights == WeightSharing::attention_tp ? p.tpa : p.group();
        v.dp = v.dense_tp > p.group() ? p.dp : 1;
      } else {
        v.dp = p.dp;
        v.kvp = p.dp > 1 ? p.group() : 1;
        v.ep = p.ep;
        v.tpf = p.tpf;
        v.set(kExpertTokens, p[kExpertTokens]);
      }
      break;
    case BlockKind::opening:
    case BlockKind::middle:
    case BlockKind::closing:  // both blocks of a layer
      v.strategy = p.strategy;
      v.options = p.options;
      v.dp = p.dp;
      v.kvp = p.kvp;
      v.tpa = p.tpa;
      v.ep = p.ep;
      v.tpf = p.tpf;
      break;
    case BlockKind::hand_off:
    case BlockKind::hand_off_choice:
    case BlockKind::receive:
    case BlockKind::receive_choice:
      if (is_handoff(block.kind)) v.pp = p.pp;
      v.batch = p.batch * p.dp;
      v.kvp = p.ranks_per_stage();
      break;
    case BlockKind::draft_input:
      break;
    case BlockKind::accept:  // heads of states
      v.kvp = p.kvp;
      v.tpa = p.tpa;
      v.strategy = common_attention(strategy(p.strategy)) ? alike(p.strategy) : p.strategy;
      break;
    case BlockKind::head:  // graphs, and what hosts do, are of a group
      if (c.engine && !c.engine->waits_in_strategies.empty()) v.strategy = p.strategy;
      if (c.engine && c.engine->waits_in_stages) v.pp = p.pp;
      v.dp = p.dp;
      v.kvp = p.group();
      break;
  }
  return v;
}

}  // namespace shardline
