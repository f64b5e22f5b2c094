// Configurations per second: closed-form bounds and event simulations apart, and whole frontiers.
#include <benchmark/benchmark.h>

#include <iterator>
#include <numeric>

#include "models/model/catalog.hpp"
#include "planner/search/block_times.hpp"
#include "planner/search/search.hpp"
#include "tests/bench/goals.hpp"

namespace shardline {
namespace {

const std::filesystem::path kRoot(SHARDLINE_SOURCE_DIR);

Case study(const char* model) {
  return make_case(load_model(model, kRoot / "models/catalog"),
                   load_system("gb200-nvl72", kRoot / "hardware/catalog"), Precision{}, 1'000'000, 16,
                   Routing{});
}

// Every kind of attention is in one of them: GQA, MLA, gated DeltaNet, blocks that an index chooses (MSA),
// Mamba-2, compressed rows (CSA, HCA), keys that an index chooses (DSA), a choice that layers share
// (IndexShare), KDA, windows with sinks, chunks, one tensor for keys and values.
constexpr const char* kModels[] = {
    "llama-3.1-405b",  "deepseek-r1",   "qwen3.5-397b-a17b", "minimax-m3", "nemotron-3-super-120b-a12b",
    "deepseek-v4-pro", "deepseek-v3.2", "glm-5.2",           "kimi-k3",    "gpt-oss-120b",
    "llama-4-scout",   "gemma-4-31b"};
constexpr int kLastModel = static_cast<int>(std::size(kModels)) - 1;

const char* name_of(int model) { return kModels[model]; }

// Every plan of the space, so that caches see the mix a sweep sees.
std::vector<Plan> plans(const Case& c) {
  std::vector<Plan> out;
  SearchSpace space;
  for (const Strategy* s : strategies()) {
    if (s->context_parallel()) continue;  // one rank per class: measured in context_bench.cpp
    for (int gpus = 1; gpus <= 64; ++gpus) s->enumerate(c, gpus, space, out);
  }
  return out;
}

std::vector<int> batches(int count) {
  std::vector<int> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 1);
  return out;
}

// As a sweep times them: the 64 batches of a plan together, blocks shared by plans. Each round over the plans
// begins with none known.
template <class Times>
void rounds(benchmark::State& state, double goal_per_second, Times times) {
  const Case c = study(name_of(static_cast<int>(state.range(0))));
  const std::vector<Plan> all = plans(c);
  const std::vector<int> listed = batches(64);
  Evaluator e(c);
  std::size_t timed = 0;
  for (const Plan& p : all) timed += listed.size() - static_cast<std::size_t>(least_batch(c, p)) + 1;
  Goal goal = Goal::rate(state, goal_per_second, static_cast<double>(timed));
  goal.label(c.model.name);
  for (auto _ : state) {
    BlockTimes blocks(e, std::make_shared<KnownBlocks>(listed));
    for (const Plan& p : all) {
      blocks.start(p);
      benchmark::DoNotOptimize(times(blocks, static_cast<std::size_t>(least_batch(c, p)) - 1, listed.size()));
    }
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(timed) * state.iterations());
}

void BM_EventSimulation(benchmark::State& state) {
  rounds(state, state.range(0) < 2 ? 500e3 : 300e3,  // of layers with states, or an index
         [](BlockTimes& b, std::size_t first, std::size_t last) { return b.simulate(first, last).back(); });
}
BENCHMARK(BM_EventSimulation)->DenseRange(0, kLastModel)->Unit(benchmark::kMillisecond);

void BM_Bound(benchmark::State& state) {
  rounds(state, 1e6,
         [](BlockTimes& b, std::size_t first, std::size_t last) { return b.bounds(first, last).back(); });
}
BENCHMARK(BM_Bound)->DenseRange(0, kLastModel)->Unit(benchmark::kMillisecond);

// One plan of one batch after the other, nothing shared but prices.
template <class Time>
void one_by_one(benchmark::State& state, Time time) {
  const Case c = study(name_of(static_cast<int>(state.range(0))));
  std::vector<Plan> all = plans(c);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i].batch = std::max(least_batch(c, all[i]), 1 + static_cast<int>(i * 7 % 64));
  Evaluator e(c);
  for (const Plan& p : all) time(e, p);  // fills the cache of group paths
  std::size_t i = 0;
  state.SetLabel(c.model.name);
  for (auto _ : state) {
    benchmark::DoNotOptimize(time(e, all[i]));
    i = i + 1 == all.size() ? 0 : i + 1;
  }
  state.SetItemsProcessed(state.iterations());
}

void BM_EventSimulationAlone(benchmark::State& state) {
  one_by_one(state, [](Evaluator& e, const Plan& p) { return e.simulate(p); });
}
BENCHMARK(BM_EventSimulationAlone)->Arg(0)->Arg(1);

void BM_BoundAlone(benchmark::State& state) {
  one_by_one(state, [](Evaluator& e, const Plan& p) { return e.bound(p); });
}
BENCHMARK(BM_BoundAlone)->Arg(0)->Arg(1);

// N = 1..64, PP dividing N, every batch 1..256, ceiling sharding, HOP-B off and on, both models.
void BM_Frontier(benchmark::State& state) {
  const Case c[2] = {study("llama-3.1-405b"), study("deepseek-r1")};
  SearchOptions o;
  for (const Strategy* s : strategies()) {
    if (s->decodes && !s->context_parallel()) o.strategies.push_back(id_of(*s));
  }
  o.gpus.resize(64);
  std::iota(o.gpus.begin(), o.gpus.end(), 1);
  o.batches = batches(static_cast<int>(state.range(1)));
  o.prune = state.range(0) != 0;
  std::uint64_t configurations = 0, simulated = 0, bounds = 0, feasible = 0;
  Goal goal = Goal::seconds(state, 2, Goal::Clock::wall);  // both models, on two cores
  goal.label(o.prune ? "pruned" : "exhaustive");
  for (auto _ : state) {
    configurations = simulated = bounds = feasible = 0;
    for (const Case& each : c) {
      const SearchResult r = search(each, o);
      configurations += r.counts.configurations;
      feasible += r.counts.configurations - r.counts.infeasible;
      simulated += r.counts.simulated;
      bounds += r.counts.bounds;
    }
  }
  state.counters["configurations"] = static_cast<double>(configurations);
  state.counters["feasible"] = static_cast<double>(feasible);
  state.counters["simulated"] = static_cast<double>(simulated);
  state.counters["bounds"] = static_cast<double>(bounds);
  state.SetItemsProcessed(static_cast<std::int64_t>(configurations) * state.iterations());
}
BENCHMARK(BM_Frontier)
    ->ArgsProduct({{1, 0}, {64, 256, 1024}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

}  // namespace
}  // namespace shardline

BENCHMARK_MAIN();
