#include "hardware/machine/pair_routes.hpp"

#include <algorithm>
#include <cmath>

#include "hardware/machine/routes.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

// The node of the first GPU, with one of each relation that the fabric has. Parallel switches are one, as
// wide as all: all are equally full.
struct Cell {
  explicit Cell(const FabricSpec& whole, int nodes_per_leaf)
      : near(nodes_per_leaf > 1 && whole.nodes > 1), far(whole.nodes > nodes_per_leaf), spec(whole) {
    spec.nodes = 1 + int(near) + int(far);
    spec.nvlink.switches = std::min(1, whole.nvlink.switches);
    spec.network.nodes_per_leaf = far ? 1 + int(near) : 0;
  }
  PairKind kind(const NodePlaces& places, int gpu) const {  // of the first GPU and this one
    const int node = gpu / spec.gpus_per_node, place = gpu % spec.gpus_per_node;
    if (node == 0) return places.inside(0, place);
    return NodePlaces::across(near && node == 1, places.rail(0) == places.rail(place));
  }

  bool near, far;
  FabricSpec spec;
};

PairRoute route_to(const FabricRoutes& routes, int gpu, int gpus_per_node) {
  std::vector<double> load(routes.edges().size(), 0.0);
  routes.add_load(routes.to(gpu), {{FabricPlace(0), 1.0}}, load);
  // A way through a switch takes two links of its node, one through the spine two uplinks.
  PairRoute out{.exists = true, .latency = routes.to(gpu).latency[0]};
  for (std::size_t e = 0; e < load.size(); ++e) {
    const FabricRoutes::Edge& edge = routes.edges()[e];
    if (edge.pod >= 0) out.spine += load[e] / 2;
    if (edge.network) continue;
    if (edge.node == 0) out.nvlink_at_source += load[e] / 2;
    if (edge.node == gpu / gpus_per_node) out.nvlink_at_target += load[e] / 2;
  }
  return out;
}

// Groups' loads are counted by what each kind can do at all: a route that does more would go uncounted.
void check_shares(PairKind kind, const PairRoute& r) {
  const auto is = [](double share, double expected) { return std::abs(share - expected) < 1e-9; };
  const bool relayed = r.nvlink_at_source > 0 || r.nvlink_at_target > 0;
  bool ok = false;
  switch (kind) {
    case PairKind::one_nic:
    case PairKind::one_node_one_leaf:
      ok = is(r.spine, 0);
      break;
    case PairKind::one_node_two_leaves:
      ok = is(r.nvlink_at_source + r.spine, 1);
      break;
    case PairKind::one_leaf:
      ok = !relayed && is(r.spine, 0);
      break;
    case PairKind::two_leaves:
      ok = is(r.nvlink_at_source + r.nvlink_at_target + r.spine, 1);
      break;
    case PairKind::far_one_rail:
    case PairKind::far_two_rails:
      ok = !relayed && is(r.spine, 1);
      break;
  }
  SL_CHECK(ok, "routes of a kind of pair take the ways that it has");
}

}  // namespace

NodePlaces::NodePlaces(const FabricSpec& spec)
    : nics_((spec.gpus_per_node + spec.network.gpus_per_nic - 1) / spec.network.gpus_per_nic),
      rails_(spec.network.rail_optimised ? nics_ : 1),
      gpus_of_nic_(static_cast<std::size_t>(nics_), 0) {
  for (int place = 0; place < spec.gpus_per_node; ++place) {
    nic_.push_back(place / spec.network.gpus_per_nic);
    ++gpus_of_nic_[static_cast<std::size_t>(nic_.back())];
  }
}

PairRoutes::PairRoutes(const FabricSpec& whole)
    : spec_(whole), places_(whole), nodes_per_leaf_(std::min(nodes_per_uplink(whole), whole.nodes)) {
  const Cell cell(whole, nodes_per_leaf_);
  const FabricRoutes routes(cell.spec, nodes_per_uplink(whole));
  for (int gpu = 1; gpu < cell.spec.nodes * cell.spec.gpus_per_node; ++gpu) {
    const PairKind kind = cell.kind(places_, gpu);
    PairRoute& route = routes_[static_cast<std::size_t>(kind)];
    if (route.exists) continue;
    route = route_to(routes, gpu, cell.spec.gpus_per_node);
    check_shares(kind, route);
  }
}

}  // namespace shardline
