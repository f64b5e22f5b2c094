// The goal of a benchmark, in code, and whether this run of it met the goal.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>

namespace shardline {

/// Stands before the timed loop; where it goes out of scope, the benchmark's label says "goal 10 ms: met" or
/// "goal 10 ms: MISSED, 1.40x". Time is the process's CPU time or, for work of several threads that is waited
/// for, the wall's. A loop that pauses its timer is not measured by this.
class Goal {
 public:
  enum class Clock : std::uint8_t { cpu, wall };

  /// At most so many seconds for one turn of the loop.
  static Goal seconds(benchmark::State& state, double most, Clock clock = Clock::cpu) {
    return {state, most, quantity(most, "s"), clock};
  }
  /// At least so many items in a second, of which a turn has `items`.
  static Goal rate(benchmark::State& state, double least, double items, Clock clock = Clock::cpu) {
    return {state, items / least, quantity(least, "/s"), clock};
  }

  Goal(const Goal&) = delete;
  Goal& operator=(const Goal&) = delete;
  ~Goal() {
    if (state_.iterations() == 0) return;
    const double took = (now(clock_) - begin_) / static_cast<double>(state_.iterations());
    const double over = took / most_;
    char missed[32];
    std::snprintf(missed, sizeof missed, "MISSED, %.2fx", over);
    state_.SetLabel(label_ + (label_.empty() ? "" : "; ") + "goal " + goal_ + ": " +
                    (over <= 1 ? "met" : missed));
  }

  /// What the label says beside the goal: a label set otherwise would be lost.
  void label(std::string text) { label_ = std::move(text); }

 private:
  Goal(benchmark::State& state, double most, std::string goal, Clock clock)
      : state_(state), most_(most), goal_(std::move(goal)), clock_(clock), begin_(now(clock)) {}

  static double now(Clock clock) {
    if (clock == Clock::cpu) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  /// "10 ms", "1.64 M/s".
  static std::string quantity(double v, const char* unit) {
    struct Prefix {
      double size;
      const char* name;
    };
    constexpr Prefix kPrefixes[] = {{1e9, "G"},  {1e6, "M"},  {1e3, "k"}, {1, ""},
                                    {1e-3, "m"}, {1e-6, "u"}, {1e-9, "n"}};
    const Prefix* p = kPrefixes;
    while (p->size > v && p->size > 1e-9) ++p;
    char text[48];
    std::snprintf(text, sizeof text, "%.3g %s%s", v / p->size, p->name, unit);
    return text;
  }

  benchmark::State& state_;
  double most_;
  std::string goal_, label_;
  Clock clock_;
  double begin_;
};

}  // namespace shardline
