// Traffic of other jobs on the fabric of a pass. hardware/README.md [H58].
#pragma once

#include <cstdint>

#include "hardware/timing/lowering.hpp"

namespace shardline {

/// Which pairs of neighbouring GPUs have traffic of others.
enum class NoiseLinks : std::uint8_t {
  nvlink,   // GPUs g and g + 1 of a node, through their NVLink ports
  network,  // the same GPU of nodes n and n + 1, through their network ports
  all,
};

/// Bursts between neighbours, in both directions at once.
struct NoiseSpec {
  NoiseLinks links = NoiseLinks::all;
  double load = 0.5;       // part of the time that a pair has a burst, 0 to 0.99
  Seconds burst{1e-3};     // mean length; gaps follow from the load
  int flows = 1;           // per burst and direction; each shares a port as one flow of the plan does
  int pairs = 0;           // so many pairs, drawn for every seed; 0: all
  int seeds = 16;          // runs
  std::uint64_t seed = 1;  // of the first run; the others count on
};

/// The traffic of one seed beside `gpus` GPUs, on the resources of CostModel::machine(gpus). Empty at load 0.
Background background_of(const NoiseSpec& noise, const FabricSpec& fabric, int gpus, std::uint64_t seed);

/// A pass of one microbatch with every rank, layer and stage in one graph: what bursts do to one layer shows
/// in later ones. Collectives go on at the pace of their slowest member's port.
class NoisyPass {
 public:
  /// Throws UserError where the graph has more than kMostTasks tasks.
  NoisyPass(const Schedule& schedule, CostModel& cost);

  int gpus() const { return gpus_; }
  /// As simulate_pass where `background` is empty. One call at a time per engine.
  PassTime run(const Background& background, Engine& engine, Timeline& timeline) const;

  static constexpr std::size_t kMostTasks = 20'000'000;

 private:
  int gpus_ = 1;
  TaskGraph graph_;
  Machine machine_;
  std::vector<StageMarks> stages_;
  std::vector<TaskId> end_;
};

}  // namespace shardline
