// Systems and fabrics that the tests of this folder use.
#pragma once

#include "hardware/cost/forms/prefill.hpp"
#include "hardware/machine/system.hpp"
#include "tests/support/files.hpp"

namespace shardline::testing {

inline std::filesystem::path system_catalog() { return source_dir() / "hardware" / "catalog"; }
inline System catalog_system(const std::string& name) { return load_system(name, system_catalog()); }

// Achieved figures of the clusters below.
inline constexpr double kNvlink = 450e9 * 0.8, kNic = 50e9 * 0.85, kHost = 64e9;
inline constexpr double kNvlinkLatency = 4e-6, kNetworkLatency = 10e-6, kSpineLatency = 2e-6;

/// Sequences with heads of 128, whatever kernel attends.
inline PrefillShape prefill_shape(double batch, double rows, double cached, double heads_q, double heads_kv,
                                  double window = 0) {
  PrefillShape s;
  s.batch = batch;
  s.rows = rows;
  s.cached = cached;
  s.heads_q = heads_q;
  s.heads_kv = heads_kv;
  s.qk_dim = s.v_dim = 128;
  s.window = window;
  return s;
}

/// HGX nodes of eight GPUs with a NIC each; a leaf per rail and one spine.
inline FabricSpec hgx(int nodes) {
  FabricSpec f;
  f.nodes = nodes;
  f.gpus_per_node = 8;
  f.nvlink.switches = 4;
  f.nvlink.bandwidth = BytesPerSecond(450e9);
  f.nvlink.latency = Seconds(kNvlinkLatency);
  f.nvlink.efficiency = 0.8;
  f.nvlink.multicast = true;
  f.network.present = true;
  f.network.bandwidth = BytesPerSecond(50e9);
  f.network.latency = Seconds(kNetworkLatency);
  f.network.efficiency = 0.85;
  f.network.host_link = BytesPerSecond(kHost);
  f.network.spine_latency = Seconds(kSpineLatency);
  return f;
}

/// The same nodes without rails: one leaf per two nodes, whose uplinks carry a quarter of its downlinks.
inline FabricSpec oversubscribed() {
  FabricSpec f = hgx(4);
  f.network.rail_optimised = false;
  f.network.nodes_per_leaf = 2;
  f.network.oversubscription = 4;
  return f;
}

}  // namespace shardline::testing
