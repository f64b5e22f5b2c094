// Studies of a user's own questions, whose time once grew with the square of what was asked. Each says in its
// label whether it meets its goal, by the mean of its iterations.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <numeric>
#include <string_view>
#include <utility>

#include "models/model/catalog.hpp"
#include "planner/search/search.hpp"
#include "planner/studies/conversation.hpp"
#include "tests/bench/goals.hpp"

namespace shardline {
namespace {

const std::filesystem::path kRoot(SHARDLINE_SOURCE_DIR);

Case prefill(const char* model, const char* system, Precision precision, long long tokens) {
  Case c = make_case(load_model(model, kRoot / "models/catalog"),
                     load_system(system, kRoot / "hardware/catalog"), precision, 0, 16, Routing{});
  c.batch = prefill_batch({{0, tokens}});
  return c;
}

constexpr Precision kBf16{Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};
constexpr Precision kFp4{Dtype::fp4, Dtype::fp4, Dtype::fp4, Dtype::bf16, Dtype::fp4, {}, {}};
constexpr Precision kFp8{Dtype::fp8, Dtype::fp8, Dtype::fp8, Dtype::bf16, Dtype::fp8, {}, {}};

// Of GB200, with NICs as H100 nodes have them.
System eight_racks() {
  System s = load_system("gb200-nvl72", kRoot / "hardware/catalog");
  s.fabric.nodes = 8;
  s.fabric.network = load_system("h100-hgx", kRoot / "hardware/catalog").fabric.network;
  return s;
}

// Short questions and answers, turn after turn: linear in the turns.
void BM_Conversation(benchmark::State& state) {
  Study s;
  s.study = prefill("llama-3.1-405b", "h100-gtt", kBf16, 1);
  s.study.precision.ffn_weights = s.study.precision.ffn_math = Dtype::fp8;
  s.study.persistent_kv = true;
  s.study.kernels = {true, true};
  Conversation talk{4, 8, {}};
  for (long long i = 0; i < state.range(0); ++i)
    talk.turns.push_back({200 + i * 37 % 301, state.range(1) + i * 13 % 101});
  s.question = talk;
  // 2,000 turns in 0.2 s; paths through the fabric, found once, are most of a short one.
  Goal goal = Goal::seconds(state, 0.01 + 0.95e-4 * static_cast<double>(state.range(0)));
  goal.label(fmt::format("{} turns from {} output tokens", state.range(0), state.range(1)));
  for (auto _ : state) benchmark::DoNotOptimize(converse(s));
}
BENCHMARK(BM_Conversation)
    ->Args({250, 50})
    ->Args({2000, 50})
    ->Args({1, 1'000'000})
    ->Unit(benchmark::kMillisecond);

// Every strategy of prefills on every number of GPUs; KV-Runahead's partitions are searched for.
void BM_PrefillSweep(benchmark::State& state) {
  const Case c = state.range(0) == 0 ? prefill("llama-3.1-8b", "h100-hgx", kBf16, 128 << 10)
                                     : prefill("deepseek-r1", "gb200-nvl72", kFp8, 128 << 10);
  SearchOptions o;
  for (const Strategy* s : strategies()) {
    if (s->prefills) o.strategies.push_back(id_of(*s));
  }
  o.gpus.resize(static_cast<std::size_t>(state.range(1)));
  std::iota(o.gpus.begin(), o.gpus.end(), 1);
  o.batches = {1};
  o.x = Metric::gpus;
  o.y = Metric::time;
  SearchResult r;
  Goal goal = Goal::seconds(state, 8);  // of the process, all threads together
  goal.label(c.model.name);
  for (auto _ : state) r = search(c, o);
  state.counters["configurations"] = static_cast<double>(r.counts.configurations);
  state.counters["simulated"] = static_cast<double>(r.counts.simulated);
  state.counters["partitions"] = static_cast<double>(r.counts.partitions);
}
BENCHMARK(BM_PrefillSweep)
    ->ArgsProduct({{0, 1}, {16, 64}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

// Decode of Llama-405B at one million tokens by every strategy of the Helix paper, at batches of 1 to 256.
struct DecodeSweep {
  Case study;
  SearchOptions options;
  DecodeSweep(System system, int gpus)
      : study(make_case(load_model("llama-3.1-405b", kRoot / "models/catalog"), std::move(system), kFp4,
                        1 << 20, 16, Routing{})) {
    for (const Strategy* s : strategies()) {
      const std::string_view name = s->name;
      if (name == "tensor" || name == "pipeline" || name == "dp_ep" || name == "kv_shard" || name == "helix")
        options.strategies.push_back(id_of(*s));
    }
    options.gpus.resize(static_cast<std::size_t>(gpus));
    std::iota(options.gpus.begin(), options.gpus.end(), 1);
    options.batches.resize(256);
    std::iota(options.batches.begin(), options.batches.end(), 1);
  }
};

// On every number of GPUs of eight racks: groups lie across racks in all ways.
void BM_DecodeSweepOfRacks(benchmark::State& state) {
  DecodeSweep sweep(eight_racks(), 576);
  sweep.options.threads = 1;
  SearchResult r;
  const Goal goal = Goal::seconds(state, 2);
  for (auto _ : state) r = search(sweep.study, sweep.options);
  state.counters["configurations"] = static_cast<double>(r.counts.configurations);
}
BENCHMARK(BM_DecodeSweepOfRacks)->Unit(benchmark::kMillisecond);

// Two threads are to be 85 % efficient: the goal follows from what one takes here, just before.
void BM_TwoThreads(benchmark::State& state) {
  DecodeSweep sweep(eight_racks(), 576);
  constexpr double kEfficiency = 0.85;
  sweep.options.threads = 1;
  const auto begin = std::chrono::steady_clock::now();
  benchmark::DoNotOptimize(search(sweep.study, sweep.options));
  const double one = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  sweep.options.threads = 2;
  Goal goal = Goal::seconds(state, one / (2 * kEfficiency), Goal::Clock::wall);
  goal.label(fmt::format("one thread {:.0f} ms", one * 1e3));
  for (auto _ : state) benchmark::DoNotOptimize(search(sweep.study, sweep.options));
}
BENCHMARK(BM_TwoThreads)->UseRealTime()->Iterations(2)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shardline

BENCHMARK_MAIN();
