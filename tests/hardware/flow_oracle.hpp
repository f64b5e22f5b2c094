// An oracle of the fabric's shares that uses nothing of Fabric but its graph.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "hardware/machine/fabric_graph.hpp"
#include "hardware/machine/topology.hpp"

namespace shardline::testing {

/// Splits flows by its own rule book: all-pairs distances by relaxation, then shares edge by edge from the
/// source.
class FlowOracle {
 public:
  explicit FlowOracle(const Fabric& f) : g_(f.graph()) {
    const std::size_t n = boost::num_vertices(g_);
    for (const auto e : boost::make_iterator_range(boost::edges(g_))) {
      edges_.push_back({boost::source(e, g_), boost::target(e, g_),
                        std::llround(g_[e].latency.value * 1e15) + 1, g_[e].bandwidth.value});
    }
    to_.assign(n, std::vector<long long>(n, kFar));
    for (std::size_t t = 0; t < n; ++t) {
      to_[t][t] = 0;
      for (bool changed = true; changed;) {
        changed = false;
        for (const Edge& e : edges_) {
          if (to_[t][e.to] + e.cost < to_[t][e.from]) to_[t][e.from] = to_[t][e.to] + e.cost, changed = true;
        }
      }
    }
  }

  /// Adds one unit of flow; checks that it is conserved at every vertex.
  void send(std::size_t from, std::size_t to, double amount, std::vector<double>& load) const {
    std::map<long long, std::map<std::size_t, double>, std::greater<>> front{
        {to_[to][from], {{from, amount}}}};
    std::vector<double> in(to_.size(), 0.0), out(to_.size(), 0.0);
    while (!front.empty() && front.begin()->first > 0) {
      const auto vertices = front.begin()->second;
      front.erase(front.begin());
      for (const auto& [v, flow] : vertices) {
        double width = 0;
        for (const Edge& e : edges_) width += onward(e, v, to) ? e.bandwidth : 0;
        for (std::size_t i = 0; i < edges_.size(); ++i) {
          const Edge& e = edges_[i];
          if (!onward(e, v, to)) continue;
          const double share = flow * e.bandwidth / width;
          load[i] += share;
          out[v] += share;
          in[e.to] += share;
          front[to_[to][e.to]][e.to] += share;
        }
      }
    }
    for (std::size_t v = 0; v < in.size(); ++v) {
      const double wanted = v == to ? amount : v == from ? -amount : 0.0;
      ASSERT_NEAR(in[v] - out[v], wanted, 1e-12) << "vertex " << v;
    }
  }

  double narrowest(const std::vector<double>& load) const {
    double rate = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < load.size(); ++i) {
      if (load[i] > 0) rate = std::min(rate, edges_[i].bandwidth / load[i]);
    }
    return rate;
  }
  std::size_t edges() const { return edges_.size(); }
  double bandwidth(std::size_t edge) const { return edges_[edge].bandwidth; }
  /// Neither end is an NVSwitch.
  bool network(std::size_t edge) const {
    return g_[edges_[edge].from].kind != VertexKind::nvswitch &&
           g_[edges_[edge].to].kind != VertexKind::nvswitch;
  }
  /// From a NIC to its leaf.
  bool leaves_node(std::size_t edge) const {
    return g_[edges_[edge].from].kind == VertexKind::nic && g_[edges_[edge].to].kind == VertexKind::leaf;
  }

 private:
  static constexpr long long kFar = std::numeric_limits<long long>::max() / 4;
  struct Edge {
    std::size_t from, to;
    long long cost;
    double bandwidth;
  };
  bool onward(const Edge& e, std::size_t v, std::size_t to) const {
    return e.from == v && to_[to][v] == to_[to][e.to] + e.cost;
  }
  const FabricGraph& g_;
  std::vector<Edge> edges_;
  std::vector<std::vector<long long>> to_;
};

}  // namespace shardline::testing
