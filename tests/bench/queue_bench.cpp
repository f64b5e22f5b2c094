// The event calendar's speed, and that of other structures: one core, nothing allocated in the timed loop.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/base/random.hpp"
#include "sim/queue/arrivals.hpp"
#include "sim/queue/calendar.hpp"
#include "sim/queue/quantiles.hpp"
#include "sim/queue/station.hpp"
#include "tests/bench/goals.hpp"
#include "tests/bench/queue_rivals.hpp"

namespace shardline {
namespace {

/// EventCalendar with the interface of its rivals.
class Tree {
 public:
  std::uint32_t add() { return calendar_.add(); }
  void set(std::uint32_t timer, double time) { calendar_.set(timer, Seconds(time)); }
  std::pair<double, std::uint32_t> pop() {
    const EventCalendar::Event event = calendar_.pop();
    return {event.time.value, event.timer};
  }

 private:
  EventCalendar calendar_;
};

constexpr std::size_t kDrawn = std::size_t{1} << 16;  // the remainder by it costs nothing

enum Gaps : std::int64_t { kExponential, kUniform, kTwoScales };

/// Drawn beforehand: a logarithm costs as much as an event.
std::vector<double> gaps(std::int64_t kind) {
  std::vector<double> out(kDrawn);
  RandomStream stream(1, "gaps");
  for (double& gap : out) {
    const double u = stream.unit();
    gap = kind == kExponential  ? exponential(u)
          : kind == kUniform    ? 2 * u
          : stream.unit() < 0.9 ? 0.1 * u
                                : 18 * u;
  }
  return out;
}

/// The hold model: take the first of n events out, set its timer again. An item is both.
template <class Structure>
void hold(benchmark::State& state) {
  const std::vector<double> gap = gaps(state.range(1));
  Structure structure;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    structure.set(structure.add(), gap[static_cast<std::size_t>(i) % kDrawn]);
  }
  std::size_t at = 0;
  const auto turn = [&] {
    const auto [time, timer] = structure.pop();
    structure.set(timer, time + gap[at++ % kDrawn]);
  };
  for (std::int64_t i = 0; i < 4 * state.range(0); ++i) turn();
  for (auto _ : state) turn();
  state.SetItemsProcessed(state.iterations());
}

/// Most timers wait long (pauses of a minute), eight are due every 10 ms and again when taken out: users and
/// servers.
template <class Structure>
void servers(benchmark::State& state) {
  const std::vector<double> gap = gaps(kExponential);
  Structure structure;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    structure.set(structure.add(), (i < 8 ? 0.01 : 60) * gap[static_cast<std::size_t>(i) % kDrawn]);
  }
  std::size_t at = 0;
  const auto turn = [&] {
    const auto [time, timer] = structure.pop();
    structure.set(timer, time + (timer < 8 ? 0.01 : 60) * gap[at++ % kDrawn]);
  };
  for (std::int64_t i = 0; i < 4 * state.range(0); ++i) turn();
  for (auto _ : state) turn();
  state.SetItemsProcessed(state.iterations());
}

/// As a running batch does: a timer that was set is set anew, 1 time in 8 the first event is taken out.
template <class Structure>
void move(benchmark::State& state) {
  const std::vector<double> gap = gaps(kExponential);
  Structure structure;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    structure.set(structure.add(), gap[static_cast<std::size_t>(i) % kDrawn]);
  }
  RandomStream stream(2, "moves");
  std::vector<std::uint32_t> moved(kDrawn);
  for (std::uint32_t& timer : moved)
    timer = static_cast<std::uint32_t>(stream.below(static_cast<std::uint64_t>(state.range(0))));
  std::size_t at = 0;
  double now = 0;
  for (auto _ : state) {
    if (at % 8 == 0) {
      const auto [time, timer] = structure.pop();
      now = time;
      structure.set(timer, now + gap[at % kDrawn]);
    } else {
      structure.set(moved[at % kDrawn], now + gap[at % kDrawn]);
    }
    ++at;
  }
  state.SetItemsProcessed(state.iterations());
}

/// A quantile of a million runs as of steps that slowly grow longer; an item is a run.
void BM_Quantile(benchmark::State& state) {
  RandomStream random(3, "runs");
  RunQuantiles set;
  for (int i = 0; i < 1'000'000; ++i) {
    set.add({0.02 * random.gamma(4), 1e-6 * random.unit(), static_cast<std::uint32_t>(1 + random.below(50)),
             static_cast<std::uint32_t>(1 + random.below(64))});
  }
  for (auto _ : state) benchmark::DoNotOptimize(set.quantile(static_cast<double>(state.range(0)) / 1000));
  state.SetItemsProcessed(state.iterations() * 1'000'000);
}

/// Arrivals, queue and departures together: an item is a customer of an M/M/1.
void BM_Station(benchmark::State& state) {
  EventCalendar calendar;
  Station station(calendar, 1, 1);
  RenewalArrivals arrivals(Variate::exponential(1), 1);
  RandomStream works(1, "work");
  const Variate work = Variate::exponential(0.8);
  const Timer door = calendar.add(0);
  calendar.set(door, arrivals.next_time());
  std::int64_t left = 0;
  for (auto _ : state) {
    const EventCalendar::Event event = calendar.pop();
    if (event.tag == 0) {
      station.enter(arrivals.take().user, Seconds(work.draw(works)));
      calendar.set(door, arrivals.next_time());
    } else {
      station.leave(event);
      ++left;
    }
  }
  state.SetItemsProcessed(left);
}

void sizes(benchmark::internal::Benchmark* b) {
  for (const std::int64_t kind : {kExponential, kUniform, kTwoScales}) {
    for (const std::int64_t n : {100, 1000, 10'000, 100'000, 1'000'000}) b->Args({n, kind});
  }
}
void counts(benchmark::internal::Benchmark* b) {
  for (const std::int64_t n : {100, 1000, 10'000, 100'000, 1'000'000}) b->Args({n});
}

/// Goal: 20 M events/s of the hold model with 1000 pending.
void BM_HoldGoal(benchmark::State& state) {
  const Goal goal = Goal::rate(state, 20e6, 1);
  hold<Tree>(state);
}

BENCHMARK(BM_Quantile)->Arg(500)->Arg(999)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Station);
BENCHMARK(BM_HoldGoal)->Args({1000, kExponential});
BENCHMARK_TEMPLATE(hold, Tree)->Apply(sizes);
BENCHMARK_TEMPLATE(hold, IndexedHeap<2>)->Apply(sizes);
BENCHMARK_TEMPLATE(hold, IndexedHeap<4>)->Apply(sizes);
BENCHMARK_TEMPLATE(hold, CalendarQueue)->Apply(sizes);
BENCHMARK_TEMPLATE(servers, Tree)->Apply(counts);
BENCHMARK_TEMPLATE(servers, IndexedHeap<4>)->Apply(counts);
BENCHMARK_TEMPLATE(servers, CalendarQueue)->Apply(counts);
BENCHMARK_TEMPLATE(move, Tree)->Apply(counts);
BENCHMARK_TEMPLATE(move, IndexedHeap<4>)->Apply(counts);
BENCHMARK_TEMPLATE(move, CalendarQueue)->Apply(counts);

}  // namespace
}  // namespace shardline
