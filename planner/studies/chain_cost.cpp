#include "planner/studies/chain_cost.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "planner/layers/share.hpp"
#include "planner/layers/step.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

// What one rank does in a layer, by the length of its part. What depends on the prefix too is left to price.
struct LayerParts {
  Seconds project, rest, tail;
  PricedOp attend, scores;  // scores: what rewrites those that lie in memory [C11]
  PricedOp expand;          // MLA's latents to keys and values [C18]
  bool expands = false;
  double expert_share = 0;  // of layers whose experts the ranks of the chain share
};

}  // namespace

class KnownLayers {
 public:
  struct Key {
    int tpa, tpf, ep;
    long long sequences;
    Pricing how;
    bool shares_experts;
    auto operator<=>(const Key&) const = default;
  };
  using Lengths = std::unordered_map<long long, LayerParts>;

  Lengths& of(const Key& key) { return known_[key]; }

  /// Before something is added. References to parts end here, those to lengths stay.
  void make_room() {
    constexpr int kMost = 1 << 16;  // some 30 MB
    if (++count_ < kMost) return;
    for (auto& [key, lengths] : known_) lengths.clear();
    count_ = 0;
  }

 private:
  std::map<Key, Lengths> known_;
  int count_ = 0;
};

std::shared_ptr<KnownLayers> known_layers() { return std::make_shared<KnownLayers>(); }

namespace {

// How the ops of a chain are priced, and of how many sequences they are.
struct Prices {
  CostModel* cost = nullptr;           // null: one of its own
  std::shared_ptr<FabricCache> cache;  // of that
  Pricing how = Pricing::exact;
  long long sequences = 1;  // of equal length, in every op together
  Seconds experts{0};       // of a layer, where the ranks of the chain share them: of all tokens together
  std::shared_ptr<KnownLayers> known;  // by `cost`; null: of its own
};

// Prices rest on the ops of one rank that prefills alone; what depends on the prefix is priced apart.
class Layers {
 public:
  Layers(const Case& c, int ranks, const Plan& alone, Prices prices)
      : case_(c), plan_(alone), prices_(std::move(prices)) {
    if (!prices_.cost)
      prices_.cost = &own_.emplace(case_.system, AllReduceRule::fastest, std::move(prices_.cache));
    plan_.strategy = strategy_id("tensor");
    case_.batch = prefill_batch({{0, 1}});
    case_.placement = nullptr;
    if (!prices_.known) prices_.known = known_layers();
    known_ = &prices_.known->of(
        {alone.tpa, alone.tpf, alone.ep, prices_.sequences, prices_.how, prices_.experts > Seconds(0)});
    SL_CHECK(one_attention(case_.model) && !has_local_attention(case_.model),
             "prefixes cost every layer the same");
    const LocalHeads heads = prefill_heads(case_.model.attentions.front(), plan_);
    row_bytes_ = heads.held_width() * bytes_per_element(c.precision.kv);
    if (ranks == 1) return;
    ScheduleBuilder b(schedule_);
    b.drive(Drive::eager);
    b.begin_block("send");
    b.exchange("pass prefix", Part::exchange, OpKind::send_recv, {ranks, plan_.tpa}, Bytes(0));
    b.end_block();
    b.begin_block("join");
    b.elementwise("concatenate KV", Part::exchange, OpKind::elementwise, {});
    b.drive(Drive::ring_step);
    b.elementwise("end of iteration", Part::exchange, OpKind::elementwise, {}, 0);
    b.end_block();
    send_ = schedule_.ops[0];
    join_ = schedule_.ops[1];
    turn_ = time(schedule_.ops[2]);
  }

  Seconds project(long long tokens) { return parts(tokens).project; }
  Seconds rest(long long tokens, long long prefix) {
    const LayerParts& p = parts(tokens);
    PricedOp attend = p.attend;  // attention() may change it
    auto& a = std::get<AttendPrefillShape>(attend.shape);
    const Count c = tokens, s = prefix;
    a.pairs = (a.all_pairs ? c * s : c * (s - c) + c * (c + 1) / 2) * prices_.sequences;
    a.kv_rows = s * prices_.sequences;
    a.whole = tokens == prefix;
    const Seconds others = p.rest + prices_.experts * p.expert_share + expand(p, prefix);
    if (!a.all_pairs) return others + attention(attend);
    PricedOp scores = p.scores;
    std::get<ElementwiseShape>(scores.shape).bytes *= static_cast<double>(s) / static_cast<double>(c);
    return others + attention(attend) + time(scores);
  }
  Seconds send(long long prefix) {
    if (send_.group.size == 1) return Seconds(0);
    const double n = static_cast<double>(prefix * prices_.sequences);
    std::get<ExchangeShape>(send_.shape).bytes = Bytes(n * row_bytes_);
    return time(send_);
  }
  Seconds join(long long prefix) {
    const long long n = prefix * prices_.sequences;
    const double width = row_bytes_ / bytes_per_element(case_.precision.kv);
    join_.shape = ElementwiseShape{n, count_of(width), Bytes(2 * static_cast<double>(n) * row_bytes_)};
    return time(join_);
  }
  Seconds tail() { return parts(1).tail; }
  Seconds turn() const { return turn_; }

 private:
  Seconds expand(const LayerParts& p, long long prefix) {
    if (!p.expands) return Seconds(0);
    PricedOp op = p.expand;
    std::get<GemmShape>(op.shape).rows = prefix * prices_.sequences;
    return time(op);
  }

  Seconds time(const PricedOp& op) {
    return prices_.how == Pricing::floor ? prices_.cost->floor(op) : prices_.cost->time(op);
  }

  // A first rank has whole sequences, whose price may be another than that of a longer prefix; a floor is
  // below both.
  Seconds attention(PricedOp& op) {
    const Seconds own = time(op);
    if (prices_.how != Pricing::floor) return own;
    auto& a = std::get<AttendPrefillShape>(op.shape);
    a.whole = !a.whole;
    return std::min(own, time(op));
  }

  const LayerParts& parts(long long tokens) {
    if (const auto at = known_->find(tokens); at != known_->end()) return at->second;
    prices_.known->make_room();
    LayerParts& p = (*known_)[tokens];
    case_.batch =
        prefill_batch(std::vector<Segment>(static_cast<std::size_t>(prices_.sequences), {0, tokens}));
    build_step(schedule_, case_, plan_);
    const std::vector<double> runs = executions(schedule_);
    for (std::size_t i = 0; i < schedule_.blocks.size(); ++i)
      add(schedule_.blocks[i], runs[i] / case_.model.layers(), p);
    return p;
  }

  // What the ops of a block cost of the mean layer, of which it is `share`. Ops before the attention of its
  // block are the projections; what makes that attention's keys and values of latents grows with the prefix.
  void add(const Block& block, double share, LayerParts& p) {
    OpIndex attend = block.first;
    while (attend < block.last && schedule_.ops[attend].kind != OpKind::attend_prefill) ++attend;
    const bool attends = attend < block.last;
    const OpIndex expand = attends ? expansion(attend) : block.last;
    const bool shared = prices_.experts > Seconds(0) && has_experts_of(block);
    if (shared) p.expert_share += share;
    for (OpIndex o = block.first; o < block.last; ++o) {
      const Op& op = schedule_.ops[o];
      if (op.kind == OpKind::launch || (shared && of_experts(op))) continue;
      if (o == attend) {
        p.attend = op;
        if (shape<AttendPrefillShape>(op).all_pairs) p.scores = schedule_.ops[++o];
      } else if (o == expand) {
        p.expand = op;
        p.expands = true;
      } else if (op.part == Part::head) {
        p.tail += time(op);
      } else {
        (attends && o < attend ? p.project : p.rest) += time(op) * share;
      }
    }
  }

  bool has_experts_of(const Block& block) const {
    return std::any_of(schedule_.ops.begin() + block.first, schedule_.ops.begin() + block.last,
                       [](const Op& op) { return op.kind == OpKind::grouped_gemm; });
  }
  // What ranks that share their experts do otherwise.
  static bool of_experts(const Op& op) {
    return op.kind == OpKind::grouped_gemm || op.within == Within::experts || op.kind == OpKind::all_reduce;
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
  Prices prices_;
  std::optional<CostModel> own_;
  Schedule schedule_;
  double row_bytes_ = 0;
  Op send_, join_;
  Seconds turn_{0};
  KnownLayers::Lengths* known_ = nullptr;  // of `prices_.known`
};

// Whether the chain's ranks share the experts.
bool shares_experts(const Case& c, const Plan& plan) {
  return has_experts(c.model) && plan.ep * plan.tpf > plan.tpa;
}

// The matrix products of the experts of one layer. How the tokens are dealt out does not matter to them.
Seconds expert_time(const Case& c, const Plan& plan, CostModel& cost, Pricing how) {
  Plan even = plan;
  set_parts(even, Parts::even);
  Schedule s;
  lower(s, c, even);
  Seconds sum;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].kind != OpKind::grouped_gemm) continue;
    const Op op = s.op_of_class(i, 0);
    sum += how == Pricing::floor ? cost.floor(op) : cost.time(op);
  }
  return sum;
}

ChainCost chain_cost(const Case& c, int ranks, const Plan& alone, Prices prices) {
  const auto layers = std::make_shared<Layers>(c, ranks, alone, std::move(prices));
  ChainCost out;
  out.layers = c.model.layers();
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

// What the closed form ignores of a plan is taken off.
ChainCost bounded(const Case& c, const Plan& plan, ChainCost cost) {
  // Each stage has links and hosts of its own, so that no one of them passes all layers.
  if (plan.pp > 1) {
    cost.send = [](long long) { return Seconds(0); };
    cost.host = Seconds(0);
  }
  // The last rank's last layer may be of a cheaper kind: a layer less covers what it is below the mean.
  if (!one_ffn(c.model)) --cost.layers;
  return cost;
}

}  // namespace

ChainCost chain_cost(const Case& c, int ranks, int tpa, std::shared_ptr<FabricCache> cache) {
  Plan alone;
  alone.tpa = alone.tpf = tpa;
  Prices prices;
  prices.cache = std::move(cache);
  return chain_cost(c, ranks, alone, std::move(prices));
}

ChainCost least_chain_cost(const Case& c, const Plan& plan, CostModel& cost, Pricing how,
                           std::shared_ptr<KnownLayers> known) {
  Prices prices;
  prices.cost = &cost;
  prices.known = std::move(known);
  prices.how = how;
  prices.sequences = requests_in(c.batch.prefill) * plan.batch;
  Plan alone;
  alone.tpa = alone.tpf = plan.tpa;
  if (shares_experts(c, plan)) {
    prices.experts = expert_time(c, plan, cost, how);
  } else {
    alone.ep = plan.ep;
    alone.tpf = plan.tpf;
  }
  return bounded(c, plan, chain_cost(c, plan.cp, alone, std::move(prices)));
}

ChainCosts chain_costs(const Case& c, const Plan& plan, CostModel& cost, AllReduceRule rule,
                       std::shared_ptr<FabricCache> cache, std::shared_ptr<KnownLayers> known) {
  if (rule != AllReduceRule::fastest)
    return {chain_cost(c, plan.cp, plan.tpa, std::move(cache)),
            least_chain_cost(c, plan, cost, Pricing::exact, std::move(known))};
  Plan alone;
  alone.tpa = alone.tpf = plan.tpa;
  Prices prices;
  prices.cost = &cost;
  prices.known = known;
  const ChainCost closed = chain_cost(c, plan.cp, alone, prices);
  const bool alike = requests_in(c.batch.prefill) == 1 && plan.batch == 1 &&
                     (!has_experts(c.model) || (plan.ep == 1 && plan.tpf == plan.tpa));
  return {closed, alike ? bounded(c, plan, closed)
                        : least_chain_cost(c, plan, cost, Pricing::exact, std::move(known))};
}

}  // namespace shardline
