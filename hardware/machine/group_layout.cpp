#include "hardware/machine/group_layout.hpp"

#include <numeric>

namespace shardline {

GroupLayout::GroupLayout(const PairRoutes& pairs, int nodes, Group group)
    : places_(pairs.places()),
      nodes_(nodes),
      gpus_per_node_(places_.count()),
      nodes_per_leaf_(pairs.nodes_per_leaf()),
      group_(group),
      span_(group.size * group.stride),
      spans_(nodes * gpus_per_node_ / span_),
      period_(gpus_per_node_ / std::gcd(group.stride, gpus_per_node_)),
      here_(static_cast<std::size_t>(places_.nics())) {
  for (Elsewhere& e : elsewhere_) e.by_rail.resize(static_cast<std::size_t>(places_.rails()));
}

std::array<int, 3> GroupLayout::position(int node) const {
  const int low = node * gpus_per_node_;
  return {low % span_, nodes_ > nodes_per_leaf_ ? node % nodes_per_leaf_ : 0,
          std::clamp(spans_ * span_ - low, 0, gpus_per_node_)};
}

PairKind GroupLayout::kind(int gpu, int other) const {
  const int a = gpu % gpus_per_node_, b = other % gpus_per_node_;
  const int node = gpu / gpus_per_node_, other_node = other / gpus_per_node_;
  if (node == other_node) return places_.inside(a, b);
  return NodePlaces::across(near(node, other_node), places_.rail(a) == places_.rail(b));
}

void GroupLayout::count(int node, Traffic& out) {
  for (EndCounts* ends : {&out.pairwise, &out.ring_from, &out.ring_to}) ends->clear();
  const int low = node * gpus_per_node_, high = low + gpus_per_node_;
  for (int start = low / span_ * span_; start < std::min(high, spans_ * span_); start += span_) {
    const int from = std::max(low, start), to = std::min(high, start + span_);
    for (int gpu = from; gpu < std::min(to, from + group_.stride); ++gpu) {  // the first of its group here
      const int begin = (gpu - start) / group_.stride;
      const int end = begin + (to - gpu + group_.stride - 1) / group_.stride;
      count_group(node, gpu - begin * group_.stride, begin, end, out);
    }
  }
}

// Members begin ... end - 1 of the group lie in the node.
void GroupLayout::count_group(int node, int first, int begin, int end, Traffic& out) {
  fewest_ = std::min(fewest_, end - begin);
  most_ = std::max(most_, end - begin);
  count_pairs(node, first, begin, end, out.pairwise);
  count_ring(first, begin, end, out);
}

void GroupLayout::count_ring(int first, int begin, int end, Traffic& out) {
  for (int m = begin; m < end; ++m) {
    const int gpu = first + m * group_.stride;
    const int previous = first + (m + group_.size - 1) % group_.size * group_.stride;
    const int next = first + (m + 1) % group_.size * group_.stride;
    const int place = gpu % gpus_per_node_;
    const PairKind from = kind(gpu, previous), to = kind(gpu, next);
    out.ring_to.add(from, place, 1);
    out.ring_from.add(to, place, 1);
    neighbours_[static_cast<std::size_t>(from)] = true;
    if (from == PairKind::two_leaves) ++out.ring_to.other_rail(places_.rail(previous % gpus_per_node_));
    if (to == PairKind::two_leaves) ++out.ring_from.other_rail(places_.rail(next % gpus_per_node_));
  }
}

// Each pair of members exchanges both ways, so what ends in a node is as much as what begins there.
void GroupLayout::count_pairs(int node, int first, int begin, int end, EndCounts& out) {
  count_elsewhere(node, first, begin, end);
  const auto place = [&](int member) { return first + member * group_.stride - node * gpus_per_node_; };
  const auto nic = [&](int member) { return static_cast<std::size_t>(places_.nic(place(member))); };
  for (int m = begin; m < end; ++m) ++here_[nic(m)];
  const int here = end - begin;
  const auto add = [&](PairKind kind, int at, int pairs) {
    out.add(kind, at, pairs);
    pair_[static_cast<std::size_t>(kind)] |= pairs > 0;
  };
  const PairKind other_nic =
      places_.rails() == 1 ? PairKind::one_node_one_leaf : PairKind::one_node_two_leaves;
  for (int m = begin; m < end; ++m) {
    const int at = place(m);
    add(PairKind::one_nic, at, here_[nic(m)] - 1);
    add(other_nic, at, here - here_[nic(m)]);
    for (const bool near : {true, false}) {
      const Elsewhere& e = elsewhere_[near ? 0 : 1];
      if (e.members == 0) continue;
      const int same = e.by_rail[static_cast<std::size_t>(places_.rail(at))];
      add(NodePlaces::across(near, true), at, same);
      add(NodePlaces::across(near, false), at, e.members - same);
    }
  }
  if (places_.rails() > 1) {  // where rails are NICs
    for (const int rail : elsewhere_[0].rails) {
      const auto r = static_cast<std::size_t>(rail);
      out.other_rail(rail) += elsewhere_[0].by_rail[r] * (here - here_[r]);
    }
  }
  for (int m = begin; m < end; ++m) here_[nic(m)] = 0;
}

void GroupLayout::count_elsewhere(int node, int first, int begin, int end) {
  for (Elsewhere& e : elsewhere_) {
    for (const int rail : e.rails) e.by_rail[static_cast<std::size_t>(rail)] = 0;
    e.rails.clear();
    e.members = 0;
  }
  // The first member at or behind a node's first GPU.
  const auto member_at = [&](int at) {
    const long long gpus = static_cast<long long>(at) * gpus_per_node_ - first;
    return static_cast<int>(
        std::clamp<long long>((gpus + group_.stride - 1) / group_.stride, 0, group_.size));
  };
  const int pod = node / nodes_per_leaf_ * nodes_per_leaf_;
  const int low = member_at(pod), high = member_at(pod + nodes_per_leaf_);
  add_elsewhere(elsewhere_[1], first, 0, low);
  add_elsewhere(elsewhere_[0], first, low, begin);
  add_elsewhere(elsewhere_[0], first, end, high);
  add_elsewhere(elsewhere_[1], first, high, group_.size);
}

// Places repeat after `period_` members.
void GroupLayout::add_elsewhere(Elsewhere& e, int first, int from, int to) const {
  const int all = to - from, rounds = all / period_, rest = all % period_;
  const int step = group_.stride % gpus_per_node_;
  int place = static_cast<int>((first + static_cast<long long>(from) * group_.stride) % gpus_per_node_);
  for (int m = 0; m < std::min(all, period_); ++m) {
    const int more = rounds + int(m < rest), rail = places_.rail(place);
    int& members = e.by_rail[static_cast<std::size_t>(rail)];
    if (members == 0) e.rails.push_back(rail);
    members += more;
    place += step;
    if (place >= gpus_per_node_) place -= gpus_per_node_;
  }
  e.members += all;
}

}  // namespace shardline
