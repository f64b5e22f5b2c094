// Stations against the closed forms of queueing theory [S18]. Each mean is compared within its own
// batch-means interval of 99.99 %; that the interval is narrow is asserted too, else nothing would be shown.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "sim/base/parallel.hpp"
#include "tests/sim/queue/play.hpp"

namespace shardline {
namespace {

void expect_mean(const BatchMeans& measured, double exact, double narrow) {
  const MeanInterval interval = measured.interval(0.9999);
  EXPECT_NEAR(interval.mean, exact, interval.half_width);
  EXPECT_LT(interval.half_width, narrow * exact);
  EXPECT_LT(measured.correlation(), 0.5);
}

constexpr std::size_t kMany = 400'000;

Played poisson(double rate, const Variate& work, Play p) {
  RenewalArrivals arrivals(Variate::exponential(1 / rate), p.seed);
  p.customers = kMany;
  return play(arrivals, work, p);
}

TEST(ClosedQueue, S18MM1) {
  const Played played = poisson(0.7, Variate::exponential(1), {});
  const BatchMeans stay = stays(played, false);
  expect_mean(stay, 1 / (1 - 0.7), 0.1);
  // The stay is exponential: quantiles too, within what the mean may be off.
  RunQuantiles all;
  for (const Visit& v : played.visits) all.add((v.departure - v.arrival).value);
  for (const double q : {0.5, 0.9, 0.99}) {
    EXPECT_NEAR(all.quantile(q), -std::log(1 - q) / (1 - 0.7), 0.05 * all.quantile(q)) << q;
  }
  EXPECT_NEAR(played.served / played.end, 0.7, 0.01);
}

TEST(ClosedQueue, S18MMc) {
  // Erlang C for 3 servers with 2.4 of work per second.
  const double a = 2.4, blocked = a * a * a / 6 / (1 - a / 3);
  const double c = blocked / (1 + a + a * a / 2 + blocked);
  Play p;
  p.servers = 3;
  expect_mean(stays(poisson(2.4, Variate::exponential(1), p), true), c / (3 - a), 0.1);
}

/// Pollaczek and Khinchine: the mean wait is rate E[S^2] / 2 / (1 - load).
double khinchine(double rate, const Variate& work) {
  return rate * (work.variance() + work.mean() * work.mean()) / 2 / (1 - rate * work.mean());
}

TEST(ClosedQueue, S18MD1) {
  const Variate work = Variate::fixed(1);
  expect_mean(stays(poisson(0.8, work, {}), true), khinchine(0.8, work), 0.1);
}

TEST(ClosedQueue, S18MG1) {
  for (const Variate& work : {Variate::gamma(1, 0.5), Variate::gamma(1, 1.5), Variate::uniform(0.5, 1.5)}) {
    expect_mean(stays(poisson(0.7, work, {}), true), khinchine(0.7, work), 0.15);
  }
  // A heavy tail.
  const Variate work = Variate::lognormal(1, 1.5);
  expect_mean(stays(poisson(0.5, work, {}), true), khinchine(0.5, work), 0.15);
}

TEST(ClosedQueue, S18PriorityWithoutPreemption) {
  // Cobham: waits R / (1 - r1) and R / (1 - r1) / (1 - r), R the mean rest of work in service.
  Play p;
  p.priority = [](std::size_t i) { return i % 2 == 0 ? 0 : 1; };
  // Every second arrival of a Poisson process is none: classes are drawn.
  RandomStream classes(9, "class");
  std::vector<std::int32_t> drawn(kMany);
  for (std::int32_t& c : drawn) c = classes.unit() < 0.5 ? 0 : 1;
  p.priority = [&](std::size_t i) { return drawn[i]; };
  const Played played = poisson(0.7, Variate::gamma(1, 0.5), p);
  const double rest = 0.7 * 1.25 / 2;
  BatchMeans waits[2];
  for (std::size_t i = kMany / 10; i < kMany; ++i) {
    const Visit& v = played.visits[i];
    waits[drawn[i]].add((v.departure - v.arrival - v.work).value);
  }
  expect_mean(waits[0], rest / (1 - 0.35), 0.1);
  expect_mean(waits[1], rest / (1 - 0.35) / (1 - 0.7), 0.15);
}

TEST(ClosedQueue, S18PriorityWithPreemption) {
  // The first class sees an M/M/1 of its own; both together, work being exponential, one of all.
  RandomStream classes(9, "class");
  std::vector<std::int32_t> drawn(kMany);
  for (std::int32_t& c : drawn) c = classes.unit() < 0.5 ? -1 : 4;
  Play p;
  p.preemption = Station::Preemption::resume;
  p.priority = [&](std::size_t i) { return drawn[i]; };
  const Played played = poisson(0.7, Variate::exponential(1), p);
  BatchMeans first;
  for (std::size_t i = kMany / 10; i < kMany; ++i) {
    if (drawn[i] < 0) first.add((played.visits[i].departure - played.visits[i].arrival).value);
  }
  expect_mean(first, 1 / (1 - 0.35), 0.1);
  expect_mean(stays(played, false), 1 / (1 - 0.7), 0.15);
}

// Machines that break after an exponential time and are repaired by c people.
TEST(ClosedQueue, S18MachineRepair) {
  for (const std::size_t people : {1, 3}) {
    constexpr int kMachines = 10;
    const double work = 1, run = 5;
    double weight = 1, sum = 1, broken = 0;
    for (int k = 1; k <= kMachines; ++k) {
      weight *= (kMachines - k + 1) * work / run / std::min<double>(k, static_cast<double>(people));
      sum += weight;
      broken += k * weight;
    }
    broken /= sum;
    const double rate = (kMachines - broken) / run;
    ClosedLoop machines(kMachines, Variate::exponential(run), 3, ClosedLoop::Start::apart);
    Play p;
    p.servers = people;
    p.customers = kMany / 2;
    const Played played = play(machines, Variate::exponential(work), p);
    expect_mean(stays(played, false), broken / rate, 0.03);
    EXPECT_NEAR(played.account.mean_present(played.end), broken, 0.02 * broken);
    EXPECT_LE(played.account.most_present(), kMachines);
  }
}

TEST(ClosedQueue, S15LittlesLawAtEveryEvent) {
  for (const auto preemption : {Station::Preemption::none, Station::Preemption::resume}) {
    Play p;
    p.servers = 2;
    p.preemption = preemption;
    p.customers = 50'000;
    p.priority = [](std::size_t i) { return static_cast<std::int32_t>(i * 7 % 4); };
    RenewalArrivals arrivals(Variate::gamma(0.55, 2), 4);
    const Played played = play(arrivals, Variate::lognormal(1, 1), p);
    EXPECT_LT(played.imbalance, 1e-12);
    EXPECT_EQ(played.account.present(), 0U);
    // Work is conserved: what was served is what was asked for.
    double work = 0;
    for (const Visit& v : played.visits) work += v.work.value;
    EXPECT_NEAR(played.served.value / work, 1, 1e-12);
  }
}

TEST(ClosedQueue, S12SameBitsOnEveryThread) {
  const auto run = [](std::size_t threads) {
    std::vector<double> out(16);
    parallel_for(0, out.size(), threads, [&](std::size_t i, std::size_t) {
      RenewalArrivals arrivals(Variate::gamma(1.3, 1.5), i);
      Play p;
      p.customers = 3000;
      p.seed = i;
      const Played played = play(arrivals, Variate::lognormal(1, 1), p);
      RunQuantiles all;
      for (const Visit& v : played.visits) all.add((v.departure - v.arrival).value);
      out[i] = all.quantile(0.99) + stays(played, true).interval(0.95).half_width;
    });
    return out;
  };
  const std::vector<double> one = run(1);
  EXPECT_EQ(run(2), one);
  EXPECT_EQ(run(5), one);
  EXPECT_NE(one[0], one[1]);
}

}  // namespace
}  // namespace shardline
