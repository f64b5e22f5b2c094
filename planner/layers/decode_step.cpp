// A decode step from its blocks, each lowered from what it depends on.
#include <algorithm>
#include <cmath>

#include "planner/layers/decode_layer.hpp"
#include "planner/layers/stages.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

// Ranks of a stage that share one token's matrices.
int stage_ranks(const Plan& p) { return p.ranks_per_stage() / p.cp; }

// New tokens of one rank, all attention groups together: context-parallel ranks deal out the batch.
Count tokens_of_stage(const Plan& p) { return static_cast<Count>((p.batch + p.cp - 1) / p.cp) * p.dp; }

// Whether traits alone make a row's attention block.
bool common_attention(const Strategy& s) { return !s.decode_attention && !s.decode_share; }

// The first row of the table whose attention block is the same for the same degrees: plans of both share its
// time.
StrategyId alike(StrategyId id) {
  const Strategy& own = strategy(id);
  const auto all = strategies();
  const auto same = [&](const Strategy* s) {
    return s->decodes && common_attention(*s) && s->weights == own.weights && s->partials == own.partials;
  };
  return StrategyId(static_cast<std::size_t>(std::find_if(all.begin(), all.end(), same) - all.begin()));
}

}  // namespace

DecodeBlocks decode_blocks(const Case& c, const Plan& p) {
  DecodeBlocks blocks;
  blocks.add(DecodeBlock::attention);
  if (c.model.dense_layers > 0) blocks.add(DecodeBlock::dense_ffn);
  if (c.model.dense_layers < c.model.layers) blocks.add(DecodeBlock::expert_ffn);
  blocks.add(DecodeBlock::head);
  if (p.pp > 1 && stage_ranks(p) > 1) blocks.add(DecodeBlock::receive);
  if (p.pp > 1) blocks.add(DecodeBlock::hand_off);
  return blocks;
}

// Fields that a block does not read are left at their defaults, so that it cannot depend on them.
Plan decode_view(const Plan& p, DecodeBlock block) {
  if (p.cp > 1) return p;
  Plan v;
  v.batch = p.batch;
  switch (block) {
    case DecodeBlock::attention:
      v.kvp = p.kvp;
      v.tpa = p.tpa;
      v.options = p.options;
      v.strategy = common_attention(strategy(p.strategy)) ? alike(p.strategy) : p.strategy;
      break;
    case DecodeBlock::dense_ffn:
      v.dense_tp = dense_ffn_ranks(p);
      v.kvp = strategy(p.strategy).weights == WeightSharing::attention_tp ? p.tpa : p.group();
      v.dp = v.dense_tp > p.group() ? p.dp : 1;
      break;
    case DecodeBlock::expert_ffn:
      v.dp = p.dp;
      v.kvp = p.dp > 1 ? p.group() : 1;
      v.ep = p.ep;
      v.tpf = p.tpf;
      break;
    case DecodeBlock::hand_off:
      v.pp = p.pp;
      [[fallthrough]];
    case DecodeBlock::receive:
    case DecodeBlock::head:
      v.batch = p.batch * p.dp;
      v.kvp = p.ranks_per_stage();
      break;
  }
  return v;
}

void add_decode_block(ScheduleBuilder& b, const Case& c, const Plan& v, DecodeBlock block) {
  const Count tokens = tokens_of_stage(v);
  switch (block) {
    case DecodeBlock::attention:
      b.begin_block("attention");
      add_qkv(b, c, v);
      add_attention(b, c, v);
      add_out_proj(b, c, v);
      break;
    case DecodeBlock::dense_ffn:
      b.begin_block("dense FFN");
      add_dense_ffn(b, c, v);
      break;
    case DecodeBlock::expert_ffn:
      b.begin_block("expert FFN");
      add_expert_ffn(b, c, v);
      break;
    case DecodeBlock::head: {
      b.begin_block("head");
      const ModuleType t = c.precision.of(Module::head);
      b.gemm("lm head", Part::head, t.weights, t.math,
             GemmShape{tokens, c.model.hidden, (c.model.vocab + stage_ranks(v) - 1) / stage_ranks(v)});
      // Each rank's best logit per token: latency only, 8 bytes per token are ignored.
      ExchangeShape best;
      best.carrier = Carrier::engine;
      best.rows = static_cast<double>(tokens);
      b.exchange("pick token", Part::head, OpKind::all_gather, {stage_ranks(v), 1}, best,
                 c.precision.activations);
      break;
    }
    case DecodeBlock::receive:
      b.begin_block("receive");
      b.exchange("gather hand-off", Part::hop, OpKind::all_gather, {stage_ranks(v), 1},
                 Bytes(static_cast<double>(tokens * c.model.hidden) *
                       bytes_per_element(c.precision.activations) / stage_ranks(v)));
      break;
    case DecodeBlock::hand_off:
      b.begin_block("hand-off", true);
      b.exchange("hand-off", Part::hop, OpKind::send_recv, {v.pp, v.ranks_per_stage()},
                 Bytes(static_cast<double>(tokens * c.model.hidden) *
                       bytes_per_element(c.precision.activations) / stage_ranks(v)));
      break;
  }
  b.end_block();
}

void build_decode(Schedule& schedule, const Case& c, const Plan& p) {
  thread_local std::vector<StageLayers> stages;
  stage_layers(c.model, p.pp, stages);
  ScheduleBuilder b(schedule);
  schedule.ranks_per_stage = p.ranks_per_stage();
  schedule.in_flight = p.in_flight;
  if (p.cp > 1) b.set_classes(p.cp, p.tpa);

  // Both halves of a layer end where their ranks meet (or, alone, in the order of one rank): each is a block.
  std::array<BlockIndex, kDecodeBlocks> at{};
  for (const DecodeBlock block : decode_blocks(c, p)) {
    at[static_cast<std::size_t>(block)] = static_cast<BlockIndex>(schedule.blocks.size());
    // Data flow is of all ranks.
    add_decode_block(b, c, b.flow() ? p : decode_view(p, block), block);
  }
  const auto index = [&](DecodeBlock block) { return at[static_cast<std::size_t>(block)]; };
  const BlockIndex attention = index(DecodeBlock::attention);
  for (const StageLayers& s : stages) {
    if (!s.first && stage_ranks(p) > 1) b.run({index(DecodeBlock::receive)});
    b.run({attention, index(DecodeBlock::dense_ffn)}, s.dense);
    b.run({attention, index(DecodeBlock::expert_ffn)}, s.experts);
    if (s.last) b.run({index(DecodeBlock::head)});
    if (p.pp > 1) b.run({index(DecodeBlock::hand_off)});
    b.end_stage(s.copies);
  }
  if (p.cp > 1) b.fold_classes();
}

}  // namespace shardline
