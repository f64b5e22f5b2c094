#include "planner/noise.hpp"

#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cmath>

namespace shardline {

NoiseEffect noise_effect(Seconds quiet, std::vector<Seconds> times) {
  NoiseEffect out;
  out.quiet = quiet;
  const auto n = static_cast<double>(times.size());
  double sum = 0, squares = 0;
  for (const Seconds t : times) sum += t.value;
  for (const Seconds t : times) squares += (t.value - sum / n) * (t.value - sum / n);
  out.mean = Seconds(sum / n);
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
  tbb::task_arena arena(threads > 0 ? threads : tbb::task_arena::automatic);
  arena.execute([&] {
    tbb::parallel_for(std::size_t{0}, seeds, [&](std::size_t i) {
      thread_local Engine engine;
      thread_local Timeline timeline;
      times[i] = token_time(evaluator.schedule(), pass.run(traffic(pass.gpus(), i), engine, timeline));
    });
  });
  return noise_effect(quiet, std::move(times));
}

}  // namespace shardline
