// Where the groups of a plan lie on a fabric: who sends to whom, counted node by node.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "hardware/machine/routes.hpp"

namespace shardline {

/// Flows of one kind that end in a node or leave it, by the places of both ends in their nodes.
class Flows {
 public:
  explicit Flows(int places)
      : places_(static_cast<std::size_t>(places)), count_(2 * FabricCell::kRelations * places_ * places_) {}

  int& into(FabricCell::Relation r, int target, int source) { return count_[at(r, target, source)]; }
  int into(FabricCell::Relation r, int target, int source) const { return count_[at(r, target, source)]; }
  int& out_of(FabricCell::Relation r, int target, int source) {
    return count_[at(FabricCell::kRelations + r, target, source)];
  }
  int out_of(FabricCell::Relation r, int target, int source) const {
    return count_[at(FabricCell::kRelations + r, target, source)];
  }
  /// Those into a target, or of what leaves for it, by source.
  std::span<const int> into(FabricCell::Relation r, int target) const { return row(at(r, target, 0)); }
  std::span<const int> out_of(FabricCell::Relation r, int target) const {
    return row(at(FabricCell::kRelations + r, target, 0));
  }
  void clear() { std::fill(count_.begin(), count_.end(), 0); }
  bool operator==(const Flows&) const = default;

 private:
  std::size_t at(std::size_t part, int target, int source) const {
    return (part * places_ + static_cast<std::size_t>(target)) * places_ + static_cast<std::size_t>(source);
  }
  std::span<const int> row(std::size_t first) const { return std::span(count_).subspan(first, places_); }
  std::size_t places_;
  std::vector<int> count_;
};

/// What each member sends to every other of its group, and what to its successor.
struct Traffic {
  Flows pairwise, ring;
  bool operator==(const Traffic&) const = default;
};

/// All groups of a size and a stride side by side on a fabric.
class GroupLayout {
 public:
  GroupLayout(const FabricSpec& spec, int nodes_per_leaf, Group group)
      : nodes_(spec.nodes),
        places_(spec.gpus_per_node),
        nodes_per_leaf_(nodes_per_leaf),
        group_(group),
        span_(group.size * group.stride),
        spans_(spec.nodes * spec.gpus_per_node / span_),
        forward_(FabricCell::kRelations * std::size_t(places_) * std::size_t(places_)),
        neighbours_(forward_.size()) {
    for (auto* sums : {&before_, &after_}) sums->resize(FabricCell::kRelations * std::size_t(places_));
  }

  /// Of nodes with one position the flows are the same: their groups lie alike on them and on their leaves.
  std::array<int, 3> position(int node) const;
  /// All flows that touch a node.
  void count(int node, Traffic& out);
  int fewest() const { return fewest_; }  // members of a group in a node that has any
  int most() const { return most_; }
  /// Whether there is such a pair of members, the first of which has the smaller rank; and of successors.
  bool forward(FabricCell::Relation r, int target, int source) const {
    return forward_[at(r, target, source)];
  }
  bool neighbours(FabricCell::Relation r, int target, int source) const {
    return neighbours_[at(r, target, source)];
  }

 private:
  std::size_t at(FabricCell::Relation r, int target, int source) const {
    return (std::size_t(r) * std::size_t(places_) + std::size_t(target)) * std::size_t(places_) +
           std::size_t(source);
  }
  FabricCell::Relation relation(int node, int other) const;
  void count_group(int node, int first, int begin, int end, Traffic& out);
  void count_pairs(int node, int first, int begin, int end, Flows& out);

  int nodes_, places_, nodes_per_leaf_;
  Group group_;
  int span_, spans_;
  int fewest_ = std::numeric_limits<int>::max(), most_ = 0;
  std::vector<bool> forward_, neighbours_;
  std::vector<int> before_, after_;  // members beside a node, by relation and place
};

}  // namespace shardline
