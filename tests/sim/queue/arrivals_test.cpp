// Processes of arrivals [S14]: their means, their variances, and what they do not depend on.
#include "sim/queue/arrivals.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

namespace shardline {
namespace {

constexpr std::size_t kMany = 200'000;

struct Moments {
  double mean, variance;
};

Moments moments(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  const double mean = sum / static_cast<double>(values.size());
  for (const double v : values) squares += (v - mean) * (v - mean);
  return {mean, squares / static_cast<double>(values.size())};
}

std::vector<double> intervals(Arrivals& arrivals, std::size_t n) {
  std::vector<double> out;
  Seconds last;
  for (std::size_t i = 0; i < n; ++i) {
    const Seconds next = arrivals.next_time();
    const Arrival arrival = arrivals.take();
    EXPECT_EQ(arrival.time, next);
    EXPECT_EQ(arrival.user, i);
    out.push_back((arrival.time - last).value);
    last = arrival.time;
  }
  return out;
}

TEST(Arrivals, S14IntervalsOfRenewalProcesses) {
  for (const Variate& law : {Variate::exponential(0.2), Variate::gamma(0.2, 0.5), Variate::gamma(0.2, 2)}) {
    RenewalArrivals arrivals(law, 11);
    const std::vector<double> found = intervals(arrivals, kMany);
    const Moments m = moments(found);
    EXPECT_NEAR(m.mean, 0.2, 4.9 * std::sqrt(law.variance() / kMany));
    EXPECT_NEAR(m.variance, law.variance(), 0.05 * law.variance());
    // Independent: neighbours are not correlated, within 4.9 standard errors.
    double products = 0;
    for (std::size_t i = 1; i < found.size(); ++i) products += (found[i] - m.mean) * (found[i - 1] - m.mean);
    EXPECT_NEAR(products / kMany / m.variance, 0, 4.9 / std::sqrt(kMany));
  }
}

TEST(Arrivals, S14CountsOfAPoissonProcess) {
  RenewalArrivals arrivals(Variate::exponential(0.01), 5);
  std::vector<double> counts(20'000);
  for (std::size_t window = 0; window < counts.size(); ++window) {
    while (arrivals.next_time() < Seconds(0.1 * static_cast<double>(window + 1))) {
      arrivals.take();
      ++counts[window];
    }
  }
  const Moments m = moments(counts);
  EXPECT_NEAR(m.mean, 10, 4.9 * std::sqrt(10.0 / 20'000));
  EXPECT_NEAR(m.variance / m.mean, 1, 4.9 * std::sqrt(2.0 / 20'000));
}

// Index of dispersion of counts of a Poisson process that alternates (Heffes and Lucantoni, IEEE JSAC 4 (6),
// 1986).
TEST(Arrivals, S14CountsOfBursts) {
  for (const double off : {0.0, 2.0}) {
    const double on = 20, a = 1 / 0.5, b = 1 / 1.5, window = 2;
    BurstArrivals arrivals({PerSecond(on), PerSecond(off), Seconds(0.5), Seconds(1.5)}, 17);
    std::vector<double> counts(100'000);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      while (arrivals.next_time() < Seconds(window * static_cast<double>(i + 1))) {
        arrivals.take();
        ++counts[i];
      }
    }
    const double rate = (on * b + off * a) / (a + b), r = a + b;
    const double limit = 2 * a * b * (on - off) * (on - off) / (r * r * (on * b + off * a));
    const double dispersion = 1 + limit * (1 - (1 - std::exp(-r * window)) / (r * window));
    const Moments m = moments(counts);
    EXPECT_NEAR(m.mean, rate * window, 4.9 * std::sqrt((1 + limit) * rate * window / 100'000));
    EXPECT_NEAR(m.variance / m.mean, dispersion, 0.04 * dispersion);
  }
}

TEST(Arrivals, S14ATraceIsReadOneByOneAtItsPace) {
  std::size_t read = 0;
  const std::vector<double> times{0, 1, 1, 4};
  TraceArrivals trace(
      [&]() -> std::optional<Seconds> {
        return read < times.size() ? std::optional(Seconds(times[read++])) : std::nullopt;
      },
      2);
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(read, i + 1);
    EXPECT_EQ(trace.next_time(), Seconds(times[i] / 2));
    EXPECT_EQ(trace.take().user, i);
  }
  EXPECT_TRUE(std::isinf(trace.next_time().value));
  EXPECT_THROW(trace.take(), std::logic_error);
  int calls = 0;
  TraceArrivals backwards([&] { return std::optional(Seconds(++calls == 1 ? 2 : 1)); });
  EXPECT_THROW(backwards.take(), std::logic_error);
}

TEST(Arrivals, S14AClosedLoopHasOneArrivalOfEachUserAtATime) {
  ClosedLoop loop(3, Variate::fixed(2), 1, ClosedLoop::Start::together);
  std::vector<Arrival> first;
  for (int i = 0; i < 3; ++i) first.push_back(loop.take());
  for (const Arrival& a : first) EXPECT_EQ(a.time, Seconds(0));
  EXPECT_TRUE(std::isinf(loop.next_time().value));
  loop.completed(first[1], Seconds(5));
  EXPECT_THROW(loop.completed(first[1], Seconds(5)), std::logic_error);
  const Arrival again = loop.take();
  EXPECT_EQ(again.time, Seconds(7));
  EXPECT_EQ(again.user, first[1].user);
  EXPECT_EQ(again.turn, 1U);
}

/// Turn times relative to the completion before, by (session, turn), for services that take `service` and,
/// for some sessions, ten times as long: they overtake one another.
std::map<std::pair<std::uint64_t, std::uint32_t>, double> pauses(double service) {
  SessionArrivals arrivals({Variate::exponential(1), Variate::gamma(3.5, 0.5), Variate::exponential(4)}, 23);
  struct Running {
    Arrival arrival;
    double end;
  };
  std::vector<Running> running;
  std::map<std::uint64_t, double> last;
  std::map<std::pair<std::uint64_t, std::uint32_t>, double> out;
  std::size_t taken = 0;
  while (taken < 20'000) {
    const auto next = std::min_element(running.begin(), running.end(),
                                       [](const Running& a, const Running& b) { return a.end < b.end; });
    if (next != running.end() && next->end <= arrivals.next_time().value) {
      last[next->arrival.user] = next->end;
      arrivals.completed(next->arrival, Seconds(next->end));
      running.erase(next);
      continue;
    }
    const Arrival a = arrivals.take();
    ++taken;
    out[{a.user, a.turn}] = a.time.value - (a.turn == 0 ? 0 : last[a.user]);
    running.push_back({a, a.time.value + service * (a.user % 3 == 0 ? 10 : 1)});
  }
  return out;
}

TEST(Arrivals, S14SessionsDoNotDependOnHowTheyAreServed) {
  const auto fast = pauses(0.01), slow = pauses(0.5);
  std::size_t both = 0;
  for (const auto& [key, pause] : fast) {
    const auto found = slow.find(key);
    if (found == slow.end()) continue;
    ++both;
    ASSERT_NEAR(pause, found->second, 1e-9) << key.first << ' ' << key.second;
  }
  EXPECT_GT(both, 15'000U);
  // Turns: the mean of ceil(gamma) lies half a turn above that of gamma, nearly.
  std::map<std::uint64_t, std::uint32_t> turns;
  for (const auto& [key, pause] : fast) turns[key.first] = std::max(turns[key.first], key.second + 1);
  double sum = 0, pause_sum = 0, pause_count = 0, sessions = 0;
  for (const auto& [user, count] : turns) {
    if (user >= 4000) break;  // all later ones may be cut off
    sum += count;
    ++sessions;
  }
  for (const auto& [key, pause] : fast) {
    if (key.second == 0) continue;
    pause_sum += pause;
    ++pause_count;
  }
  EXPECT_NEAR(sum / sessions, 4, 0.15);
  EXPECT_NEAR(pause_sum / pause_count, 4, 4.9 * 4 / std::sqrt(pause_count));
}

TEST(Arrivals, S14SameSeedSameArrivals) {
  for (int kind = 0; kind < 2; ++kind) {
    const auto make = [&](std::uint64_t seed) -> std::unique_ptr<Arrivals> {
      if (kind == 0) return std::make_unique<RenewalArrivals>(Variate::gamma(1, 2), seed);
      return std::make_unique<BurstArrivals>(
          BurstArrivals::Rates{PerSecond(5), PerSecond(1), Seconds(1), Seconds(2)}, seed);
    };
    EXPECT_EQ(intervals(*make(1), 1000), intervals(*make(1), 1000));
    EXPECT_NE(intervals(*make(1), 1000), intervals(*make(2), 1000));
  }
}

TEST(Arrivals, S14RefusesWhatCannotBe) {
  EXPECT_THROW(RenewalArrivals(Variate::fixed(0), 1), std::logic_error);
  EXPECT_THROW(BurstArrivals({PerSecond(0), PerSecond(0), Seconds(1), Seconds(1)}, 1), std::logic_error);
  EXPECT_THROW(BurstArrivals({PerSecond(1), PerSecond(0), Seconds(0), Seconds(1)}, 1), std::logic_error);
  EXPECT_THROW(ClosedLoop(0, Variate::fixed(1), 1, ClosedLoop::Start::apart), std::logic_error);
  EXPECT_THROW(TraceArrivals([] { return std::optional<Seconds>(); }, 0), std::logic_error);
}

}  // namespace
}  // namespace shardline
