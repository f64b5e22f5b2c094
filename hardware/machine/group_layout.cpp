#include "hardware/machine/group_layout.hpp"

namespace shardline {

namespace {

using Relation = FabricCell::Relation;
using enum FabricCell::Relation;

}  // namespace

Relation GroupLayout::relation(int node, int other) const {
  if (node == other) return kSame;
  return node / nodes_per_leaf_ == other / nodes_per_leaf_ ? kNear : kFar;
}

std::array<int, 3> GroupLayout::position(int node) const {
  const int low = node * places_;
  return {low % span_, nodes_ > nodes_per_leaf_ ? node % nodes_per_leaf_ : 0,
          std::clamp(spans_ * span_ - low, 0, places_)};
}

void GroupLayout::count(int node, Traffic& out) {
  out.pairwise.clear();
  out.ring.clear();
  const int low = node * places_, high = low + places_;
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
  for (int m = begin; m < end; ++m) {
    const int here = first + m * group_.stride - node * places_;
    const int previous = first + (m + group_.size - 1) % group_.size * group_.stride;
    const int next = first + (m + 1) % group_.size * group_.stride;
    const Relation from = relation(node, previous / places_), to = relation(node, next / places_);
    ++out.ring.into(from, here, previous % places_);
    neighbours_[at(from, here, previous % places_)] = true;
    if (to != kSame) ++out.ring.out_of(to, next % places_, here);
  }
}

void GroupLayout::count_pairs(int node, int first, int begin, int end, Flows& out) {
  std::fill(before_.begin(), before_.end(), 0);
  std::fill(after_.begin(), after_.end(), 0);
  const int pod = node / nodes_per_leaf_ * nodes_per_leaf_;
  const auto add = [&](int from, int to, std::vector<int>& sums) {
    const int gpu = first + from * group_.stride, nodes = group_.stride / places_,
              rest = group_.stride % places_;
    int other = gpu / places_, place = gpu % places_;
    for (int m = from; m < to; ++m) {
      const bool near = other >= pod && other < pod + nodes_per_leaf_;
      ++sums[std::size_t((near ? kNear : kFar) * places_ + place)];
      other += nodes;
      place += rest;
      if (place >= places_) place -= places_, ++other;
    }
  };
  add(0, begin, before_);
  add(end, group_.size, after_);
  for (int m = begin; m < end; ++m) {
    const int here = first + m * group_.stride - node * places_;
    for (int other = begin; other < end; ++other) {
      const int there = first + other * group_.stride - node * places_;
      if (other != m) ++out.into(kSame, here, there);
      if (other < m) forward_[at(kSame, here, there)] = true;
    }
    for (const Relation r : {kNear, kFar}) {
      for (int place = 0; place < places_; ++place) {
        const int before = before_[std::size_t(r * places_ + place)];
        const int beside = before + after_[std::size_t(r * places_ + place)];
        if (beside == 0) continue;
        out.into(r, here, place) += beside;
        out.out_of(r, place, here) += beside;
        if (before > 0) forward_[at(r, here, place)] = true;
      }
    }
  }
}

}  // namespace shardline
