#include "planner/studies/told_latency.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include "sim/queue/statistics.hpp"

namespace shardline {

namespace {

constexpr double kLevel = 0.95;

// From the shortest to the longest, at equal ratios: a picture's axis is logarithmic.
std::vector<std::pair<double, double>> curve_of(const RunQuantiles& of) {
  constexpr int kPoints = 128;
  std::vector<std::pair<double, double>> out;
  const double least = of.quantile(0), most = of.quantile(1);
  for (int i = 0; i <= kPoints && least > 0; ++i) {
    const double at = i < kPoints ? least * std::pow(most / least, static_cast<double>(i) / kPoints) : most;
    out.emplace_back(at, of.part_up_to(at));
  }
  return out;
}

}  // namespace

ToldLatency told(const LatencyRecord& r, bool pictures) {
  ToldLatency out;
  out.count = r.all.count();
  if (out.count == 0) return out;
  out.mean = r.all.mean();
  if (pictures) out.curve = curve_of(r.all);
  for (std::size_t q = 0; q < kToldQuantiles.size(); ++q) {
    const double part = kToldQuantiles[q];
    out.quantiles[q] = r.all.quantile(part);
    std::vector<double> means;
    for (const RunQuantiles& of : r.parts) {
      // Fewer say nothing of what lies beyond it.
      if (static_cast<double>(of.count()) * (1 - part) >= 10 - 1e-6) means.push_back(of.quantile(part));
    }
    if (means.size() == ClusterRun::kParts) out.half_widths[q] = mean_interval(means, kLevel).half_width;
  }
  return out;
}

}  // namespace shardline
