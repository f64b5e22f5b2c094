#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "sim/engine/engine.hpp"
#include "sim/engine/fold.hpp"

namespace shardline {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Refusal, Capacities) {
  Machine m;
  for (const double bad : {0.0, -1.0, kInf, kNan}) {
    EXPECT_THROW(m.add("pipe", BytesPerSecond(bad)), std::logic_error) << bad;
    EXPECT_THROW(m.add("unit", FlopsPerSecond(bad)), std::logic_error) << bad;
  }
  EXPECT_EQ(m.size(), 0u);
  EXPECT_EQ(m.fastest_pipe(), BytesPerSecond(0));
}

TEST(Refusal, LatenciesAndDemands) {
  TaskGraph g;
  for (const double bad : {-1.0, kInf, kNan}) {
    EXPECT_THROW(g.add(Seconds(bad), {}, {}), std::logic_error) << bad;
    EXPECT_THROW(g.add(Seconds(0), {Demand::on(0, Bytes(bad))}, {}), std::logic_error) << bad;
  }
  EXPECT_EQ(g.size(), 0u);
  EXPECT_EQ(g.demand_count(), 0u);
}

TEST(Refusal, DependenciesOnLaterTasks) {
  TaskGraph g;
  EXPECT_THROW(g.add(Seconds(0), {}, {0}), std::logic_error);
  g.add(Seconds(0), {}, {});
  EXPECT_THROW(g.add(Seconds(0), {}, {0, 1}), std::logic_error);
  EXPECT_EQ(g.size(), 1u);
  EXPECT_EQ(g.dependency_count(), 0u);
}

TEST(Refusal, EqualRateWithoutBytes) {
  TaskGraph g;
  EXPECT_THROW(g.add(Seconds(0), {Demand::on(0, Flops(1))}, {}, Sharing::equal_rate), std::logic_error);
  EXPECT_NO_THROW(g.add(Seconds(1), {}, {}, Sharing::equal_rate));
}

TEST(Refusal, ForeignResourcesAndUnits) {
  Machine m;
  const ResourceId unit = m.add("unit", FlopsPerSecond(1));
  for (const auto method : {Engine::Method::automatic, Engine::Method::events}) {
    Engine engine(method);
    Timeline t;
    TaskGraph missing;
    missing.add(Seconds(0), {Demand::on(1, Bytes(1))}, {});
    EXPECT_THROW(engine.run(missing, m, t), std::logic_error);
    TaskGraph foreign;
    foreign.add(Seconds(0), {Demand::on(unit, Bytes(1))}, {});
    EXPECT_THROW(engine.run(foreign, m, t), std::logic_error);
    // The engine is still good.
    TaskGraph good;
    good.add(Seconds(0), {Demand::on(unit, Flops(3))}, {});
    engine.run(good, m, t);
    EXPECT_EQ(t.makespan(), Seconds(3));
  }
}

TEST(Refusal, TimesThatOverflow) {
  Machine m;
  const ResourceId unit = m.add("unit", FlopsPerSecond(1e-10));
  for (const auto method : {Engine::Method::automatic, Engine::Method::events}) {
    Engine engine(method);
    Timeline t;
    TaskGraph work;
    work.add(Seconds(0), {Demand::on(unit, Flops(1e300))}, {});
    EXPECT_THROW(engine.run(work, m, t), std::logic_error);
    TaskGraph wait;
    wait.add(Seconds(1e308), {}, {});
    wait.add(Seconds(1e308), {}, {0});
    EXPECT_THROW(engine.run(wait, m, t), std::logic_error);
  }
}

TEST(Refusal, ForeignTimeline) {
  TaskGraph g;
  g.add(Seconds(1), {}, {});
  g.add(Seconds(1), {}, {0});
  EXPECT_THROW(critical_path(g, {}), std::logic_error);
  EXPECT_THROW(critical_path(g, {{{Seconds(0), Seconds(1)}, {Seconds(2), Seconds(3)}}}), std::logic_error);
}

TEST(Refusal, FoldsOfNothing) {
  EXPECT_THROW(repeat(Seconds(1), -1), std::logic_error);
  EXPECT_THROW(pipeline({Seconds(1), Seconds(1)}, 0), std::logic_error);
  EXPECT_THROW(steady_period(Seconds(1), Seconds(1), 0), std::logic_error);
}

}  // namespace
}  // namespace shardline
