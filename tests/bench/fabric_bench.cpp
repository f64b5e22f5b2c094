// Fabrics of many GPUs: building one, and the paths of the groups that a sweep asks for.
#include <benchmark/benchmark.h>

#include "hardware/collectives/collective.hpp"
#include "hardware/machine/system.hpp"

namespace shardline {
namespace {

FabricSpec spec_of(const char* system, int nodes, int gpus_per_node) {
  FabricSpec f = load_system(system, std::filesystem::path(SHARDLINE_SOURCE_DIR) / "hardware/catalog").fabric;
  f.nodes = nodes;
  f.gpus_per_node = gpus_per_node;
  return f;
}

// Every group of a power of two at every stride of a power of two, as the plans of a sweep have them.
void all_groups(benchmark::State& state, const FabricSpec& spec) {
  const Fabric fabric(spec);
  int groups = 0;
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
  all_groups(state, spec_of("h100-hgx", int(state.range(0)), 8));
}
BENCHMARK(BM_GroupsOfHgx)->Arg(16)->Arg(64)->Unit(benchmark::kMillisecond);

void BM_GroupsOfOneDomain(benchmark::State& state) {
  all_groups(state, spec_of("gb200-nvl72", 1, int(state.range(0))));
}
BENCHMARK(BM_GroupsOfOneDomain)->Arg(72)->Arg(576)->Unit(benchmark::kMillisecond);

void BM_Build(benchmark::State& state) {
  const FabricSpec spec = spec_of("h100-hgx", int(state.range(0)), 8);
  for (auto _ : state) benchmark::DoNotOptimize(Fabric(spec));
}
BENCHMARK(BM_Build)->Arg(16)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shardline
