#include "hardware/collectives/collective.hpp"

#include <array>

#include "sim/base/error.hpp"

namespace shardline {

std::string_view to_string(Algorithm a) {
  constexpr std::array<std::string_view, 9> names{"none", "direct", "one-shot",     "two-shot", "ring",
                                                  "tree", "nvls",   "hierarchical", "rails"};
  return names[static_cast<std::size_t>(a)];
}

GroupFabric group_fabric(const Fabric& fabric, Group group) {
  GroupFabric g;
  g.size = group.size;
  g.whole = fabric.paths(group);
  const int local = g.whole.members_per_node;
  if (!g.whole.one_node && local > 1) {
    g.hierarchical = true;
    g.inside = fabric.paths({local, group.stride});
    g.across = fabric.paths({group.size / local, group.stride * local});
  }
  return g;
}

namespace {

void take_faster(CollectiveTime& best, const CollectiveTime& candidate) {
  if (best.algorithm == Algorithm::none || candidate.total() < best.total()) best = candidate;
}

CollectiveTime all_reduce(const GroupFabric& g, Bytes bytes, AllReduceRule rule) {
  CollectiveTime best;
  const auto allowed = [&](AllReduceRule r) { return rule == AllReduceRule::fastest || rule == r; };
  // Loads and stores, and multicast, work inside one NVLink domain only.
  if (g.whole.one_node && allowed(AllReduceRule::one_shot)) take_faster(best, one_shot_all_reduce(g, bytes));
  if (g.whole.one_node && allowed(AllReduceRule::two_shot)) take_faster(best, two_shot_all_reduce(g, bytes));
  if (allowed(AllReduceRule::ring)) take_faster(best, ring_all_reduce(g, bytes));
  if (allowed(AllReduceRule::tree)) take_faster(best, tree_all_reduce(g, bytes));
  if (g.whole.multicast && allowed(AllReduceRule::nvls)) take_faster(best, nvls_all_reduce(g, bytes));
  if (g.hierarchical && rule == AllReduceRule::fastest) take_faster(best, hierarchical_all_reduce(g, bytes));
  if (g.hierarchical && rule == AllReduceRule::fastest)
    take_faster(best, hierarchical_one_shot_all_reduce(g, bytes));
  if (g.hierarchical && rule == AllReduceRule::fastest) take_faster(best, rails_all_reduce(g, bytes));
  if (best.algorithm == Algorithm::none) best = ring_all_reduce(g, bytes);
  return best;
}

}  // namespace

CollectiveTime collective(OpKind kind, const GroupFabric& g, Bytes bytes, AllReduceRule rule) {
  CollectiveTime best;
  switch (kind) {
    case OpKind::all_reduce:
      return all_reduce(g, bytes, rule);
    case OpKind::all_gather:
      take_faster(best, direct_all_gather(g, bytes));
      take_faster(best, ring_all_gather(g, bytes));
      if (g.hierarchical) take_faster(best, hierarchical_all_gather(g, bytes));
      if (g.hierarchical) take_faster(best, rails_all_gather(g, bytes));
      return best;
    case OpKind::reduce_scatter:
      take_faster(best, direct_reduce_scatter(g, bytes));
      take_faster(best, ring_reduce_scatter(g, bytes));
      if (g.hierarchical) take_faster(best, hierarchical_reduce_scatter(g, bytes));
      if (g.hierarchical) take_faster(best, rails_reduce_scatter(g, bytes));
      return best;
    case OpKind::all_to_all:
    case OpKind::dispatch:
    case OpKind::combine:
      take_faster(best, direct_all_to_all(g, bytes));
      if (g.hierarchical) take_faster(best, rails_all_to_all(g, bytes));
      return best;
    case OpKind::send_recv:
      return send_recv(g, bytes);
    default:
      break;
  }
  SL_CHECK(is_communication(kind), "only communication ops have a collective time");
  return best;
}

}  // namespace shardline
