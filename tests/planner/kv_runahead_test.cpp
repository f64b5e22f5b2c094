// KV-Runahead and TSP (arXiv 2405.05329): traffic and work by counting, closed forms of the chain against the
// engine, uneven partitions, and hosts that launch slower than their GPUs compute.
#include <gtest/gtest.h>

#include <random>

#include "planner/layers/context_step.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

Case chain_case(long long context, const std::string& model = "llama-7b") {
  Case c = decode_case(model, "a100-sxm", 0);
  c.system.calibration = {};
  c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};
  c.batch = prefill_batch({{0, context}});
  return c;
}

Plan plan_of(const char* text) { return parse_plan(text); }

Schedule lowered(const Case& c, const Plan& p) {
  EXPECT_EQ(check_plan(c, p).value_or(""), "");
  Schedule s;
  lower(s, c, p);
  return s;
}

// Sum over ranks of the bytes that leave them in ops of a name, one layer.
double sent(const Schedule& s, const std::string& name) {
  double bytes = 0;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].name != name) continue;
    for (int r = 0; r < s.ranks_per_stage; ++r) {
      const Op op = s.op_of_class(i, s.class_of(r));
      bytes += message_bytes(op).value * (op.kind == OpKind::all_gather ? op.group.size - 1 : 1);
    }
  }
  return bytes;
}

std::vector<double> pairs(const Schedule& s) {
  std::vector<double> out;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].kind != OpKind::attend_prefill) continue;
    for (int k = 0; k < s.ranks_per_stage; ++k)
      out.push_back(static_cast<double>(shape<AttendPrefillShape>(s.op_of_class(i, s.class_of(k))).pairs));
  }
  return out;
}

// Section 4.1, Figures 4 and 5: rows of K and of V are counted apart; a rank's dot products are its
// rectangle.
TEST(KvRunahead, WorkedExampleOfThePaper) {
  Case c = chain_case(9);
  c.kernels.attention = AttentionKernel::eager;
  const double entry = 32 * 128 * 2;  // bytes of one row of K
  const Schedule gathered = lowered(c, plan_of("tsp:cp=3,batch=1"));
  EXPECT_EQ(sent(gathered, "gather KV") / entry, 36);
  EXPECT_EQ(pairs(gathered), (std::vector<double>{27, 27, 27}));
  const Schedule chain = lowered(c, plan_of("kv_runahead:cp=3,batch=1,partition=4/3/2"));
  EXPECT_EQ(sent(chain, "send prefix") / entry, 22);
  EXPECT_EQ(pairs(chain), (std::vector<double>{16, 21, 18}));
  c.kernels.attention = AttentionKernel::flash;
  EXPECT_EQ(pairs(lowered(c, plan_of("tsp:cp=3,batch=1"))), (std::vector<double>{6, 15, 24}));
  EXPECT_EQ(pairs(lowered(c, plan_of("kv_runahead:cp=3,batch=1,partition=4/3/2"))),
            (std::vector<double>{10, 18, 17}));
}

// Equations 5 and 7: (p-1)C against sum_{i<p} S_i, which is (p-1)C/2 for equal parts.
TEST(KvRunahead, TrafficOfBothStrategies) {
  std::mt19937_64 random(5);
  for (const char* model : {"llama-7b", "llama-3.1-8b", "falcon-7b"}) {
    for (const int p : {2, 3, 4, 8}) {
      const long long context = 24 * (1 + static_cast<long long>(random() % 400));
      Case c = chain_case(context, model);
      const double row = prefill_heads(c.model.attentions.front(), Plan{}).kv_width() * 2;
      Plan plan;
      plan.cp = p;
      plan.strategy = strategy_id("tsp");
      const auto all = static_cast<double>(context);
      EXPECT_DOUBLE_EQ(sent(lowered(c, plan), "gather KV") / row, (p - 1) * all);
      plan.strategy = strategy_id("kv_runahead");
      EXPECT_DOUBLE_EQ(sent(lowered(c, plan), "send prefix") / row, (p - 1) * all / 2);
      double wanted = 0;
      long long sum = 0;
      std::vector<long long> parts;
      for (int k = 0; k < p; ++k) {
        const long long left = context - sum - (p - 1 - k);
        parts.push_back(k + 1 == p ? left
                                   : 1 + static_cast<long long>(random() % static_cast<std::uint64_t>(left)));
        sum += parts.back();
        if (k + 1 < p) wanted += static_cast<double>(sum);
      }
      list_parts(plan, parts);
      EXPECT_DOUBLE_EQ(sent(lowered(c, plan), "send prefix") / row, wanted);
      // Three equal sequences carry three times as much.
      c.batch = prefill_batch({{0, context}, {0, context}, {0, context}});
      EXPECT_DOUBLE_EQ(sent(lowered(c, plan), "send prefix") / row, 3 * wanted);
    }
  }
}

// Equation 3: with equal work, no traffic and linear parts alone left out, no partition of a rectangle is
// faster than (1/p + 1/p^2)/2 of one GPU.
TEST(KvRunahead, NoPartitionBeatsTheLowerBound) {
  std::mt19937_64 random(6);
  for (const int p : {2, 3, 4, 8}) {
    const long long context = 48 * p;
    Case c = chain_case(context);
    c.kernels.attention = AttentionKernel::eager;
    double least = 1e300;
    for (int trial = 0; trial < 100; ++trial) {
      std::vector<long long> parts(static_cast<std::size_t>(p), 1);
      for (long long left = context - p; left > 0; --left) ++parts[random() % parts.size()];
      if (trial == 0) parts.assign(parts.size(), context / p);
      Plan plan;
      plan.strategy = strategy_id("kv_runahead");
      plan.cp = p;
      list_parts(plan, parts);
      const std::vector<double> of_ranks = pairs(lowered(c, plan));
      least = std::min(least, *std::max_element(of_ranks.begin(), of_ranks.end()));
      const double n = static_cast<double>(context);
      // The sum of rectangles is n^2 (1 + 1/p) / 2 at least, so that the largest is 1/p of that at least.
      EXPECT_GE(least, n * n / 2 * (1.0 / p + 1.0 / (p * p)) * (1 - 1e-12));
    }
  }
}

// ---- closed forms, with costs chosen freely

struct Chain {
  std::vector<double> q, x, r;  // before the own KV is ready, on the link, the rest; per rank
};

Chain random_chain(std::mt19937_64& random, std::size_t ranks) {
  Chain c;
  for (std::size_t i = 0; i < ranks; ++i) {
    c.q.push_back(static_cast<double>(random() % 40));
    c.x.push_back(static_cast<double>(random() % 60));
    c.r.push_back(static_cast<double>(random() % 50));
  }
  return c;
}

// A schedule with the shape of a KV-Runahead layer; all costs are host times of `Drive::ring_step` and the
// like.
class ChainSchedule {
 public:
  ChainSchedule(const Chain& c, int layers) {
    const auto p = static_cast<int>(c.q.size());
    system_.device.name = "unit";
    system_.device.memory = Bytes(1e12);
    system_.device.memory_bandwidth = BytesPerSecond(1);
    system_.device.peak[static_cast<std::size_t>(Dtype::bf16)] = FlopsPerSecond(1);
    system_.device.exponentials = FlopsPerSecond(1);
    system_.fabric.nodes = 1;
    system_.fabric.gpus_per_node = p;
    system_.fabric.nvlink = {1, BytesPerSecond(1), Seconds(0), 1.0, false};
    ScheduleBuilder b(schedule);
    schedule.ranks_per_stage = p;
    b.set_classes(p, 1);
    b.begin_block("layer");
    const auto work = [&](const char* name, const std::vector<double>& times) {
      const OpIndex op = b.elementwise(name, Part::ffn, OpKind::elementwise, {}, 0);
      std::vector<Shape> shapes;
      for (const double t : times) shapes.emplace_back(ElementwiseShape{1, 1, Bytes(t)});
      b.vary(shapes);
      return op;
    };
    const OpIndex own = work("q", c.q);
    std::vector<OpIndex> joined{own};
    for (int k = 0; k + 1 < p; ++k) {
      const OpIndex ready[2] = {own, joined.back()};
      b.after(ready);
      joined.push_back(b.hop("send", Part::exchange, {p, 1}, k));
      std::vector<Shape> shapes;
      for (int i = 0; i < p; ++i) {
        ExchangeShape e;
        if (i == k) e.bytes = Bytes(c.x[static_cast<std::size_t>(k)]);
        shapes.emplace_back(e);
      }
      b.vary(shapes);
    }
    b.after(joined);
    work("r", c.r);
    const BlockIndex block = b.end_block();
    b.run({block}, layers);
    b.end_stage();
  }

  /// Ends of all ranks' last layers, every layer and rank played.
  std::vector<double> ends() {
    CostModel cost(system_);
    TaskGraph graph;
    lower_unfolded(schedule, cost, graph);
    const Timeline t = simulate(graph, cost.machine(schedule.ranks_per_stage));
    std::vector<double> out(static_cast<std::size_t>(schedule.ranks_per_stage), 0);
    for (TaskId i = 0; i < graph.size(); ++i) {
      if (graph.tag(i) == kJoinTag || is_hop(schedule.ops[graph.tag(i) % schedule.ops.size()])) continue;
      double& end = out[graph.tag(i) / schedule.ops.size()];
      end = std::max(end, t.spans[i].end.value);
    }
    return out;
  }
  double folded() {
    CostModel cost(system_);
    PassScratch scratch(cost);
    return simulate_pass(schedule, cost, scratch).latency.value;
  }
  double bound() {
    CostModel cost(system_);
    PassScratch scratch(cost);
    return bound_pass(schedule, cost, scratch).latency.value;
  }

  Schedule schedule;

 private:
  System system_;
};

// Rank k of a chain with FIFO links ends at
// r_k + max over i <= k of [q_i + sum_{i<=j<k} x_j + (L-1) max over i <= j <= k of (q_j + r_j, x_j if j <
// k)].
double closed_form(const Chain& c, std::size_t k, int layers) {
  double last = 0;
  for (std::size_t i = 0; i <= k; ++i) {
    double on_links = 0, period = 0;
    for (std::size_t j = i; j <= k; ++j) {
      period = std::max(period, c.q[j] + c.r[j]);
      if (j == k) break;
      on_links += c.x[j];
      period = std::max(period, c.x[j]);
    }
    last = std::max(last, c.q[i] + on_links + (layers - 1) * period);
  }
  return last + c.r[k];
}

TEST(KvRunahead, C10AChainTakesTheTimeOfItsClosedForm) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE(trial);
    const std::size_t ranks = 2 + random() % 5;
    const int layers = 1 + static_cast<int>(random() % 12);
    const Chain c = random_chain(random, ranks);
    ChainSchedule s(c, layers);
    const std::vector<double> ends = s.ends();
    double latest = 0;
    for (std::size_t k = 0; k < ranks; ++k) {
      EXPECT_DOUBLE_EQ(ends[k], closed_form(c, k, layers)) << "rank " << k;
      latest = std::max(latest, ends[k]);
    }
    EXPECT_NEAR(s.folded(), latest, 1e-12 * latest);
    EXPECT_LE(s.bound(), latest);
  }
}

// Many layers of a chain whose periods are equal reach a steady state, whose layers are not played.
TEST(KvRunahead, LongUniformChainsAreExact) {
  std::mt19937_64 random(8);
  for (int trial = 0; trial < 50; ++trial) {
    Chain c = random_chain(random, 4);
    for (std::size_t i = 0; i < 4; ++i) c.r[i] = 100 - c.q[i];
    ChainSchedule s(c, 200);
    double latest = 0;
    for (std::size_t k = 0; k < 4; ++k) latest = std::max(latest, closed_form(c, k, 200));
    EXPECT_NEAR(s.folded() / latest, 1, 1e-12);
  }
}

// ---- plans

TEST(KvRunahead, PartitionsParseBackAndAreChecked) {
  const Plan p = plan_of("kv_runahead:cp=4,tpa=2,tpf=2,batch=3,partition=3584/2611/2150/1895");
  EXPECT_EQ(listed_parts(p), (std::vector<long long>{3584, 2611, 2150, 1895}));
  EXPECT_EQ(to_string(p), "kv_runahead:cp=4,tpa=2,tpf=2,batch=3,partition=3584/2611/2150/1895");
  EXPECT_EQ(parse_plan(to_string(p)), p);
  const Case c = chain_case(10240);
  EXPECT_EQ(check_plan(c, p).value_or(""), "");
  for (const auto& [text, reason] :
       {std::pair{"kv_runahead:cp=3,batch=1,partition=5120/5120", "partition has 2 parts but cp is 3"},
        std::pair{"kv_runahead:cp=2,batch=1,partition=5120/5121",
                  "partition sums to 10241 tokens but a sequence has 10240"},
        std::pair{"tsp:cp=2,batch=1,partition=5120/5120", "partition is for kv_runahead, not tsp"},
        std::pair{"ring_pass_kv:cp=2,batch=1,partition=5120/5120",
                  "partition is for kv_runahead, not ring_pass_kv"}})
    EXPECT_EQ(refusal(c, text), reason);
  Case other = c;
  other.batch = prefill_batch({{0, 10240}, {0, 10241}});
  EXPECT_EQ(check_plan(other, p).value_or(""), "partition sums to 10240 tokens but a sequence has 10241");
  other.batch = prefill_batch({{1, 10240}});
  EXPECT_EQ(check_plan(other, p).value_or(""),
            "kv_runahead needs an empty cache: a rank sees the keys of the ranks before it alone");
  for (const char* bad : {"partition=", "partition=1//2", "partition=1/0", "partition=1/-2", "partition=1/2/",
                          "partition=a", "partition=1/99999999999"})
    EXPECT_THROW(plan_of((std::string("kv_runahead:cp=2,batch=1,") + bad).c_str()), UserError) << bad;
}

TEST(KvRunahead, UnevenPartitionsFoldExactly) {
  std::mt19937_64 random(9);
  for (const char* system : {"a100-sxm", "h100-gtt"}) {
    for (const bool eager : {false, true}) {
      for (const double host : {0.0, 1e-3, 50e-3}) {
        for (const int tpa : {1, 2}) {
          Case c = chain_case(20000);
          c.system = catalog_system(system);
          c.system.calibration = {};
          c.system.runtime.host_layer = Seconds(host);
          cut_layers(c, 6, 6);
          c.kernels.attention = eager ? AttentionKernel::eager : AttentionKernel::flash;
          c.kernels.score_traffic = Bytes(eager ? 27 : 0);
          Plan p;
          p.strategy = strategy_id("kv_runahead");
          p.cp = 3;
          p.tpa = p.tpf = tpa;
          p.batch = 2;
          const auto first = static_cast<long long>(1 + random() % 15000);
          list_parts(p, {first, 4000, 20000 - 4000 - first});
          SCOPED_TRACE(to_string(p));
          Evaluator e(c);
          const Seconds folded = e.simulate(p);
          TaskGraph graph;
          lower_unfolded(e.schedule(), e.cost(), graph);
          EXPECT_NEAR(simulate(graph, e.cost().machine(p.gpus())).makespan() / folded, 1, 1e-12);
          EXPECT_LE(e.bound(p), folded);
        }
      }
    }
  }
}

// A host that launches more slowly than the GPU computes sets the pace, from the first layer to the last; a
// faster one costs nothing but its start.
TEST(KvRunahead, TheHostRunsAheadOfItsGpu) {
  for (const char* text : {"tensor:batch=1", "tsp:cp=4,batch=1", "kv_runahead:cp=4,batch=1"}) {
    SCOPED_TRACE(text);
    Case c = chain_case(4096);
    const Plan p = plan_of(text);
    const Seconds without = Evaluator(c).simulate(p);
    double before = without.value;
    for (const double factor : {0.05, 0.5, 0.9, 1.5, 4.0}) {
      const double per_layer = without.value * factor / c.model.layers();
      c.system.runtime.host_layer = Seconds(per_layer);
      const double t = Evaluator(c).simulate(p).value;
      EXPECT_GE(t * (1 + 1e-12), std::max(without.value, per_layer * c.model.layers()));
      EXPECT_GE(t * (1 + 1e-12), before);
      before = t;
      if (factor < 0.5) {
        EXPECT_LE(t, without.value + per_layer);
      }
      // Beside its own time: the last kernel of the last layer, and the head.
      if (factor > 1.2) {
        EXPECT_LE(t, per_layer * c.model.layers() + 0.02 * without.value);
      }
    }
  }
}

TEST(KvRunahead, TheSendHoldsUpNeitherAttentionNorTheNextLayer) {
  Case c = chain_case(8192);
  Plan p = plan_of("kv_runahead:cp=2,batch=1,partition=8191/1");
  Evaluator fast(c);
  // Nearly all work is the first rank's; its link may be as slow as its layers without any loss.
  const double alone = fast.simulate(p).value;
  c.system.fabric.nvlink.bandwidth = BytesPerSecond(40e9);
  EXPECT_LE(Evaluator(c).simulate(p).value, alone * 1.05);
  c.system.fabric.nvlink.bandwidth = BytesPerSecond(1e9);
  EXPECT_GE(Evaluator(c).simulate(p).value, 32 * 8191 * 16384.0 / 1e9);
}

TEST(KvRunahead, EagerScoresTakeMemoryAndTime) {
  Case c = chain_case(8192);
  const Plan p = plan_of("tensor:batch=1");
  const Seconds flash = Evaluator(c).simulate(p);
  const Bytes least = memory_use(c, p).activations;
  c.kernels.attention = AttentionKernel::eager;
  EXPECT_GT(Evaluator(c).simulate(p), flash);
  EXPECT_NEAR((memory_use(c, p).activations - least).value, 32 * 8192.0 * 8192 * 6, 1);
  const Seconds without = Evaluator(c).simulate(p);
  c.kernels.score_traffic = Bytes(27);
  const double traffic = 27.0 * 32 * 8192 * 8192 * 32 / c.system.device.achieved_memory().value;
  EXPECT_NEAR((Evaluator(c).simulate(p) - without).value / traffic, 1, 1e-6);
}

}  // namespace
}  // namespace shardline
