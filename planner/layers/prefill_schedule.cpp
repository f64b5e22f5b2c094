// Whole prefills: the layers of every stage, in one round or in chunks. planner/README.md [C4], [C17].
#include <cmath>

#include "planner/layers/context_step.hpp"
#include "planner/layers/stages.hpp"

namespace shardline {

namespace {

// The tokens of each round of a prefill in chunks, of the requests that are left.
std::vector<ContextLayout> chunk_layouts(const Case& c, const Plan& p) {
  std::vector<ContextLayout> rounds;
  std::vector<Request> all = batch_requests(c, p);
  for (;;) {
    std::vector<Request> now;
    std::vector<std::int32_t> names;  // of the requests of this round, among all
    for (std::size_t i = 0; i < all.size(); ++i) {
      Request& r = all[i];
      const long long fresh = std::min<long long>(r.fresh, p[kPrefillChunk]);
      if (fresh == 0) continue;
      now.push_back({r.cached, fresh});
      names.push_back(static_cast<std::int32_t>(i));
      r = {r.cached + fresh, r.fresh - fresh};
    }
    if (now.empty()) return rounds;
    ContextLayout& layout = rounds.emplace_back(context_layout(now, p.cp, nullptr));
    for (auto* lists : {&layout.fresh, &layout.queries, &layout.keys}) {
      for (Tokens& list : *lists) {
        for (Interval& i : list) i.request = names[static_cast<std::size_t>(i.request)];
      }
    }
  }
}

// The blocks of one round, and how a stage runs them.
class Round {
 public:
  Round(ScheduleBuilder& b, const Case& c, const Plan& p, ContextLayout layout, bool pad_queries,
        void (*attention)(ContextStep&))
      : b_(b), last_of_(layout.requests), pipelined_(p.pp > 1), sliced_(p.pp > 1 && p.tpa > 1) {
    b.drive(Drive::eager);
    ContextStep step(b, c, p, std::move(layout), pad_queries);
    layer_ = add_prefill_blocks(step, attention);
    if (!pipelined_) return;
    // Each TP rank hands on its slice of the activations, and a stage gathers those of its TP group.
    const auto slice = [&](int k) {
      return Shape(ExchangeShape{
          Bytes(step.rows()[static_cast<std::size_t>(k)] * c.model.hidden * step.act_bytes() / p.tpa)});
    };
    if (sliced_) {
      b.begin_block("receive");
      b.exchange("gather hand-off", Part::hop, OpKind::all_gather, {p.tpa, 1}, Bytes(0));
      step.vary(slice);
      receive_ = b.end_block();
    }
    b.begin_block("hand-off", true);
    b.exchange("hand-off", Part::hop, OpKind::send_recv, {p.pp, p.ranks_per_stage()}, Bytes(0));
    step.vary(slice);
    hand_off_ = b.end_block();
  }

  int requests() const { return last_of_; }
  void run(const StageLayers& s) const {
    if (sliced_ && !s.first) b_.run({receive_});
    b_.run({layer_.attend, layer_.dense}, s.dense);
    b_.run({layer_.attend, layer_.experts}, s.experts);
  }
  void hand_off() const {
    if (pipelined_) b_.run({hand_off_});
  }

 private:
  ScheduleBuilder& b_;
  int last_of_;
  bool pipelined_, sliced_;
  PrefillBlocks layer_;
  BlockIndex receive_ = 0, hand_off_ = 0;
};

// Only the last token of each sequence is turned into logits, by the TP group that holds it.
BlockIndex head_block(ScheduleBuilder& b, const Case& c, const Plan& p, double sequences) {
  b.begin_block("head");
  const ModuleType t = c.precision.of(Module::head);
  b.gemm("lm head", Part::head, t.weights, t.math,
         GemmShape{count_of(sequences), c.model.hidden, (c.model.vocab + p.tpa - 1) / p.tpa});
  if (p.cp > 1 && c.system.runtime.distribute > Seconds(0)) {
    b.drive(Drive::distribute);
    b.elementwise("hand out the document", Part::hop, OpKind::elementwise, {}, 0);
    b.drive(Drive::eager);
  }
  return b.end_block();
}

ScheduleBuilder prefill_builder(Schedule& schedule, const Plan& p) {
  ScheduleBuilder b(schedule);
  schedule.ranks_per_stage = p.ranks_per_stage();
  schedule.in_flight = p.in_flight;
  b.set_classes(p.cp, p.tpa);
  return b;
}

}  // namespace

void build_prefill(Schedule& schedule, const Case& c, const Plan& p, ContextLayout layout, bool pad_queries,
                   void (*attention)(ContextStep&)) {
  std::vector<StageLayers> stages;
  stage_layers(c.model, p.pp, stages);
  ScheduleBuilder b = prefill_builder(schedule, p);
  const Round round(b, c, p, std::move(layout), pad_queries, attention);
  const BlockIndex head = head_block(b, c, p, round.requests());
  for (const StageLayers& s : stages) {
    round.run(s);
    if (s.last) b.run({head});
    round.hand_off();
    b.end_stage(s.copies);
  }
  b.fold_classes();
}

void build_chunked_prefill(Schedule& schedule, const Case& c, const Plan& p,
                           void (*attention)(ContextStep&)) {
  std::vector<StageLayers> stages;
  stage_layers(c.model, p.pp, stages);
  ScheduleBuilder b = prefill_builder(schedule, p);
  std::vector<Round> rounds;
  for (ContextLayout& layout : chunk_layouts(c, p))
    rounds.emplace_back(b, c, p, std::move(layout), false, attention);
  const BlockIndex head = head_block(b, c, p, static_cast<double>(c.requests.size()) * p.batch);
  for (const StageLayers& s : stages) {
    for (std::size_t r = 0; r < rounds.size(); ++r) {
      b.round(static_cast<int>(r));
      rounds[r].run(s);
      if (s.last && r + 1 == rounds.size()) b.run({head});
      rounds[r].hand_off();
    }
    b.end_stage(s.copies);
  }
}

}  // namespace shardline
