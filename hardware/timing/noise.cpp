#include "hardware/timing/noise.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "hardware/timing/unfolder.hpp"
#include "sim/base/error.hpp"
#include "sim/base/random.hpp"

namespace shardline {

namespace {

constexpr std::uint64_t kPairStream = ~std::uint64_t{0};  // apart from those of the bursts

ResourceId port(int gpu, RankResource which) {
  return static_cast<ResourceId>(gpu) * static_cast<ResourceId>(RankResource::count) +
         static_cast<ResourceId>(which);
}

std::vector<std::vector<ResourceId>> neighbours(NoiseLinks links, const FabricSpec& fabric, int gpus) {
  std::vector<std::vector<ResourceId>> out;
  const int node = fabric.gpus_per_node;
  for (int g = 0; g + 1 < gpus && links != NoiseLinks::network; ++g) {
    if (g / node == (g + 1) / node)
      out.push_back({port(g, RankResource::nvlink), port(g + 1, RankResource::nvlink)});
  }
  for (int g = 0; g + node < gpus && links != NoiseLinks::nvlink; ++g)
    out.push_back({port(g, RankResource::network), port(g + node, RankResource::network)});
  return out;
}

}  // namespace

Background background_of(const NoiseSpec& noise, const FabricSpec& fabric, int gpus, std::uint64_t seed) {
  Background out(seed);
  if (noise.load == 0) return out;
  auto pairs = neighbours(noise.links, fabric, gpus);
  // A draw without replacement: the first places of a shuffle.
  for (std::size_t i = 0; noise.pairs > 0 && i < static_cast<std::size_t>(noise.pairs) && i < pairs.size();
       ++i)
    std::swap(pairs[i], pairs[i + random_bits(seed, kPairStream, i) % (pairs.size() - i)]);
  if (noise.pairs > 0 && pairs.size() > static_cast<std::size_t>(noise.pairs))
    pairs.resize(static_cast<std::size_t>(noise.pairs));
  for (auto& pair : pairs)
    out.add({std::move(pair), noise.burst, noise.burst * ((1 - noise.load) / noise.load), noise.flows});
  return out;
}

NoisyPass::NoisyPass(const Schedule& schedule, CostModel& cost) {
  double tasks = 0;
  int stages = 0;
  for (const Stage& stage : schedule.stages) {
    stages += stage.copies;
    for (const Repeat& repeat : schedule.program_of(stage)) {
      for (const BlockIndex b : schedule.blocks_of(repeat))
        tasks += 1.0 * stage.copies * repeat.times * (schedule.blocks[b].last - schedule.blocks[b].first);
    }
  }
  tasks *= players(schedule, Players::ranks);
  if (tasks > static_cast<double>(kMostTasks)) {
    throw UserError(fmt::format("background traffic beside {} ranks makes {:.0f} million tasks; at most {}",
                                stages * players(schedule, Players::ranks), tasks / 1e6,
                                kMostTasks / 1'000'000));
  }
  gpus_ = stages * players(schedule, Players::ranks);
  machine_ = cost.machine(gpus_);
  Unfolder unfolder(schedule, cost, graph_, Players::ranks, Meeting::in_step);
  stages_ = unfold_stages(schedule, unfolder);
  end_ = unfolder.barriers();
}

PassTime NoisyPass::run(const Background& background, Engine& engine, Timeline& timeline) const {
  engine.run(graph_, machine_, background, timeline);
  return pass_of(stages_, end_, timeline);
}

}  // namespace shardline
