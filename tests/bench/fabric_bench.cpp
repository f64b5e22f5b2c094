// Fabrics of many GPUs: building one, and the paths of the groups that a sweep asks for.
#include <benchmark/benchmark.h>

#include "hardware/collectives/collective.hpp"
#include "hardware/machine/system.hpp"
#include "tests/bench/goals.hpp"

namespace shardline {
namespace {

FabricSpec spec_of(const char* system, int nodes, int gpus_per_node) {
  FabricSpec f = load_system(system, std::filesystem::path(SHARDLINE_SOURCE_DIR) / "hardware/catalog").fabric;
  f.nodes = nodes;
  f.gpus_per_node = gpus_per_node;
  return f;
}

// Every group of a power of two at every stride of a power of two, as the plans of a sweep have them.
void all_groups(benchmark::State& state, const FabricSpec& spec, double goal_seconds) {
  const Fabric fabric(spec);
  int groups = 0;
  const Goal goal = Goal::seconds(state, goal_seconds);
  for (auto _ : state) {
    groups = 0;
    for (int size = 2; size <= fabric.gpus(); size *= 2) {
      for (int stride = 1; size * stride <= fabric.gpus(); stride *= 2, ++groups) {
        benchmark::DoNotOptimize(group_fabric(fabric, {size, stride}));
      }
    }
  }
  state.SetItemsProcessed(state.iterations() * groups);
}

void BM_GroupsOfHgx(benchmark::State& state) {
  all_groups(state, spec_of("h100-hgx", int(state.range(0)), 8), 5e-3);
}
BENCHMARK(BM_GroupsOfHgx)->Arg(16)->Arg(64)->Unit(benchmark::kMillisecond);

void BM_GroupsOfOneDomain(benchmark::State& state) {
  all_groups(state, spec_of("gb200-nvl72", 1, int(state.range(0))), 5e-3);
}
BENCHMARK(BM_GroupsOfOneDomain)->Arg(72)->Arg(576)->Unit(benchmark::kMillisecond);

// Racks of 72 GPUs behind a network: larger nodes, hence more places to count.
void BM_GroupsOfRacks(benchmark::State& state) {
  FabricSpec spec = spec_of("gb200-nvl72", int(state.range(0)), 72);
  spec.network = spec_of("h100-hgx", 1, 8).network;
  all_groups(state, spec, 10e-3);
}
BENCHMARK(BM_GroupsOfRacks)->Arg(8)->Unit(benchmark::kMillisecond);

// A fabric of 4,096 GPUs from nothing, and what plans over all of them ask it for.
void BM_BuildAndAsk(benchmark::State& state) {
  const int nodes = int(state.range(0));
  const FabricSpec spec = spec_of("h100-hgx", nodes, 8);
  const Goal goal = Goal::seconds(state, 1);
  for (auto _ : state) {
    const Fabric fabric(spec);
    for (const Group g :
         {Group{8, 1}, Group{nodes, 8}, Group{8 * nodes, 1}, Group{2, 4 * nodes}, Group{12, 1}}) {
      benchmark::DoNotOptimize(group_fabric(fabric, g));
    }
  }
}
BENCHMARK(BM_BuildAndAsk)->Arg(16)->Arg(64)->Arg(512)->Unit(benchmark::kMillisecond);

// Decode on every GPU count to 576 asks for some five thousand groups; 2 CPU-seconds is the goal of the
// sweep, and the fabric is to take half of it at most.
void BM_GroupsOfASweep(benchmark::State& state) {
  const FabricSpec spec = spec_of("h100-hgx", 72, 8);
  const Goal goal = Goal::seconds(state, 1);
  int groups = 0;
  for (auto _ : state) {
    const Fabric fabric(spec);
    groups = 0;
    for (int stride = 1; stride <= fabric.gpus(); ++stride) {
      for (int size = 2; size * stride <= fabric.gpus(); ++size, ++groups) {
        benchmark::DoNotOptimize(group_fabric(fabric, {size, stride}));
      }
    }
  }
  state.SetItemsProcessed(state.iterations() * groups);
}
BENCHMARK(BM_GroupsOfASweep)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shardline
