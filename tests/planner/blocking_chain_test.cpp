// A chain whose sends block both ends, against the engine: what kv_runahead would be without its send lane.
#include <gtest/gtest.h>

#include <random>

#include "sim/engine/engine.hpp"

namespace shardline {
namespace {

// Per layer a rank computes q, receives x of the rank before, sends its own x, computes r; a message occupies
// both its ends. Ends of the last rank's layers.
std::vector<double> ends_of(const std::vector<double>& q, const std::vector<double>& x,
                            const std::vector<double>& r, int layers) {
  const std::size_t ranks = q.size();
  TaskGraph graph;
  std::vector<TaskId> last(ranks, ~TaskId{0});
  std::vector<TaskId> of_layers;
  const auto after = [&](double time, std::initializer_list<std::size_t> on) {
    std::vector<TaskId> before;
    for (const std::size_t k : on) {
      if (last[k] != ~TaskId{0}) before.push_back(last[k]);
    }
    const TaskId t = graph.add(Seconds(time), std::span<const Demand>{}, before);
    for (const std::size_t k : on) last[k] = t;
  };
  for (int layer = 0; layer < layers; ++layer) {
    for (std::size_t k = 0; k < ranks; ++k) after(q[k], {k});
    for (std::size_t k = 0; k + 1 < ranks; ++k) after(x[k], {k, k + 1});
    for (std::size_t k = 0; k < ranks; ++k) after(r[k], {k});
    of_layers.push_back(last.back());
  }
  const Timeline t = simulate(graph, Machine{});
  std::vector<double> ends;
  for (const TaskId id : of_layers) ends.push_back(t.spans[id].end.value);
  return ends;
}

// The period of a layer is the longest of receive + q + send + r.
TEST(KvRunahead, ABlockingChainHasThePeriodOfItsBusiestRank) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    const std::size_t ranks = 2 + random() % 5;
    std::vector<double> q, x, r;
    for (std::size_t k = 0; k < ranks; ++k) {
      q.push_back(static_cast<double>(random() % 40));
      x.push_back(k + 1 < ranks ? static_cast<double>(random() % 40) : 0);
      r.push_back(static_cast<double>(random() % 40));
    }
    double period = 0;
    for (std::size_t k = 0; k < ranks; ++k)
      period = std::max(period, (k > 0 ? x[k - 1] : 0) + q[k] + x[k] + r[k]);
    constexpr int kPlayed = 400, kSteady = 200;
    const std::vector<double> ends = ends_of(q, x, r, kPlayed);
    EXPECT_DOUBLE_EQ(ends[kPlayed - 1] - ends[kPlayed - 1 - kSteady], kSteady * period);
  }
}

}  // namespace
}  // namespace shardline
