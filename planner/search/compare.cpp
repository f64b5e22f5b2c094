#include "planner/search/compare.hpp"

#include <cmath>

#include "sim/base/error.hpp"

namespace shardline {

const Point* best_within(const std::vector<Point>& frontier, Seconds ttl) {
  const Point* best = nullptr;
  for (const Point& p : frontier) {
    if (p.time > ttl) continue;
    if (best == nullptr || value(Metric::throughput, p) > value(Metric::throughput, *best)) best = &p;
  }
  return best;
}

Gain gain(const std::vector<Point>& candidate, const std::vector<Point>& baseline, int steps) {
  SL_CHECK(!candidate.empty() && !baseline.empty(), "both frontiers have points");
  Gain g;
  const auto lowest = [](const std::vector<Point>& f) {
    Seconds t = f.front().time;
    for (const Point& p : f) t = std::min(t, p.time);
    return t;
  };
  const Seconds base = lowest(baseline);
  g.interactivity = base / lowest(candidate);
  double log_sum = 0;
  int counted = 0;
  for (int i = 0; i <= steps; ++i) {
    const double slack = static_cast<double>(i) / steps;
    const Point* b = best_within(baseline, base * (1 + slack));
    const Point* c = best_within(candidate, base * (1 + slack));
    if (b == nullptr || c == nullptr) continue;
    const double ratio = value(Metric::throughput, *c) / value(Metric::throughput, *b);
    g.curve.push_back({slack, ratio});
    log_sum += std::log(ratio);
    ++counted;
  }
  if (counted > 0) g.geometric_mean = std::exp(log_sum / counted);
  if (!g.curve.empty() && g.curve.front().slack == 0) g.throughput = g.curve.front().gain;
  return g;
}

}  // namespace shardline
