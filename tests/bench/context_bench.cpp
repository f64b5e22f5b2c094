// Speed of context-parallel prefill: one long prefill folded, by rank classes and with every rank and layer;
// the grid of the thresholds command; the CPU executor.
#include <benchmark/benchmark.h>

#include <filesystem>

#include "models/model/catalog.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/studies/chain_cost.hpp"
#include "planner/studies/ring_timing.hpp"
#include "tests/bench/goals.hpp"

namespace shardline {
namespace {

const std::filesystem::path kRoot(SHARDLINE_SOURCE_DIR);

Case prefill(long long fresh) {
  const Precision p{Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::fp8, Dtype::fp8};
  Case c = make_case(load_model("llama-3.1-405b", kRoot / "models/catalog"),
                     load_system("h100-gtt", kRoot / "hardware/catalog"), p, 0, 16, Routing{});
  c.batch = prefill_batch({{0, fresh}});
  return c;
}

const char* const kPlan = "ring_pass_kv:cp=16,tpa=8,tpf=8,batch=1";

// 1 Mi tokens divide evenly over 32 chunks; one more makes 16 classes of ranks.
void BM_Prefill128Gpus(benchmark::State& state) {
  const Case c = prefill((1 << 20) + state.range(0));
  const Plan p = parse_plan(kPlan);
  Evaluator e(c);
  Goal goal = Goal::seconds(state, 50e-3);
  for (auto _ : state) benchmark::DoNotOptimize(e.simulate(p));
  goal.label(e.schedule().classes == 1 ? "folded to one rank" : "one rank of each of 16 classes");
}
BENCHMARK(BM_Prefill128Gpus)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

// 128 ranks x 126 layers, task by task.
void BM_Prefill128GpusUnfolded(benchmark::State& state) {
  const Case c = prefill((1 << 20) + state.range(0));
  const Plan p = parse_plan(kPlan);
  Evaluator e(c);
  e.simulate(p);
  const Machine machine = e.cost().machine(128);
  Engine engine;
  TaskGraph graph;
  Timeline timeline;
  const Goal goal = Goal::seconds(state, 10);
  for (auto _ : state) {
    lower_unfolded(e.schedule(), e.cost(), graph);
    engine.run(graph, machine, timeline);
    benchmark::DoNotOptimize(timeline.makespan());
  }
  state.counters["tasks"] = static_cast<double>(graph.size());
}
BENCHMARK(BM_Prefill128GpusUnfolded)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

// Both variants at 10 000 requests on CP4, 2 threads.
void BM_ThresholdsGrid(benchmark::State& state) {
  Case c = prefill(1);
  c.persistent_kv = true;
  const RingTimer time = ring_timer(c, 8, 2);
  const std::vector<TokenSplit> splits =
      test_points({256, 128 << 10, 0.002, 1 << 20}, static_cast<int>(state.range(0)), 10'000, {});
  const Goal goal = Goal::seconds(state, 5, Goal::Clock::wall);
  for (auto _ : state) benchmark::DoNotOptimize(time(static_cast<int>(state.range(0)), splits));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(splits.size()));
}
BENCHMARK(BM_ThresholdsGrid)->Arg(4)->Arg(16)->Unit(benchmark::kMillisecond)->UseRealTime();

// A searched and proven partition of 128Ki tokens over a chain; prices already known, and not.
void BM_Partition(benchmark::State& state) {
  const Case c = prefill(1);
  const int ranks = static_cast<int>(state.range(0));
  ChainCost cost = chain_cost(c, ranks, 1);
  SearchedPartition s;
  Goal goal = Goal::seconds(state, 10e-3);
  for (auto _ : state) {
    if (state.range(1) == 0) cost = chain_cost(c, ranks, 1);
    s = best_partition(cost, {128 << 10, ranks, 128});
  }
  goal.label(s.best.proven ? "proven" : "found");
  state.counters["gap"] = s.best.ttft / s.bound.ttft - 1;
  state.counters["chains"] = static_cast<double>(s.best.evaluations);
}
BENCHMARK(BM_Partition)->ArgsProduct({{8, 64}, {0, 1}})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shardline
