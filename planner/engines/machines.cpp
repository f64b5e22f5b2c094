#include "planner/engines/machines.hpp"

#include <algorithm>

namespace shardline {

namespace {

using Takes = bool (*)(const Plan&, const Machines&);

// The fewest machines with as many GPUs each on which the engine puts all ranks.
std::optional<Machines> equal_machines(const Case& c, const Plan& p, Takes takes) {
  const int most = gpus_per_machine(c.system), domain = c.system.fabric.gpus_per_node, gpus = p.gpus();
  if (gpus <= most) return Machines{1, gpus, gpus};
  const int least = filled_machines(c, p).count;
  const bool joined = gpus <= domain;
  const int all = joined && c.any_gpus ? domain / most : least;
  for (int n = least; n <= all; ++n) {
    const Machines m{n, gpus / n, gpus / n};
    if (gpus % n == 0 && (m.each == most || joined) && takes(p, m)) return m;
  }
  return std::nullopt;
}

}  // namespace

int gpus_per_machine(const System& system) {
  constexpr int kMostOfOne = 8, kTray = 4;
  return system.fabric.gpus_per_node > kMostOfOne ? kTray : system.fabric.gpus_per_node;
}

Machines filled_machines(const Case& c, const Plan& p) {
  const int most = gpus_per_machine(c.system), gpus = p.gpus(), count = (gpus + most - 1) / most;
  if (count == 1) return {1, gpus, gpus};
  return {count, most, gpus - (count - 1) * most};
}

std::optional<Machines> vllm_machines(const Case& c, const Plan& p) {
  const auto takes = [](const Plan& of, const Machines& m) {
    const int group = of.gpus() / of.dp;
    if (of.dp == 1) return true;
    return group <= m.each ? m.each % group == 0 : m.count % of.dp == 0;
  };
  if (const auto equal = equal_machines(c, p, takes)) return equal;
  if (p.dp == 1 || gpus_per_machine(c.system) % (p.gpus() / p.dp) != 0) return std::nullopt;
  return filled_machines(c, p);
}

std::optional<Machines> sglang_machines(const Case& c, const Plan& p) {
  return equal_machines(c, p, [](const Plan& of, const Machines& m) {
    const int stages = std::max(of.pp / m.count, 1), of_stage = std::max(m.count / of.pp, 1);
    const bool all_stages = m.count % of_stage == 0 && stages * (m.count / of_stage) == of.pp;
    return all_stages && of.ranks_per_stage() % of_stage == 0;
  });
}

std::optional<Machines> trtllm_machines(const Case& c, const Plan& p) {
  const Machines filled = filled_machines(c, p);
  const auto equal = equal_machines(c, p, [](const Plan&, const Machines&) { return true; });
  return equal && equal->count == filled.count ? *equal : filled;
}

}  // namespace shardline
