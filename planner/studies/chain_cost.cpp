#include "planner/studies/chain_cost.hpp"

#include <unordered_map>

#include "planner/layers/share.hpp"
#include "planner/layers/step.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Prices rest on the ops of one rank that prefills alone; what depends on the prefix is priced apart.
class Layers {
 public:
  Layers(const Case& c, int ranks, int tpa, std::shared_ptr<FabricCache> cache)
      : case_(c), cost_(case_.system, AllReduceRule::fastest, std::move(cache)), chain_(ranks > 1) {
    plan_.strategy = strategy_id("tensor");
    plan_.tpa = plan_.tpf = tpa;
    case_.batch = prefill_batch({{0, 1}});
    case_.placement = nullptr;
    const LocalHeads heads = prefill_heads(case_, plan_);
    row_bytes_ = heads.held_width() * bytes_per_element(c.precision.kv);
    if (!chain_) return;
    ScheduleBuilder b(schedule_);
    b.drive(Drive::eager);
    b.begin_block("send");
    b.exchange("pass prefix", Part::exchange, OpKind::send_recv, {ranks, tpa}, Bytes(0));
    b.end_block();
    b.begin_block("join");
    b.elementwise("concatenate KV", Part::exchange, OpKind::elementwise, {});
    b.drive(Drive::ring_step);
    b.elementwise("end of iteration", Part::exchange, OpKind::elementwise, {}, 0);
    b.end_block();
    send_ = schedule_.ops[0];
    join_ = schedule_.ops[1];
    turn_ = cost_.time(schedule_.ops[2]);
  }

  Seconds project(long long tokens) { return parts(tokens).project; }
  Seconds rest(long long tokens, long long prefix) {
    const Parts& p = parts(tokens);
    Op attend = p.attend;
    auto& a = std::get<AttendPrefillShape>(attend.shape);
    const Count c = tokens, s = prefix;
    a.pairs = a.all_pairs ? c * s : c * (s - c) + c * (c + 1) / 2;
    a.kv_rows = s;
    a.whole = tokens == prefix;
    // A rank of a chain has one interval of the sequence, one alone two.
    if (chain_) a.tiles = query_tiles(Tokens{{0, prefix - tokens, prefix}});
    const Seconds others = p.rest + expand(p, prefix);
    if (!a.all_pairs) return others + cost_.time(attend);
    Op scores = p.scores;
    std::get<ElementwiseShape>(scores.shape).bytes *= static_cast<double>(s) / static_cast<double>(c);
    return others + cost_.time(attend) + cost_.time(scores);
  }
  Seconds send(long long prefix) {
    if (send_.group.size == 1) return Seconds(0);
    std::get<ExchangeShape>(send_.shape).bytes = Bytes(static_cast<double>(prefix) * row_bytes_);
    return cost_.time(send_);
  }
  Seconds join(long long prefix) {
    const double n = static_cast<double>(prefix);
    const double width = row_bytes_ / bytes_per_element(case_.precision.kv);
    join_.shape = ElementwiseShape{prefix, count_of(width), Bytes(2 * n * row_bytes_)};
    return cost_.time(join_);
  }
  Seconds tail() { return parts(1).tail; }
  Seconds turn() const { return turn_; }

 private:
  struct Parts {
    Seconds project, rest, tail;
    Op attend, scores;  // scores: what rewrites those that lie in memory [C11]
    Op expand;          // MLA's latents to keys and values [C18]
    bool expands = false;
  };

  Seconds expand(const Parts& p, long long prefix) {
    if (!p.expands) return Seconds(0);
    Op op = p.expand;
    std::get<GemmShape>(op.shape).rows = prefix;
    return cost_.time(op);
  }

  const Parts& parts(long long tokens) {
    const auto [at, added] = known_.try_emplace(tokens);
    Parts& p = at->second;
    if (!added) return p;
    case_.batch = prefill_batch({{0, tokens}});
    build_step(schedule_, case_, plan_);
    const std::vector<double> runs = executions(schedule_);
    for (std::size_t i = 0; i < schedule_.blocks.size(); ++i)
      add(schedule_.blocks[i], runs[i] / case_.model.layers, p);
    return p;
  }

  // What the ops of a block cost of the mean layer, of which it is `share`. Ops before the attention of its
  // block are the projections; what makes that attention's keys and values of latents grows with the prefix.
  void add(const Block& block, double share, Parts& p) {
    OpIndex attend = block.first;
    while (attend < block.last && schedule_.ops[attend].kind != OpKind::attend_prefill) ++attend;
    const bool attends = attend < block.last;
    const OpIndex expand = attends ? expansion(attend) : block.last;
    for (OpIndex o = block.first; o < block.last; ++o) {
      const Op& op = schedule_.ops[o];
      if (op.kind == OpKind::launch) continue;
      if (o == attend) {
        p.attend = op;
        if (shape<AttendPrefillShape>(op).all_pairs) p.scores = schedule_.ops[++o];
      } else if (o == expand) {
        p.expand = op;
        p.expands = true;
      } else if (op.part == Part::head) {
        p.tail += cost_.time(op);
      } else {
        (attends && o < attend ? p.project : p.rest) += cost_.time(op) * share;
      }
    }
  }

  // The op that attention under MLA waits for: it expands the latents. Other attention is its own.
  OpIndex expansion(OpIndex attend) const {
    const Op& op = schedule_.ops[attend];
    if (shape<AttendPrefillShape>(op).family != AttentionFamily::mla) return attend;
    const auto before = schedule_.dependencies_of(op);
    SL_CHECK(before.size() == 1 && schedule_.ops[before.front()].kind == OpKind::gemm,
             "MLA's attention waits for what expands its latents");
    return before.front();
  }

  Case case_;
  Plan plan_;
  CostModel cost_;
  bool chain_;
  Schedule schedule_;
  double row_bytes_ = 0;
  Op send_, join_;
  Seconds turn_{0};
  std::unordered_map<long long, Parts> known_;
};

}  // namespace

ChainCost chain_cost(const Case& c, int ranks, int tpa, std::shared_ptr<FabricCache> cache) {
  const auto layers = std::make_shared<Layers>(c, ranks, tpa, std::move(cache));
  ChainCost out;
  out.layers = c.model.layers;
  out.tail = layers->tail();
  out.host = c.system.runtime.host_layer;
  out.turn = layers->turn();
  if (ranks > 1 && c.kernels.attention == AttentionKernel::eager)
    out.join = [layers](long long, long long prefix) { return layers->join(prefix); };
  out.project = [layers](long long tokens) { return layers->project(tokens); };
  out.rest = [layers](long long tokens, long long prefix) { return layers->rest(tokens, prefix); };
  out.send = [layers](long long prefix) { return layers->send(prefix); };
  return out;
}

}  // namespace shardline
