// Every single message of an exchange between nodes, played by the event engine on the edges of the fabric's
// graph. Shares nothing with collectives/: neither rates nor latencies nor counts of bytes.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "sim/engine/engine.hpp"
#include "tests/hardware/flow_oracle.hpp"

namespace shardline::testing {

/// Members of one group, in rank order; all groups of a layout exchange at once.
using Members = std::vector<int>;

inline std::vector<Members> groups_of(const Fabric& f, Group group) {
  std::vector<Members> out;
  const int span = group.size * group.stride;
  for (int start = 0; start + span <= f.gpus(); start += span) {
    for (int offset = 0; offset < group.stride; ++offset) {
      Members m;
      for (int i = 0; i < group.size; ++i) m.push_back(start + offset + i * group.stride);
      out.push_back(m);
    }
  }
  return out;
}

class Messages {
 public:
  using Chunks = std::vector<TaskId>;
  /// `share` of its bandwidth is what a message gets of every edge outside of NVLink. Streams go in `chunks`
  /// pieces.
  Messages(const Fabric& f, double share, int chunks)
      : fabric_(f), oracle_(f), chunks_(chunks), carried_(oracle_.edges(), 0.0) {
    for (std::size_t e = 0; e < oracle_.edges(); ++e) {
      machine_.add("edge", BytesPerSecond(oracle_.bandwidth(e) * (oracle_.network(e) ? share : 1.0)));
    }
  }

  /// One message; its latency passes once all of `after` have arrived.
  TaskId send(int from, int to, double bytes, const Chunks& after = {}, bool begins = true) {
    std::vector<Demand> demands;
    for (const auto& [edge, part] : way(from, to)) {
      demands.push_back(Demand::on(static_cast<ResourceId>(edge), Bytes(part * bytes)));
      carried_[edge] += part * bytes;
    }
    return graph_.add(begins ? fabric_.latency(from, to) : Seconds(0), std::span(demands), std::span(after),
                      Sharing::equal_rate);
  }

  /// A message in chunks, one after another; each waits for the chunks of the same number in all of `after`.
  /// Only the first pays the latency: the others follow on the wire.
  Chunks stream(int from, int to, double bytes, const std::vector<Chunks>& after = {}) {
    Chunks out;
    for (int q = 0; q < chunks_; ++q) {
      Chunks wait;
      for (const Chunks& c : after) wait.push_back(c[static_cast<std::size_t>(q)]);
      if (q > 0) wait.push_back(out.back());
      out.push_back(send(from, to, bytes / chunks_, wait, q == 0));
    }
    return out;
  }

  double play() { return simulate(graph_, machine_).makespan().value; }

  /// Bytes that left all nodes.
  double network_bytes() const {
    double sum = 0;
    for (std::size_t e = 0; e < carried_.size(); ++e) sum += oracle_.leaves_node(e) ? carried_[e] : 0;
    return sum;
  }

 private:
  using Way = std::vector<std::pair<std::size_t, double>>;  // edges, and the part of a message on each

  const Way& way(int from, int to) {
    const auto [found, fresh] = ways_.try_emplace({from, to});
    if (fresh) {
      std::vector<double> load(oracle_.edges(), 0.0);
      oracle_.send(static_cast<std::size_t>(from), static_cast<std::size_t>(to), 1.0, load);
      for (std::size_t e = 0; e < load.size(); ++e) {
        if (load[e] > 0) found->second.emplace_back(e, load[e]);
      }
    }
    return found->second;
  }

  const Fabric& fabric_;
  FlowOracle oracle_;
  int chunks_;
  std::vector<double> carried_;
  std::map<std::pair<int, int>, Way> ways_;
  Machine machine_;
  TaskGraph graph_;
};

/// [H11] Every block goes straight from its owner to each other member.
inline void enumerate_direct(Messages& m, const Members& g, double block) {
  for (const int from : g) {
    for (const int to : g) {
      if (from != to) m.send(from, to, block);
    }
  }
}

/// [H59] As many rings as members per node, each with its part of every block. Ring c enters node k at local
/// member a(k) and leaves it at a(k+1), so that it crosses on one rail.
inline void enumerate_rings(Messages& m, const Members& g, int local, double block) {
  const int n = static_cast<int>(g.size()), nodes = n / local;
  for (int c = 0; c < local; ++c) {
    const auto door = [&](int k) {
      k %= nodes;
      return (c + (nodes % 2 == 1 && k == nodes - 1 && local > 2 ? 2 : k % 2)) % local;
    };
    Members ring;
    for (int k = 0; k < nodes; ++k) {
      const int in = door(k), out = door(k + 1);
      std::vector<int> way{in};
      for (int i = 0; i < local; ++i) {
        if (i != in && i != out) way.push_back(i);
      }
      if (out != in) way.push_back(out);
      for (const int i : way) ring.push_back(g[static_cast<std::size_t>(k * local + i)]);
    }
    std::vector<Messages::Chunks> before;  // by position: what arrived there in the step before
    for (int step = 0; step + 1 < n; ++step) {
      std::vector<Messages::Chunks> now(ring.size());
      for (int at = 0; at < n; ++at) {
        const auto from = static_cast<std::size_t>(at), to = static_cast<std::size_t>((at + 1) % n);
        std::vector<Messages::Chunks> after;
        if (step > 0) after.push_back(before[from]);
        now[to] = m.stream(ring[from], ring[to], block / local, after);
      }
      before = now;
    }
  }
}

/// [H60] Each block crosses once to every other node, to the member on its owner's rail, which passes it on.
inline void enumerate_rail_gather(Messages& m, const Members& g, int local, double block) {
  const int n = static_cast<int>(g.size());
  const auto spread = [&](int holder, const std::vector<Messages::Chunks>& after) {
    for (int j = 0; j < local; ++j) {
      const int mate = holder / local * local + j;
      if (mate != holder)
        m.stream(g[static_cast<std::size_t>(holder)], g[static_cast<std::size_t>(mate)], block, after);
    }
  };
  for (int owner = 0; owner < n; ++owner) {
    spread(owner, {});
    for (int peer = owner % local; peer < n; peer += local) {
      if (peer == owner) continue;
      spread(peer, {m.stream(g[static_cast<std::size_t>(owner)], g[static_cast<std::size_t>(peer)], block)});
    }
  }
}

/// [H60] Partial sums of a node meet at the member on the rail of the block's owner, which sends one sum.
inline void enumerate_rail_scatter(Messages& m, const Members& g, int local, double block) {
  const int n = static_cast<int>(g.size());
  for (int owner = 0; owner < n; ++owner) {
    for (int helper = owner % local; helper < n; helper += local) {
      std::vector<Messages::Chunks> parts;
      for (int j = 0; j < local; ++j) {
        const int mate = helper / local * local + j;
        if (mate != helper)
          parts.push_back(
              m.stream(g[static_cast<std::size_t>(mate)], g[static_cast<std::size_t>(helper)], block));
      }
      if (helper != owner)
        m.stream(g[static_cast<std::size_t>(helper)], g[static_cast<std::size_t>(owner)], block, parts);
    }
  }
}

/// [H61] A message to another node goes over NVLink to the member on its receiver's rail first.
inline void enumerate_forwarded(Messages& m, const Members& g, int local, double part) {
  const int n = static_cast<int>(g.size());
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      if (from == to) continue;
      const int via = from / local == to / local ? from : from / local * local + to % local;
      std::vector<Messages::Chunks> first;
      if (via != from)
        first.push_back(m.stream(g[static_cast<std::size_t>(from)], g[static_cast<std::size_t>(via)], part));
      m.stream(g[static_cast<std::size_t>(via)], g[static_cast<std::size_t>(to)], part, first);
    }
  }
}

}  // namespace shardline::testing
