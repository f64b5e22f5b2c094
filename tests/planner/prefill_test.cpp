// Prefill strategies: work is conserved, folding changes nothing, rings take the time of their closed form.
#include <gtest/gtest.h>

#include "hardware/timing/unfolder.hpp"
#include "planner/layers/context_step.hpp"
#include "planner/search/evaluate.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

Case prefill_case(const std::string& model, std::vector<Segment> requests,
                  const std::string& system = "h100-gtt") {
  Case c = decode_case(model, system, 0);
  c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::fp8, Dtype::fp8};
  c.batch = prefill_batch(std::move(requests));
  cut_layers(c, 4, has_dense(c.model) ? 1 : 0);
  return c;
}

template <class F>
void for_every_plan(const Case& c, const std::vector<int>& gpus, F f) {
  SearchSpace space;
  space.duplicate_kv = true;
  space.options = {{&kPrefillChunk, {700, 20'000}}};
  for (const Strategy* s : strategies()) {
    for (const int n : gpus) {
      std::vector<Plan> plans;
      s->enumerate(c, n, space, plans);
      for (const Plan& p : plans) {
        SCOPED_TRACE(to_string(p));
        f(*s, n, p);
      }
    }
  }
}

const std::vector<std::string> kModels{"deepseek-r1", "llama-3.1-405b", "qwen3-235b-a22b", "llama-7b"};
// Even, uneven with several sequences, and partial.
const std::vector<std::vector<Segment>> kWorkloads{
    {{0, 96'000}}, {{0, 70'001}, {5'000, 777}}, {{100'003, 2'000}}};

TEST(Prefill, EnumeratedPlansPassCheckAndUseTheGpus) {
  for (const std::string& model : kModels) {
    SCOPED_TRACE(model);
    const Case c = prefill_case(model, kWorkloads[0]);
    std::size_t count = 0;
    for_every_plan(c, {1, 6, 8, 64}, [&](const Strategy& s, int n, const Plan& p) {
      ++count;
      EXPECT_TRUE(s.prefills);
      EXPECT_EQ(p.gpus(), n);
      EXPECT_EQ(check_plan(c, p).value_or(""), "");
      EXPECT_EQ(parse_plan(to_string(p)), p);
    });
    EXPECT_GT(count, 40u);
  }
}

TEST(Prefill, AttentionOfAllRanksIsTheCausalMask) {
  for (const std::string& model : kModels) {
    for (const auto& requests : kWorkloads) {
      const Case c = prefill_case(model, requests);
      double wanted = 0;
      for (const Segment& r : requests) {
        const auto t = static_cast<double>(r.fresh);
        wanted += t * static_cast<double>(r.cached) + t * (t + 1) / 2;
      }
      Schedule s;
      for_every_plan(c, {1, 8, 24}, [&](const Strategy& strategy, int, const Plan& p) {
        if (!strategy.exact || c.model.attentions.front().q_heads % p.tpa != 0)
          return;  // heads are rounded up
        lower(s, c, p);
        double pairs = 0;
        for (const Block& b : s.blocks) {  // one attention block a chunk
          for (OpIndex i = b.first; i < b.last; ++i) {
            if (s.ops[i].kind != OpKind::attend_prefill) continue;
            for (int r = 0; r < s.ranks_per_stage; ++r) {
              const auto a = shape<AttendPrefillShape>(s.op_of_class(i, s.class_of(r)));
              pairs += static_cast<double>(a.pairs * a.q_heads);
            }
          }
        }
        // Every attention group has requests of its own.
        EXPECT_DOUBLE_EQ(pairs, p.dp * wanted * c.model.attentions.front().q_heads);
      });
    }
  }
}

// What has nobody to share with is not cut: 100 new tokens are one tile of 100 rows, not two of 50.
TEST(Prefill, OneRankTilesASequenceWhole) {
  for (const long long fresh : {1, 65, 100, 128, 129, 3000}) {
    const Case c = prefill_case("llama-3.1-8b", {{131'072, fresh}, {0, 64}});
    Plan p;
    p.strategy = strategy_id("tensor");
    Schedule s;
    lower(s, c, p);
    int seen = 0;
    for (const Op& op : s.ops) {
      if (op.kind != OpKind::attend_prefill) continue;
      const AttendPrefillShape& a = shape<AttendPrefillShape>(op);
      EXPECT_EQ(a.tiles, (fresh + kTileRows - 1) / kTileRows + 1) << fresh;
      EXPECT_EQ(a.intervals, 2);
      ++seen;
    }
    EXPECT_EQ(seen, 1);
  }
}

TEST(Prefill, FoldedEqualsUnfolded) {
  for (const std::string& model : kModels) {
    SCOPED_TRACE(model);
    for (const auto& requests : kWorkloads) {
      const Case c = prefill_case(model, requests);
      CostModel cost(c.system);
      PassScratch scratch(cost);
      Schedule schedule;
      for_every_plan(c, {1, 4, 12}, [&](const Strategy&, int n, const Plan& p) {
        lower(schedule, c, p);
        const PassTime folded = simulate_pass(schedule, cost, scratch);
        TaskGraph graph;
        lower_unfolded(schedule, cost, graph);
        const Timeline unfolded = simulate(graph, cost.machine(n));
        EXPECT_NEAR(unfolded.makespan() / folded.latency, 1, 1e-12);
        const Seconds bound = bound_pass(schedule, cost, scratch).latency;
        EXPECT_LE(bound, folded.latency);
        EXPECT_GT(bound, folded.latency * 0.5);
      });
    }
  }
}

// [H19] Where collectives share ports with a chain's sends, the replay of all layers is the engine's play of
// their graph, to the bit; where tasks share, it says so.
TEST(Prefill, H19AllLayersAreReplayedToTheBit) {
  int replayed = 0, shared = 0;
  // Slow links: messages outlast the collectives that follow.
  for (const auto& [model, system, tokens, slower] :
       {std::tuple{"deepseek-r1", "gb200-nvl72", 60'000LL, 1.0},
        std::tuple{"qwen3-235b-a22b", "h200-hgx", 9'000LL, 1.0},
        std::tuple{"llama-3.1-8b", "h100-hgx", 500LL, 1.0},
        std::tuple{"llama-3.1-8b", "h100-hgx", 60'000LL, 100.0}}) {
    Case c = prefill_case(model, {{0, tokens}}, system);
    if (slower > 1) c.system.calibration = {};
    c.system.fabric.nvlink.bandwidth = c.system.fabric.nvlink.bandwidth / slower;
    CostModel cost(c.system);
    PassScratch scratch(cost);
    Schedule s;
    for (const char* text :
         {"kv_runahead:cp=4,tpa=2,tpf=2,batch=1", "kv_runahead:pp=2,cp=3,tpa=2,tpf=2,batch=2",
          "kv_runahead:cp=8,ep=8,batch=1", "kv_runahead:pp=2,cp=8,ep=8,batch=1"}) {
      for (const bool even : {true, false}) {
        Plan p = parse_plan(text);
        if (even) {
          set_parts(p, Parts::even);
        } else {
          std::vector<long long> parts(static_cast<std::size_t>(p.cp), tokens / (2 * p.cp));
          parts.front() = tokens - (p.cp - 1) * parts.back();
          list_parts(p, parts);
        }
        if (check_plan(c, p)) continue;
        SCOPED_TRACE(std::string(model) + " " + to_string(p));
        lower(s, c, p);
        ASSERT_TRUE(plays_all_layers(s));
        TaskGraph graph;
        Unfolder unfolder(s, cost, graph, Players::classes);
        const std::vector<StageMarks> stages = unfold_stages(s, unfolder);
        const std::vector<TaskId> end = unfolder.barriers();
        const Timeline timeline = simulate(graph, cost.machine(p.pp * s.classes));
        const PassTime by_graph = pass_of(stages, end, timeline);
        const Seconds played = timeline.makespan();
        const std::optional<PassTime> all = replay_layers(s, cost, scratch);
        ++(all ? replayed : shared);
        if (all) {
          EXPECT_EQ(all->latency, played);
          EXPECT_EQ(all->latency, by_graph.latency);
          EXPECT_EQ(all->busiest, by_graph.busiest);
        }
        EXPECT_EQ(simulate_pass(s, cost, scratch).latency, played);
      }
    }
  }
  EXPECT_GT(replayed, 10);
  EXPECT_GT(shared, 0);
}

TEST(Prefill, EvenShardsFoldToOneRank) {
  const Case c = prefill_case("llama-3.1-405b", {{16 * 1000, 16 * 64}});
  Schedule s;
  for (const char* plan : {"ring_pass_kv:cp=8,tpa=8,tpf=8,batch=1", "ring_pass_q:cp=8,tpa=8,tpf=8,batch=1"}) {
    const Plan p = parse_plan(plan);
    lower(s, c, p);
    EXPECT_EQ(s.classes, 1);
  }
}

double time_of(CostModel& cost, const Schedule& s, const char* name) {
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (std::string(s.ops[i].name) == name) return cost.time(s.ops[i]).value;
  }
  return 0;
}

// PHYSICS of a uniform ring: A + (N-1) max(A, S) + N o, whichever of attention and message is longer.
TEST(Prefill, C5AUniformRingTakesTheTimeOfItsClosedForm) {
  for (const double bandwidth : {1e9, 10e9, 50e9, 400e9}) {
    Case c = prefill_case("llama-3.1-405b", {{32'000, 3'200}});
    c.system.fabric.network.bandwidth = BytesPerSecond(bandwidth);
    c.system.runtime.ring_step = Seconds(300e-6);
    c.system.device.sms = 0;
    CostModel cost(c.system);
    PassScratch scratch(cost);
    const Plan p = parse_plan("ring_pass_q:cp=4,tpa=8,tpf=8,batch=1");
    Schedule s;
    lower(s, c, p);
    lower_block(s, s.blocks[0], cost, scratch.graph);
    scratch.engine.run(scratch.graph, scratch.machine, scratch.timeline);
    double rest = 0;
    for (const char* name : {"norm", "qkv", "rope and KV append", "send partial outputs home", "merge",
                             "out projection", "attention all-reduce", "residual"})
      rest += time_of(cost, s, name);
    // The own queries see a triangle more than the others'.
    double first = 0, other = 0;
    for (const Op& op : s.ops) {
      if (!is_attention(op.kind)) continue;
      (first == 0 ? first : other) = cost.time(op).value;
    }
    const double message = time_of(cost, s, "pass Q"), step = time_of(cost, s, "end of iteration");
    EXPECT_NEAR(step, 300e-6, 1e-15);
    const double ring = std::max(first, message) + 2 * std::max(other, message) + other + 4 * step;
    EXPECT_NEAR(scratch.timeline.makespan().value / (ring + rest), 1, 1e-12) << bandwidth;
  }
}

double bytes_of(const Schedule& s, const char* name) {
  for (const Op& op : s.ops) {
    if (std::string(op.name) == name) return message_bytes(op).value;
  }
  return 0;
}

// Equation 1: messages are equal where the miss rate is 2 N_KV / N_H.
TEST(Prefill, QueryAndKvMessagesHaveTheRatioOfEquation1) {
  for (const long long fresh : {160LL, 16'000LL, 160'000LL}) {
    const Case c = prefill_case("llama-3.1-405b", {{160'000 - fresh, fresh}});
    Schedule kv, q;
    lower(kv, c, parse_plan("ring_pass_kv:cp=8,tpa=8,tpf=8,batch=1"));
    lower(q, c, parse_plan("ring_pass_q:cp=8,tpa=8,tpf=8,batch=1"));
    const double miss = static_cast<double>(fresh) / 160'000;
    EXPECT_NEAR(bytes_of(q, "pass Q") / bytes_of(kv, "pass KV") / (miss * 128 / (2 * 8)), 1, 1e-12);
    // Partial outputs and their log-sum-exps of everyone else's queries: 16 heads, BF16 and float32.
    const double home = 7 * static_cast<double>(fresh) / 8 * 16 * (128 * 2 + 4);
    EXPECT_EQ(bytes_of(q, "send partial outputs home"), home);
  }
}

TEST(Prefill, TimeRisesWithNewAndCachedTokensAndFallsWithFasterParts) {
  Case c = prefill_case("llama-3.1-405b", {{0, 0}});
  Case fast = c;
  fast.system.device.memory_bandwidth *= 1.5;
  fast.system.device.attention_efficiency = 0.9;
  fast.system.device.tile_efficiency = 0.9;
  fast.system.fabric.network.bandwidth *= 2.0;
  for (const char* plan : {"tensor:tpa=16,tpf=16,batch=1", "ring_pass_kv:cp=4,tpa=8,tpf=8,batch=1",
                           "ring_pass_q:cp=4,tpa=8,tpf=8,batch=1", "allgather_kv:cp=4,tpa=8,tpf=8,batch=1",
                           "ulysses:cp=4,tpa=8,tpf=8,batch=1"}) {
    SCOPED_TRACE(plan);
    const Plan p = parse_plan(plan);
    Seconds before;
    for (const long long fresh : {800LL, 8'000LL, 24'000LL, 80'000LL}) {
      Seconds less_cached;
      for (const long long cached : {0LL, 8'000LL, 80'000LL}) {
        c.batch = fast.batch = prefill_batch({{cached, fresh}});
        Evaluator a(c), b(fast);
        const Seconds t = a.simulate(p);
        EXPECT_GE(t, less_cached);
        EXPECT_LT(b.simulate(p), t);
        less_cached = t;
        if (cached == 0) {
          EXPECT_GT(t, before);
          before = t;
        }
      }
    }
  }
}

TEST(Prefill, MoreRanksHoldLessAndMessagesCarryTheCache) {
  const Case c = prefill_case("llama-3.1-405b", {{0, 131'072}});
  const MemoryUse two = memory_use(c, parse_plan("ring_pass_kv:cp=2,tpa=8,tpf=8,batch=1")),
                  eight = memory_use(c, parse_plan("ring_pass_kv:cp=8,tpa=8,tpf=8,batch=1"));
  EXPECT_EQ(two.weights, eight.weights);
  EXPECT_NEAR(two.kv / eight.kv, 4, 1e-12);
  EXPECT_NEAR(two.kv.value, 4 * 65'536.0 * 2 * 128 * 2, 1);  // layers x tokens x (K, V) of one head in BF16
  // 4-layer model: attention in BF16, FFN in FP8, two vocabulary tables over 8 GPUs.
  const double attention = 16384.0 * (16384 * 2 + 2048), ffn = 3 * 16384.0 * 53248, vocab = 128256.0 * 16384;
  EXPECT_NEAR(two.weights.value / ((4 * (2 * attention + ffn) + 4 * vocab) / 8), 1, 1e-12);
}

}  // namespace
}  // namespace shardline
