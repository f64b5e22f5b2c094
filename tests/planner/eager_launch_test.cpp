// Kernels that an engine's host starts one by one [P18].
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "planner/layers/step.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/search/block_times.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/error.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

Case study(const std::string& engine, const std::string& model = "llama-3.1-8b",
           const std::string& system = "h100-hgx") {
  return parse_scenario("q.yaml",
                        "name: q\nsystem: " + system + "\nmodels: [" + model +
                            "]\ncontext: 4Ki tokens\nprecision: {weights: bf16, kv: bf16, math: bf16}\n"
                            "strategies: [tensor]\ngpus: [1, 2]\nbatch: [1, 8]\nengine: " +
                            engine + "\n",
                        shipped_catalogs())
      .studies[0]
      .study;
}

// What the host starts in a pass, in kernels.
double started(const Case& c, const Plan& plan) {
  Evaluator e(c);
  e.simulate(plan);
  const Schedule& s = e.schedule();
  const std::vector<double> runs = executions(s);
  double kernels = 0;
  for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
    for (OpIndex i = s.blocks[b].first; i < s.blocks[b].last; ++i) {
      if (s.ops[i].drive == Drive::host_kernel) kernels += runs[b] * s.ops[i].launches;
    }
  }
  return kernels;
}

Seconds timed(Case c, const Plan& plan, Seconds launch) {
  c.system.host.launch = launch;
  return Evaluator(c).simulate(plan);
}

TEST(EagerLaunch, StepsThatAnyGraphHoldsStartNothing) {
  Case c = study("vllm");
  const Plan largest = parse_plan("tensor:tpa=2,tpf=2,batch=512");
  EXPECT_EQ(host_starts(c, largest), HostStarts::graph);
  EXPECT_EQ(timed(c, largest, Seconds(1)).value, timed(c, largest, Seconds(0)).value);
  const Plan above = parse_plan("tensor:tpa=2,tpf=2,batch=513");
  EXPECT_EQ(host_starts(c, above), HostStarts::kernels);
  EXPECT_GT(timed(c, above, Seconds(1e-3)), timed(c, above, Seconds(0)));
  c.engine = nullptr;  // bare kernels have no host
  EXPECT_EQ(host_starts(c, above), HostStarts::graph);
}

TEST(EagerLaunch, AStepLastsAsLongAsTheSlowerOfHostAndGpu) {
  Case c = study("trtllm");
  c.batch = prefill_batch({{0, 1000}});
  const Plan plan = parse_plan("tensor:tpa=2,tpf=2,batch=1");
  const double kernels = started(c, plan);
  EXPECT_GT(kernels, 32 * 10);
  EXPECT_LT(kernels, 32 * 20 + 10);
  const double gpu = timed(c, plan, Seconds(0)).value;
  double before = gpu;
  for (const double factor : {0.05, 0.5, 0.9, 1.5, 4.0}) {
    const Seconds launch(gpu * factor / kernels);
    const double t = timed(c, plan, launch).value;
    EXPECT_GE(t * (1 + 1e-12), std::max(before, gpu * factor));
    // Of a host that keeps up only the first kernels are waited for; of one that does not, what follows the
    // last launch.
    if (factor < 0.5) {
      EXPECT_LE(t, gpu * 1.01);
    }
    if (factor > 1.2) {
      EXPECT_LE(t, gpu * factor + 0.1 * gpu);
    }
    before = t;
  }
}

// [H19] Layers are played until kernels wait for no host or every layer waits alike; the rest follows. All
// layers of all classes in one graph say the same, for hosts that lead, that keep up in some layers, and that
// lag.
TEST(EagerLaunch, H19LayersLeftOutAreThoseOfTheWholeGraph) {
  int led = 0, lagged = 0;
  for (const auto& [model, system, plan, decodes] :
       {std::tuple{"llama-3.1-8b", "h100-hgx", "tensor:tpa=2,tpf=2,batch=3", true},
        std::tuple{"llama-3.1-8b", "h100-hgx", "pipeline:pp=4,batch=2", true},
        std::tuple{"gpt-oss-120b", "h100-hgx", "tensor:tpa=4,ep=2,tpf=2,batch=3", true},
        std::tuple{"deepseek-r1", "h200-hgx", "tensor:tpa=8,ep=8,batch=2", true},
        std::tuple{"llama-3.1-405b", "h200-hgx", "ring_pass_kv:cp=4,tpa=2,tpf=2,batch=1", false}}) {
    Case c = study("trtllm", model, system);
    c.batch = prefill_batch({{700, 900}, {0, 77}});
    const Plan p = parse_plan(plan);
    // Long first layers give a host a lead that it loses in layers which its kernels pass faster.
    if (std::string(model) == "deepseek-r1") {
      for (FeedForward& f : c.model.ffns) f.inner *= f.dense() ? 64 : 1;
    }
    if (decodes) c.batch.decode = decode_batch(5000).decode;
    SCOPED_TRACE(std::string(model) + " " + plan);
    const Seconds gpu = timed(c, p, Seconds(0));
    const double kernels = started(c, p);
    for (const double factor : {0.02, 0.3, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.2, 3.0}) {
      c.system.host.launch = Seconds(gpu.value * factor / kernels);
      CostModel cost(c.system);
      PassScratch scratch(cost);
      Schedule s;
      lower(s, c, p);
      ASSERT_TRUE(s.detached);
      ASSERT_FALSE(plays_all_layers(s));
      const PassTime pass = simulate_pass(s, cost, scratch);
      TaskGraph graph;
      lower_unfolded(s, cost, graph, Players::classes);
      const Timeline whole = simulate(graph, cost.machine(p.pp * s.classes));
      EXPECT_NEAR(whole.makespan() / pass.latency, 1, 1e-12) << factor;
      (pass.latency.value > gpu.value * 1.1 ? lagged : led) += 1;
    }
  }
  EXPECT_GT(led, 20);
  EXPECT_GT(lagged, 5);
}

TEST(EagerLaunch, PiecesStartAttentionAndAGraphInEachLayer) {
  Case c = study("vllm");
  c.batch = prefill_batch({{0, 512}});
  const Plan plan = parse_plan("tensor:tpa=2,tpf=2,batch=1");
  EXPECT_EQ(host_starts(c, plan), HostStarts::pieces);
  EXPECT_EQ(started(c, plan), 32 * 2);
  c.batch = prefill_batch({{0, 513}});
  EXPECT_EQ(host_starts(c, plan), HostStarts::kernels);
  EXPECT_GT(started(c, plan), 32 * 10);
  c.batch = decode_batch(4096);
  c.batch.prefill = {{0, 511, 1}};  // 512 tokens with the one that decodes
  EXPECT_EQ(host_starts(c, plan), HostStarts::pieces);
  EXPECT_EQ(started(c, plan), 32 * 3);  // two attentions
}

TEST(EagerLaunch, WhereSglangHasNoPieces) {
  Case c = study("sglang");
  c.batch = prefill_batch({{0, 8192}});
  EXPECT_EQ(host_starts(c, parse_plan("tensor:tpa=2,tpf=2,batch=1")), HostStarts::pieces);
  EXPECT_EQ(host_starts(c, parse_plan("pipeline:pp=2,batch=1")), HostStarts::kernels);
  c.disaggregated = true;
  EXPECT_EQ(host_starts(c, parse_plan("tensor:tpa=2,tpf=2,batch=1")), HostStarts::kernels);
  Case r1 = study("sglang", "deepseek-r1", "h200-hgx");
  const Plan tensor = parse_plan("tensor:tpa=8,tpf=8,batch=1"),
             groups = parse_plan("dp_ep:dp=8,ep=8,batch=1");
  r1.batch = prefill_batch({{0, 2048}});
  EXPECT_EQ(host_starts(r1, tensor), HostStarts::pieces);
  EXPECT_EQ(host_starts(r1, groups), HostStarts::kernels);
  r1.batch = prefill_batch({{0, 2049}});
  EXPECT_EQ(host_starts(r1, tensor), HostStarts::kernels);
}

TEST(EagerLaunch, HalvesOfABatchRunFromAWholeGraphOrFromNone) {
  Case c = study("vllm", "deepseek-r1", "h200-hgx");
  const Plan whole = parse_plan("dp_ep:dp=8,ep=8,batch=2"),
             halves = parse_plan("dp_ep:dp=8,ep=8,batch=2,overlap=two_batch");
  EXPECT_EQ(host_starts(c, halves), HostStarts::graph);
  EXPECT_EQ(started(c, halves), 0);
  c.batch = prefill_batch({{0, 200}});
  EXPECT_EQ(host_starts(c, whole), HostStarts::pieces);
  EXPECT_EQ(host_starts(c, halves), HostStarts::kernels);
  // Both halves are started: products, messages and attention, each twice.
  EXPECT_GT(started(c, halves), 1.6 * 58 * 16);
}

TEST(EagerLaunch, TheBoundHoldsAndIsTheHostsWhereItIsTheSlower) {
  Case c = study("trtllm", "deepseek-r1", "h200-hgx");
  c.precision.kv = Dtype::fp8;
  for (const char* text :
       {"tensor:tpa=8,tpf=8,batch=1", "dp_ep:dp=8,ep=8,batch=1", "pipeline:pp=4,tpa=2,ep=2,batch=1"}) {
    SCOPED_TRACE(text);
    const Plan plan = parse_plan(text);
    for (const long long tokens : {64LL, 1024LL, 8192LL}) {
      c.batch = prefill_batch({{0, tokens}});
      const double kernels = started(c, plan);
      for (const double launch : {1e-6, 1e-5, 1e-4, 1e-3}) {
        Case tried = c;
        tried.system.host.launch = Seconds(launch);
        Evaluator e(tried);
        const double bound = e.bound(plan).value, time = e.simulate(plan).value;
        EXPECT_LE(bound, time * (1 + 1e-12));
        EXPECT_GE(bound * (1 + 1e-9), kernels * launch);
      }
    }
  }
}

// A block of one kernel (the head of a prompt) waits for its start and for the layers before it.
TEST(EagerLaunch, ABlockOfOneKernelFollowsTheOneBefore) {
  for (const char* text : {"tensor:batch=1", "tensor:tpa=2,tpf=2,batch=1"}) {
    SCOPED_TRACE(text);
    Case c = study("vllm");
    c.batch = prefill_batch({{0, 8192}});
    const Plan plan = parse_plan(text);
    ASSERT_EQ(host_starts(c, plan), HostStarts::kernels);
    Case graph = c;
    graph.engine = nullptr;
    graph.system.host = {};
    c.system.host = {Seconds(0), Seconds(0), Seconds(0), Seconds(1e-9)};
    Evaluator eager(c), replayed(graph);
    EXPECT_NEAR(eager.simulate(plan) / replayed.simulate(plan), 1, 0.02);
    EXPECT_NEAR(eager.bound(plan) / eager.simulate(plan), 1, 1e-6);
  }
}

// Of ranks of several classes, chains, rings and shared caches, too.
TEST(EagerLaunch, EveryStrategyWaitsForItsHost) {
  std::set<std::string> seen;
  for (const char* model : {"llama-3.1-8b", "deepseek-r1"}) {
    Case c = study("trtllm", model, "h200-hgx");
    for (const Batch& batch :
         {decode_batch(4096), prefill_batch({{0, 3000}, {100, 600}}), Batch{{{4095, 1, 3}}, {{0, 900}}}}) {
      c.batch = batch;
      for (const Strategy* s : strategies()) {
        if (!s->takes(c)) continue;
        std::vector<Plan> plans;
        s->enumerate(c, 8, SearchSpace{}, plans);
        const std::size_t step = std::max<std::size_t>(1, plans.size() / 4);
        for (std::size_t i = 0; i < plans.size(); i += step) {
          Plan p = plans[i];
          p.batch *= batch.prefills() ? 1 : 2100;  // beyond the largest graph
          if (check_plan(c, p)) continue;
          SCOPED_TRACE(std::string(model) + " " + to_string(p));
          ASSERT_EQ(host_starts(c, p), HostStarts::kernels);
          const double kernels = started(c, p);
          EXPECT_GT(kernels, 5 * c.model.layers());
          const Seconds without = timed(c, p, Seconds(0));
          Case slow = c;
          slow.system.host.launch = Seconds(1e-3);
          Evaluator e(slow);
          const double bound = e.bound(p).value, time = e.simulate(p).value;
          EXPECT_LE(bound, time * (1 + 1e-12));
          EXPECT_GE(time * (1 + 1e-12), without.value);
          EXPECT_GE(bound * (1 + 1e-9) * p.pp, kernels * 1e-3 / p.pp);  // of the busiest stage at least
          seen.insert(s->name);
        }
      }
    }
  }
  EXPECT_GE(seen.size(), 15u);
}

TEST(EagerLaunch, BlocksOfGraphsAndStepsWithoutAreTheEvaluatorsToTheBit) {
  Case c = study("vllm");
  c.system.host.launch = Seconds(1e-3);
  const std::vector<int> batches{1, 256, 512, 513, 600, 1024};
  Evaluator direct(c), other(c);
  BlockTimes times(other, std::make_shared<KnownBlocks>(batches));
  Plan p = parse_plan("tensor:tpa=2,tpf=2,batch=1");
  times.start(p);
  const std::vector<double> bounds(times.bounds(0, 6).begin(), times.bounds(0, 6).end());
  const std::vector<double> simulated(times.simulate(0, 6).begin(), times.simulate(0, 6).end());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    p.batch = batches[i];
    EXPECT_EQ(bounds[i], direct.bound(p).value) << p.batch;
    EXPECT_EQ(simulated[i], direct.simulate(p).value) << p.batch;
    EXPECT_EQ(times.simulate(i).value, direct.simulate(p).value) << p.batch;
  }
}

TEST(EagerLaunch, TheBreakdownCallsItHost) {
  Case c = study("trtllm");
  c.batch = prefill_batch({{0, 1000}});
  const Plan plan = parse_plan("tensor:tpa=2,tpf=2,batch=1");
  c.system.host.launch = Seconds(1e-3);
  Evaluator e(c);
  const Breakdown b = break_down(e, plan);
  EXPECT_GT(b.parts[static_cast<std::size_t>(Part::host)], b.time * 0.9);
  Seconds sum;
  for (const Seconds part : b.parts) sum += part;
  EXPECT_NEAR(sum.value, b.time.value, 1e-12);
}

TEST(EagerLaunch, KeysOfAProfile) {
  const auto said = [](const std::string& eager) -> std::string {
    try {
      parse_engine("x.yaml", "name: x\neager: {" + eager + "}\n");
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  const std::string launch = "launch: {ampere: 1 us, hopper: 1 us, blackwell: 1 us}";
  EXPECT_THAT(said(launch), HasSubstr("why"));
  EXPECT_THAT(said("why: w"), HasSubstr("launch"));
  EXPECT_THAT(said(launch + ", why: w, above: 3"), HasSubstr("above"));
  EXPECT_THAT(said(launch + ", why: w, pieces: {mla: 2Ki tokens}"), HasSubstr("tokens"));
  EXPECT_THAT(said(launch + ", why: w, pieces: {tokens: 512 tokens, moe: true}"), HasSubstr("moe"));
  EXPECT_THAT(said("launch: {hopper: 1 us}, why: w"), HasSubstr("blackwell"));
}

}  // namespace
}  // namespace shardline
