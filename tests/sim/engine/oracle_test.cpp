#include "tests/oracle/fluid_oracle.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/engine/engine.hpp"
#include "tests/sim/engine/random_case.hpp"

namespace shardline {
namespace {

/// Both engines agree with the oracle on every span; returns whether the replay was refused.
bool contended_and_agrees(const RandomCase& c) {
  const Timeline expected = fluid_oracle(c.graph, c.machine);
  Timeline actual;
  Engine engine;
  engine.run(c.graph, c.machine, actual);
  for (TaskId i = 0; i < c.graph.size(); ++i) {
    const double scale = std::max(expected.spans[i].end.value, 1e-300);
    EXPECT_NEAR(actual.spans[i].start.value / scale, expected.spans[i].start.value / scale, 1e-9)
        << "start of task " << i;
    EXPECT_NEAR(actual.spans[i].end.value / scale, expected.spans[i].end.value / scale, 1e-9)
        << "end of task " << i;
  }
  return !engine.replayed();
}

int count_contended(const RandomShape& shape, std::uint64_t seeds) {
  int contended = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    contended += contended_and_agrees(random_case(seed, shape)) ? 1 : 0;
  }
  return contended;
}

TEST(FluidOracle, RandomGraphs) { EXPECT_GT(count_contended({}, 200), 150); }

TEST(FluidOracle, ManyEventsAtOnce) { EXPECT_GT(count_contended({.whole = true}, 200), 150); }

TEST(FluidOracle, WideGraphsOnFewResources) {
  EXPECT_GT(count_contended({.tasks = 80, .resources = 3, .dependencies = 1}, 100), 75);
}

TEST(FluidOracle, VeryDifferentMagnitudes) {
  EXPECT_GT(count_contended({.tasks = 25, .decades = 12}, 200), 100);
}

}  // namespace
}  // namespace shardline
