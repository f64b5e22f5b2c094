#include "hardware/machine/topology.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <optional>

#include "hardware/machine/pair_routes.hpp"
#include "hardware/machine/routes.hpp"
#include "sim/base/error.hpp"

namespace shardline {

std::string_view to_string(VertexKind kind) {
  constexpr std::array<std::string_view, 5> names{"gpu", "nvswitch", "nic", "leaf", "spine"};
  return names[static_cast<std::size_t>(kind)];
}

struct Fabric::Whole {
  std::once_flag once;
  std::optional<FabricRoutes> routes;
};

Fabric::Fabric(const FabricSpec& spec) : spec_(spec), whole_(std::make_shared<Whole>()) {
  SL_CHECK(spec.nodes > 0 && spec.gpus_per_node > 0, "a fabric has GPUs");
  pairs_ = std::make_shared<const PairRoutes>(spec);
}

const FabricRoutes& Fabric::routes() const {
  std::call_once(whole_->once, [this] { whole_->routes.emplace(spec_, nodes_per_uplink(spec_)); });
  return *whole_->routes;
}

const FabricGraph& Fabric::graph() const { return routes().graph(); }

Seconds Fabric::latency(int from_gpu, int to_gpu) const {
  return routes().to(to_gpu).latency[static_cast<std::size_t>(from_gpu)];
}

Route Fabric::route(int from_gpu, int to_gpu) const {
  SL_CHECK(from_gpu >= 0 && to_gpu >= 0 && from_gpu < gpus() && to_gpu < gpus(),
           "both ends are GPUs of the fabric");
  std::vector<double> load(routes().edges().size(), 0.0);
  routes().add_load(routes().to(to_gpu), {{FabricPlace(from_gpu), 1.0}}, load);
  return {routes().route(from_gpu, to_gpu), latency(from_gpu, to_gpu), routes().narrowest(load)};
}

BytesPerSecond Fabric::bisection(int count) const {
  SL_CHECK(count >= 2 && count <= gpus(), "a bisection has two sides");
  const int half = count / 2;
  std::vector<double> load(routes().edges().size(), 0.0);
  FabricRoutes::Sources left;
  for (int g = 0; g < half; ++g) left.emplace_back(FabricPlace(g), 1.0 / (count - half));
  for (int g = half; g < count; ++g) routes().add_load(routes().to(g), left, load);
  return routes().narrowest(load) * half;
}

}  // namespace shardline
