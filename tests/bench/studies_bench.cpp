// Studies of a user's own questions, whose time once grew with the square of what was asked. Each says in its
// label whether it meets its goal, by the mean of its iterations.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <numeric>

#include "models/model/catalog.hpp"
#include "planner/search/search.hpp"
#include "planner/studies/conversation.hpp"

namespace shardline {
namespace {

const std::filesystem::path kRoot(SHARDLINE_SOURCE_DIR);

// Of this process, all threads together.
double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void judge(benchmark::State& state, const std::string& what, double goal, double begun) {
  const double taken = (cpu_seconds() - begun) / static_cast<double>(state.iterations());
  state.SetLabel(
      fmt::format("{}; goal {:g} CPU-s: {} ({:.3g} s)", what, goal, taken <= goal ? "met" : "MISSED", taken));
}

Case prefill(const char* model, const char* system, Precision precision, long long tokens) {
  Case c = make_case(load_model(model, kRoot / "models/catalog"),
                     load_system(system, kRoot / "hardware/catalog"), precision, 0, 16, Routing{});
  c.batch = prefill_batch({{0, tokens}});
  return c;
}

constexpr Precision kBf16{Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};
constexpr Precision kFp8{Dtype::fp8, Dtype::fp8, Dtype::fp8, Dtype::bf16, Dtype::fp8, {}, {}};

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
  const double begun = cpu_seconds();
  for (auto _ : state) benchmark::DoNotOptimize(converse(s));
  // 2,000 turns in 0.2 s; paths through the fabric, found once, are most of a short one.
  const double goal = 0.01 + 0.95e-4 * static_cast<double>(state.range(0));
  judge(state, fmt::format("{} turns from {} output tokens", state.range(0), state.range(1)), goal, begun);
}
BENCHMARK(BM_Conversation)
    ->Args({250, 50})
    ->Args({2000, 50})
    ->Args({1, 1'000'000})
    ->Unit(benchmark::kMillisecond);

// Every strategy of prefills on every number of GPUs; KV-Runahead's partitions are searched for.
void BM_PrefillSweep(benchmark::State& state) {  // goal: to 64 GPUs in 8 CPU-seconds
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
  const double begun = cpu_seconds();
  for (auto _ : state) r = search(c, o);
  state.counters["configurations"] = static_cast<double>(r.counts.configurations);
  state.counters["simulated"] = static_cast<double>(r.counts.simulated);
  state.counters["partitions"] = static_cast<double>(r.counts.partitions);
  judge(state, c.model.name, 8, begun);
}
BENCHMARK(BM_PrefillSweep)
    ->ArgsProduct({{0, 1}, {16, 64}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

}  // namespace
}  // namespace shardline

BENCHMARK_MAIN();
