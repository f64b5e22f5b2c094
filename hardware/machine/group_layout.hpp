// Where the groups of a plan lie on a fabric: who sends to whom, counted node by node.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

#include "hardware/machine/pair_routes.hpp"

namespace shardline {

/// Flows that begin, or that end, in a node: by the place of that end and by the kind of pair.
class EndCounts {
 public:
  explicit EndCounts(const NodePlaces& places)
      : places_(static_cast<std::size_t>(places.count())),
        count_(kPairKinds * places_),
        other_rail_(static_cast<std::size_t>(places.rails())) {}

  void add(PairKind kind, int place, int flows) {
    count_[index(kind, place)] += flows;
    any_[static_cast<std::size_t>(kind)] |= flows > 0;
  }
  int at(PairKind kind, int place) const { return count_[index(kind, place)]; }
  bool any(PairKind kind) const { return any_[static_cast<std::size_t>(kind)]; }
  /// Flows of two_leaves by the rail of their other end, where a relay of this node may serve them.
  int& other_rail(int rail) { return other_rail_[static_cast<std::size_t>(rail)]; }
  int other_rail(int rail) const { return other_rail_[static_cast<std::size_t>(rail)]; }
  void clear() {
    std::fill(count_.begin(), count_.end(), 0);
    std::fill(other_rail_.begin(), other_rail_.end(), 0);
    any_.fill(false);
  }

 private:
  std::size_t index(PairKind kind, int place) const {
    return static_cast<std::size_t>(kind) * places_ + static_cast<std::size_t>(place);
  }
  std::size_t places_;
  std::vector<int> count_, other_rail_;
  std::array<bool, kPairKinds> any_{};
};

/// What each member sends to every other of its group (as many as it gets), and what to its successor.
struct Traffic {
  EndCounts pairwise, ring_from, ring_to;
  explicit Traffic(const NodePlaces& places) : pairwise(places), ring_from(places), ring_to(places) {}
};

/// All groups of a size and a stride side by side on the first nodes of a fabric.
class GroupLayout {
 public:
  /// `pairs` must outlive it.
  GroupLayout(const PairRoutes& pairs, int nodes, Group group);

  /// Of nodes with one position the flows are the same: their groups lie alike on them and on their leaves.
  std::array<int, 3> position(int node) const;
  /// All flows that begin or end in a node.
  void count(int node, Traffic& out);
  int fewest() const { return fewest_; }  // members of a group in a node that has any
  int most() const { return most_; }
  /// Whether members of a group have been counted that lie so; and a member and its successor.
  bool any_pair(PairKind kind) const { return pair_[static_cast<std::size_t>(kind)]; }
  bool any_neighbours(PairKind kind) const { return neighbours_[static_cast<std::size_t>(kind)]; }

 private:
  // Members of a group on other nodes.
  struct Elsewhere {
    std::vector<int> by_rail;
    std::vector<int> rails;  // that have any
    int members = 0;
  };

  bool near(int node, int other) const { return node / nodes_per_leaf_ == other / nodes_per_leaf_; }
  PairKind kind(int gpu, int other) const;
  void count_group(int node, int first, int begin, int end, Traffic& out);
  void count_pairs(int node, int first, int begin, int end, EndCounts& out);
  void count_elsewhere(int node, int first, int begin, int end);
  void add_elsewhere(Elsewhere& e, int first, int from, int to) const;
  void count_ring(int first, int begin, int end, Traffic& out);

  const NodePlaces& places_;
  int nodes_, gpus_per_node_, nodes_per_leaf_;
  Group group_;
  int span_, spans_, period_;
  int fewest_ = std::numeric_limits<int>::max(), most_ = 0;
  std::array<bool, kPairKinds> pair_{}, neighbours_{};
  // Of the group that is counted: its members in the node by NIC (zero between groups), and elsewhere.
  std::vector<int> here_;
  std::array<Elsewhere, 2> elsewhere_;  // near nodes, far ones
};

}  // namespace shardline
