#include "hardware/kernel_cost.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

std::uint64_t key_of(Group g) {
  return (static_cast<std::uint64_t>(g.size) << 32) | static_cast<std::uint32_t>(g.stride);
}

// Fraction of peak of a prefill attention kernel: whole waves of tiles at the tile's own rate, and never
// above the rate that long kernels sustain [H18].
double tile_rate(const Device& d, const AttendShape& a) {
  if (d.sms == 0) return d.attention();
  const double tiles = a.tiles * a.q_heads;
  const double waves = std::ceil(tiles / d.sms);
  // Tiles that are not full take as long as full ones; a wave that is not full as long as a full one.
  const double used = a.q_rows * a.q_heads / (waves * d.sms * kTileRows);
  return std::min(d.attention(), d.tile() * used);
}

}  // namespace

GroupFabric FabricCache::group(Group g) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = groups_.find(key_of(g)); it != groups_.end()) return it->second;
  }
  // Computed outside the lock: two threads may do it twice, with the same result.
  const GroupFabric paths = group_fabric(fabric_, g);
  const std::lock_guard lock(mutex_);
  return groups_.emplace(key_of(g), paths).first->second;
}

CostModel::CostModel(const System& system, AllReduceRule rule, std::shared_ptr<FabricCache> cache)
    : system_(&system),
      cache_(cache ? std::move(cache) : std::make_shared<FabricCache>(system.fabric)),
      rule_(rule) {
  const Device& d = system.device;
  tensor_rate_ = *std::max_element(d.peak.begin(), d.peak.end()) * d.compute_efficiency;
  nvlink_rate_ = system.fabric.nvlink.switches > 0
                     ? system.fabric.nvlink.bandwidth * system.fabric.nvlink.efficiency
                     : BytesPerSecond(1);
  network_rate_ = system.fabric.network.present
                      ? system.fabric.network.bandwidth * system.fabric.network.efficiency
                      : BytesPerSecond(1);
}

const GroupFabric& CostModel::group(Group g) {
  const std::uint64_t key = key_of(g);
  if (key == last_key_) return *last_group_;
  auto it = groups_.find(key);
  if (it == groups_.end()) it = groups_.emplace(key, cache_->group(g)).first;
  last_key_ = key;
  last_group_ = &it->second;
  return it->second;
}

OpCost CostModel::price(const Op& op) {
  const Device& d = system_->device;
  OpCost c;
  c.latency = d.kernel_cost * op.launches;
  if (op.kind == OpKind::gemm || op.kind == OpKind::attend) {
    FlopsPerSecond rate = d.achieved(op.math);
    SL_CHECK(rate > FlopsPerSecond(0), "the device has a unit for the arithmetic of every op");
    if (op.kind == OpKind::attend && op.shape.attend.tiles > 0) {
      rate = d.peak[static_cast<std::size_t>(op.math)] * tile_rate(d, op.shape.attend);
    }
    c.tensor = flops(op) * (tensor_rate_ / rate);
    c.memory = op.kind == OpKind::gemm ? weight_bytes(op) : kv_bytes(op);
    c.exponentials = exponentials(op);
  } else if (is_communication(op.kind)) {
    const CollectiveTime t = collective(op.kind, group(op.group), Bytes(op.shape.exchange.bytes), rule_);
    c.latency += t.latency;
    c.algorithm = t.algorithm;
    if (op.drive == Drive::eager && !last_group_->whole.one_node) {
      if (op.kind == OpKind::send_recv) c.latency += system_->runtime.send_recv;
      if (op.kind == OpKind::all_to_all) c.latency += system_->runtime.all_to_all;
    }
    const bool inside = last_group_->whole.one_node;
    c.port_resource = inside ? RankResource::nvlink : RankResource::network;
    c.port = t.wire * ((inside ? nvlink_rate_ : network_rate_) / t.rate);
  } else {
    c.memory = Bytes(op.shape.elementwise.bytes);
    if (op.drive == Drive::ring_step) c.latency += system_->runtime.ring_step;
    if (op.drive == Drive::persistent_kv) {
      c.latency += system_->runtime.persistent_layer;
      c.memory = system_->runtime.persistent_traffic * op.shape.elementwise.rows;
    }
  }
  return c;
}

Seconds CostModel::alone(const OpCost& c) const {
  const BytesPerSecond port = c.port_resource == RankResource::nvlink ? nvlink_rate_ : network_rate_;
  return c.latency + std::max({c.tensor / tensor_rate_, c.memory / system_->device.achieved_memory(),
                               c.exponentials / system_->device.exponentials, c.port / port});
}

Seconds CostModel::time(const Op& op) {
  const bool plain = op.kind == OpKind::elementwise || op.kind == OpKind::merge;
  if (plain && op.drive == Drive::graph && op.shape.elementwise.bytes == 0)
    return system_->device.kernel_cost * op.launches;
  return alone(price(op));
}

Machine CostModel::machine(int ranks) const {
  Machine m;
  for (int r = 0; r < ranks; ++r) {
    const std::string prefix = ranks == 1 ? "" : "rank " + std::to_string(r) + " ";
    m.add(prefix + "tensor", tensor_rate_);
    m.add(prefix + "memory", system_->device.achieved_memory());
    m.add(prefix + "exponentials", system_->device.exponentials);
    m.add(prefix + "nvlink", nvlink_rate_);
    m.add(prefix + "network", network_rate_);
  }
  return m;
}

}  // namespace shardline
