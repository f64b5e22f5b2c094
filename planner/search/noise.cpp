#include "planner/search/noise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/layers/host_work.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

namespace {

constexpr double kRounding = 1e-11;

}  // namespace

NoiseEffect noise_effect(Seconds quiet, std::vector<Seconds> times) {
  NoiseEffect out;
  out.quiet = quiet;
  const auto n = static_cast<double>(times.size());
  // Sums of differences: times that all equal the quiet one lose exactly nothing.
  double lost = 0, squares = 0;
  for (const Seconds t : times) lost += (t - quiet).value;
  out.mean = quiet + Seconds(lost / n);
  for (const Seconds t : times) squares += (t - out.mean).value * (t - out.mean).value;
  out.deviation = Seconds(times.size() > 1 ? std::sqrt(squares / (n - 1)) : 0);
  out.least = *std::min_element(times.begin(), times.end());
  out.most = *std::max_element(times.begin(), times.end());
  out.times = std::move(times);
  return out;
}

NoiseEffect noise_effect(Evaluator& evaluator, const Plan& plan, const NoiseSpec& noise, int threads) {
  const Seconds quiet = evaluator.simulate(plan);
  const auto seeds = static_cast<std::size_t>(noise.seeds);
  const FabricSpec& fabric = evaluator.study().system.fabric;
  const auto traffic = [&](int gpus, std::size_t i) {
    return background_of(noise, fabric, gpus, noise.seed + i);
  };
  if (traffic(plan.gpus(), 0).empty()) return noise_effect(quiet, std::vector<Seconds>(seeds, quiet));
  const double bursts = static_cast<double>(traffic(plan.gpus(), 0).sources().size()) *
                        (quiet * (noise.load / noise.burst.value)).value;
  if (bursts > kMostBursts) {
    throw UserError(
        fmt::format("background traffic beside {} makes {:.0f} million bursts of {}; at most {:.0f}",
                    to_string(plan), bursts / 1e6, to_string(noise.burst), kMostBursts / 1e6));
  }
  const NoisyPass pass(evaluator.schedule(), evaluator.cost());
  std::vector<Seconds> times(seeds);
  const std::size_t count = thread_count(threads);
  struct Scratch {
    Engine engine;
    Timeline timeline;
  };
  std::vector<Scratch> scratch(count);
  parallel_for(0, seeds, count, [&](std::size_t i, std::size_t slot) {
    const Background beside = traffic(pass.gpus(), i);
    const PassTime played = pass.run(beside, scratch[slot].engine, scratch[slot].timeline);
    times[i] = beside_host(token_time(evaluator.schedule(), played), evaluator.host_work());
  });
  // Bursts that change nothing: the same sum, in another order.
  for (Seconds& t : times) {
    if (std::abs(t / quiet - 1) < kRounding) t = quiet;
  }
  return noise_effect(quiet, std::move(times));
}

}  // namespace shardline
