#include "planner/layers/step.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <optional>

#include "planner/layers/cache_attention.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/layers/host_work.hpp"
#include "planner/layers/layer.hpp"
#include "planner/layers/prefill_layout.hpp"
#include "planner/layers/recurrent.hpp"
#include "planner/layers/round_room.hpp"
#include "planner/layers/stage_messages.hpp"
#include "planner/layers/stages.hpp"
#include "planner/layers/streams.hpp"
#include "planner/layers/two_batches.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/work_progress.hpp"

namespace shardline {

namespace {

// What an engine whose kernels wait for its host does around them, once a step: where sampled tokens leave
// it.
void add_host(ScheduleBuilder& b, const Case& c, const Plan& p) {
  b.drive(Drive::engine);
  b.elementwise("engine", Part::host, OpKind::elementwise,
                ElementwiseShape{decode_requests(c, p), prefill_tokens(c, p), Bytes(0)}, 0);
}

// Every decoding token becomes logits, and the last one of each prefill, by the TP group that holds it.
void add_head(ScheduleBuilder& b, const Case& c, const Plan& p, bool drafts = false) {
  const Count tokens = c.groups ? c.groups->decodes * new_tokens(p) : decode_rows(c, p) * p.dp;
  const Count all = tokens + (c.groups ? c.groups->prompts : prefill_sequences(c, p) * p.dp);
  const int ranks = stage_ranks(p);
  b.begin_block(drafts ? "draft head" : "head");
  add_residual_end(b, c, all);
  const ModuleType t = c.precision.of(Module::head);
  b.gemm("lm head", Part::head, t.weights, t.math,
         GemmShape{all, c.model.hidden, rank_share(c.model.vocab, ranks)});
  if (c.batch.decodes()) {
    // Each rank's best logit per token: latency only, 8 bytes per token are ignored.
    ExchangeShape best;
    best.carrier = Carrier::engine;
    best.rows = static_cast<double>(tokens);
    b.exchange("pick token", Part::head, OpKind::all_gather, {ranks, 1}, best, c.precision.activations);
  }
  if (c.batch.prefills() && p.cp > 1 && c.system.runtime.distribute > Seconds(0)) {
    b.drive(Drive::distribute);
    b.elementwise("hand out the document", Part::hop, OpKind::elementwise, {}, 0);
    b.drive(Drive::eager);
  }
  if (!drafts && waits_for_host(c, p)) add_host(b, c, p);  // once a step
  b.end_block();
}

void add_woven(ScheduleBuilder& b, const Case& c, const Plan& p, StepBlock block);

void add_block(ScheduleBuilder& b, const Case& c, const Plan& p, StepBlock block, std::span<const Count> rows,
               ContextStep* prefills, LayerFlow& flow) {
  b.drive(has_prompts(c) ? Drive::eager : Drive::graph);
  switch (block.kind) {
    case BlockKind::attention:
      return Layer(b, c, p, rows, flow).attention(attention_of(c, block), prefills);
    case BlockKind::ffn: {
      const FeedForward& f = ffn_of(c, block);
      Layer layer(b, c, p, rows, flow);
      return f.dense() ? layer.dense_ffn(f) : layer.expert_ffn(f);
    }
    case BlockKind::head:
      return add_head(b, c, p, block.draft);
    case BlockKind::draft_input:
      return add_draft_input(b, c, p);
    case BlockKind::accept:
      return add_accepted_states(b, c, p);
    case BlockKind::receive:
    case BlockKind::hand_off:
    case BlockKind::receive_choice:
    case BlockKind::hand_off_choice: {
      // Messages that the host has started long before.
      const HostStarts starts = b.host_starts(HostStarts::graph);
      const bool choice = block.kind == BlockKind::receive_choice || block.kind == BlockKind::hand_off_choice;
      (is_handoff(block.kind) ? add_hand_off : add_receive)(b, c, p, RowOps(b, c, rows), choice);
      b.host_starts(starts);
      return;
    }
    case BlockKind::opening:
    case BlockKind::middle:
    case BlockKind::closing:
      return add_woven(b, c, p, block);
  }
}

// Of the kinds of attention of layers.
int last_attention(const Model& m) {
  int last = 0;
  for (int i = 0; i < std::ssize(m.attentions); ++i)
    if (!m.attentions[static_cast<std::size_t>(i)].none() && !of_drafts_alone(m, i)) last = i;
  return last;
}

// What the blocks of one round are lowered from: of the whole step, or of one chunk of its prefills.
class Round {
 public:
  /// `layout` of the round's prefills; null: it has none.
  Round(ScheduleBuilder& b, const Case& c, const Plan& p, std::optional<PrefillLayout> layout)
      : b_(b), c_(c), p_(p), layout_(std::move(layout)) {
    rows_.assign(static_cast<std::size_t>(p.cp), decode_rows(c, p));
    for (int k = 0; layout_ && k < p.cp; ++k)
      rows_[static_cast<std::size_t>(k)] += real_rows(layout_->dealt.fresh[static_cast<std::size_t>(k)]);
  }

  void add(StepBlock block) {
    SL_CHECK(!block.module, "plans with drafts are lowered from views");
    if (block.kind == BlockKind::attention && layout_) {
      const Attention& a = attention_of(c_, block);
      const bool last = block.index == last_attention(c_.model);
      const bool whole = keeps_whole_caches(c_, p_);
      step_ = std::make_unique<ContextStep>(
          b_, c_, a, p_, last ? std::move(*layout_).within(a.reach, whole) : layout_->within(a.reach, whole));
      flow_ = LayerFlow(*step_);
    }
    add_block(b_, c_, p_, block, rows_, step_.get(), flow_);
  }

 private:
  ScheduleBuilder& b_;
  const Case& c_;
  const Plan& p_;
  std::optional<PrefillLayout> layout_;  // gone when the last attention is added
  std::vector<Count> rows_;
  std::unique_ptr<ContextStep> step_;  // of the attention added last
  LayerFlow flow_;
};

// Where the blocks of one round stand in the schedule.
class Placed {
 public:
  explicit Placed(const Model& m) : attention_(m.attentions.size()), ffn_(m.ffns.size()) {}
  BlockIndex& operator[](StepBlock block) {
    if (block.draft) return drafts_[static_cast<std::size_t>(block.kind)];
    if (block.module) return module_[static_cast<std::size_t>(block.kind)];
    const auto i = static_cast<std::size_t>(block.index);
    return block.kind == BlockKind::attention ? attention_[i]
           : block.kind == BlockKind::ffn     ? ffn_[i]
                                              : others_[static_cast<std::size_t>(block.kind)];
  }
  BlockIndex operator[](BlockKind kind) const { return others_[static_cast<std::size_t>(kind)]; }
  BlockIndex attention(int i) const { return attention_[static_cast<std::size_t>(i)]; }
  BlockIndex ffn(int i) const { return ffn_[static_cast<std::size_t>(i)]; }
  BlockIndex draft(BlockKind kind) const { return drafts_[static_cast<std::size_t>(kind)]; }
  BlockIndex module(BlockKind kind) const { return module_[static_cast<std::size_t>(kind)]; }
  // To so many blocks later.
  void advance(std::size_t blocks) {
    const auto move = [&](auto& all) {
      for (BlockIndex& b : all) b = b + blocks;
    };
    move(attention_), move(ffn_), move(others_);
  }

 private:
  std::vector<BlockIndex> attention_, ffn_;
  std::array<BlockIndex, static_cast<std::size_t>(BlockKind::closing) + 1> others_{}, drafts_{}, module_{};
};

BlockIndex next_block(const Schedule& s) { return BlockIndex(static_cast<std::uint32_t>(s.blocks.size())); }

// Layers of one pair of kinds are run together: a step takes as long in any order of its layers.
void run_layers(ScheduleBuilder& b, const Case& c, const Plan& p, const StageLayers& s, const Placed& at) {
  if (!s.first && gathers_hand_off(c, p))
    b.run({at[s.takes_choice ? BlockKind::receive_choice : BlockKind::receive]});
  for (const LayerRun& run : s.kinds) {
    const FeedForward& ffn = c.model.ffns[static_cast<std::size_t>(run.ffn)];
    const bool attends = !c.model.attentions[static_cast<std::size_t>(run.attention)].none();
    if (!overlaps_batches(p) || !ffn.routed()) {
      if (attends && !ffn.none())
        b.run({at.attention(run.attention), at.ffn(run.ffn)}, run.count);
      else if (attends || !ffn.none())  // a layer may be one of both alone, or neither
        b.run({attends ? at.attention(run.attention) : at.ffn(run.ffn)}, run.count);
      continue;
    }
    b.run({at[BlockKind::opening]});
    b.run({at[BlockKind::middle]}, run.count - 1);
    b.run({at[BlockKind::closing]});
  }
}

// As RoundRoom, of the program: the runs of run_layers() and two more.
void reserve_program(Schedule& schedule, const Plan& p, const std::vector<StageLayers>& stages,
                     std::size_t rounds) {
  std::size_t runs = 0;
  for (const StageLayers& s : stages) runs += 2 + (overlaps_batches(p) ? 3 : 1) * s.kinds.size();
  schedule.program.reserve(runs * rounds + 1);
  schedule.order.reserve(2 * runs * rounds + 1);
}

// Chunks of a prefill, one round each; the last tokens of all requests are known after the last.
void build_rounds(Schedule& schedule, ScheduleBuilder& b, const Case& c, const Plan& p,
                  const std::vector<StageLayers>& stages) {
  std::vector<StepBlock> blocks;
  step_blocks(c, p, blocks);
  std::erase_if(blocks, [](StepBlock block) { return block.kind == BlockKind::head; });
  ChunkLayouts chunks(c, p);
  const std::size_t rounds = chunks.count();
  reserve_program(schedule, p, stages, rounds);
  RoundRoom room(schedule);
  Placed first(c.model);  // other rounds have the same blocks, so many behind those of the round before
  for (std::size_t r = 0; std::optional<PrefillLayout> layout = chunks.next(); ++r) {
    tell_work("chunks", r, rounds);
    room.before(r, rounds);
    Round round(b, c, p, std::move(layout));
    for (const StepBlock block : blocks) {
      if (r == 0) first[block] = next_block(schedule);
      round.add(block);
    }
    SL_CHECK(schedule.blocks.size() == (r + 1) * blocks.size(), "a round has all blocks, and each once");
  }
  const BlockIndex head = next_block(schedule);
  add_head(b, c, p);
  for (const StageLayers& s : stages) {
    Placed at = first;
    for (std::size_t r = 0; r < rounds; ++r, at.advance(blocks.size())) {
      check_cancelled();
      b.round(static_cast<int>(r));
      run_layers(b, c, p, s, at);
      if (s.last && r + 1 == rounds) b.run({head});
      if (p.pp > 1) b.run({at[s.hands_choice ? BlockKind::hand_off_choice : BlockKind::hand_off]});
    }
    b.end_stage(s.copies);
  }
}

// [P29] Behind the head that says which tokens are accepted: the first pass of the module is over all that
// were verified, and over all tokens of prompts, whose keys its cache lacks, the others over the token that
// the pass before drafted.
void run_drafts(ScheduleBuilder& b, const Case& c, const Plan& p, const Placed& at) {
  if (p[kDrafts] == 0) return;
  const DraftLayer layer = *draft_layer(c.model);
  const BlockIndex head = at.draft(BlockKind::head);
  const bool module = c.precision.drafts.has_value();
  if (accepts_states(c, p)) b.run({at[BlockKind::accept]});
  b.run({at[BlockKind::draft_input], module ? at.module(BlockKind::attention) : at.attention(layer.attention),
         module ? at.module(BlockKind::ffn) : at.ffn(layer.ffn), head});
  if (const int later = later_passes(c, p); later > 0)
    b.run({at.draft(BlockKind::draft_input), at.draft(BlockKind::attention), at.draft(BlockKind::ffn), head},
          later);
}

// Steps of one round.
void run_stages(ScheduleBuilder& b, const Case& c, const Plan& p, const std::vector<StageLayers>& stages,
                const Placed& at) {
  for (const StageLayers& s : stages) {
    run_layers(b, c, p, s, at);
    if (s.last) {
      b.run({at[BlockKind::head]});
      if (!b.flow()) run_drafts(b, c, p, at);
    }
    if (p.pp > 1) b.run({at[s.hands_choice ? BlockKind::hand_off_choice : BlockKind::hand_off]});
    b.end_stage(s.copies);
  }
}

void build_whole(Schedule& schedule, ScheduleBuilder& b, const Case& c, const Plan& p,
                 const std::vector<StageLayers>& stages) {
  Placed at(c.model);
  std::vector<StepBlock> blocks;
  step_blocks(c, p, blocks);
  // Data flow is of all ranks.
  if (has_views(p) && !b.flow()) {
    for (const StepBlock block : blocks) {
      at[block] = next_block(schedule);
      add_block(b, c, block_view(c, p, block), block);
    }
  } else {
    std::optional<PrefillLayout> layout;
    if (c.batch.prefills()) layout = step_layout(c, p);
    Round round(b, c, p, std::move(layout));
    for (const StepBlock block : blocks) {
      // Executors compute what is verified: what a module drafts is another function of other weights.
      const bool behind = block.kind == BlockKind::draft_input || block.kind == BlockKind::accept ||
                          (block.kind == BlockKind::attention && of_drafts_alone(c.model, block.index));
      if (b.flow() && (block.draft || block.module || behind)) continue;
      at[block] = next_block(schedule);
      round.add(block);
    }
  }
  run_stages(b, c, p, stages, at);
}

// What stages hold of a step, and how many of its microbatches are on their way.
const std::vector<StageLayers>& begin_step(Schedule& schedule, const Case& c, const Plan& p) {
  thread_local std::vector<StageLayers> stages;
  stage_layers(c, p.pp, stages);
  schedule.ranks_per_stage = p.ranks_per_stage();
  schedule.in_flight = p.in_flight;
  return stages;
}

}  // namespace

namespace {

// The layer of each half as its attention and its experts are lowered alone, laid out as the engine does.
void add_woven(ScheduleBuilder& b, const Case& c, const Plan& p, StepBlock block) {
  SL_CHECK(!b.flow(), "halves of a batch are played, not executed");
  thread_local std::array<Schedule, 2> layers;
  for (int which = 0; which < 2; ++which) {
    const Case half = half_of(c, p, which);
    Plan own = p;
    own.batch = 1;
    ScheduleBuilder of_half(layers[static_cast<std::size_t>(which)]);
    for (const StepBlock part : {StepBlock{BlockKind::attention, 0}, StepBlock{BlockKind::ffn, block.index}})
      add_block(of_half, half, block_view(half, own, part), part);
  }
  const WovenPart part = block.kind == BlockKind::opening  ? WovenPart::opening
                         : block.kind == BlockKind::middle ? WovenPart::middle
                                                           : WovenPart::closing;
  weave_halves(b, c, layers, part);
}

}  // namespace

void add_block(ScheduleBuilder& b, const Case& c, const Plan& v, StepBlock block) {
  if (is_woven(block.kind)) return add_woven(b, c, v, block);
  if (block.module) {
    block.module = false;
    return add_block(b, module_case(c), v, block);
  }
  if (block.draft && block.kind != BlockKind::head && has_prompts(c))
    return add_block(b, drafting_case(c), v, block);
  if (block.draft && block.kind == BlockKind::attention && takes_first_choice(c) &&
      !attention_of(c, block).index->shared)
    return add_block(b, choice_taking_case(c), v, block);
  const Count rows = decode_rows(c, v) + prefill_tokens(c, v);
  LayerFlow none;
  if (block.kind != BlockKind::attention || !c.batch.prefills())
    return add_block(b, c, v, block, std::span(&rows, 1), nullptr, none);
  const Attention& a = attention_of(c, block);
  ContextStep step(b, c, a, v, step_layout(c, v).within(a.reach, keeps_whole_caches(c, v)));
  add_block(b, c, v, block, std::span(&rows, 1), &step, none);
}

void build_step(Schedule& schedule, const Case& c, const Plan& p) {
  ScheduleBuilder b(schedule);
  b.host_starts(host_starts(c, p));
  const std::vector<StageLayers>& stages = begin_step(schedule, c, p);
  if (p.cp > 1) b.set_classes(p.cp, p.tpa);
  (p[kPrefillChunk] > 0 ? build_rounds : build_whole)(schedule, b, c, p, stages);
  if (p.cp > 1) b.fold_classes();
}

void build_program(Schedule& schedule, const Case& c, const Plan& p) {
  SL_CHECK(has_views(p), "a step of several rounds has blocks of each");
  ScheduleBuilder b(schedule);
  const std::vector<StageLayers>& stages = begin_step(schedule, c, p);
  thread_local std::vector<StepBlock> blocks;
  step_blocks(c, p, blocks);
  Placed at(c.model);
  for (const StepBlock block : blocks) {
    at[block] = next_block(schedule);
    schedule.blocks.push_back({"", OpIndex(0), OpIndex(0), is_handoff(block.kind)});
  }
  run_stages(b, c, p, stages, at);
}

}  // namespace shardline
