#include "hardware/kernel_cost.hpp"

#include <algorithm>
#include <limits>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

std::uint64_t key_of(Group g) {
  return (static_cast<std::uint64_t>(g.size) << 32) | static_cast<std::uint32_t>(g.stride);
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
    const FlopsPerSecond rate = d.achieved(op.math);
    SL_CHECK(rate > FlopsPerSecond(0), "the device has a unit for the arithmetic of every op");
    c.tensor = flops(op) * (tensor_rate_ / rate);
    c.memory = op.kind == OpKind::gemm ? weight_bytes(op) : kv_bytes(op);
    c.exponentials = exponentials(op);
  } else if (is_communication(op.kind)) {
    const CollectiveTime t = collective(op.kind, group(op.group), Bytes(op.exchange.bytes), rule_);
    c.latency += t.latency;
    c.algorithm = t.algorithm;
    const bool inside = last_group_->whole.one_node;
    c.port_resource = inside ? RankResource::nvlink : RankResource::network;
    c.port = t.wire * ((inside ? nvlink_rate_ : network_rate_) / t.rate);
  }
  return c;
}

Seconds CostModel::alone(const OpCost& c) const {
  const BytesPerSecond port = c.port_resource == RankResource::nvlink ? nvlink_rate_ : network_rate_;
  return c.latency + std::max({c.tensor / tensor_rate_, c.memory / system_->device.achieved_memory(),
                               c.exponentials / system_->device.exponentials, c.port / port});
}

Seconds CostModel::time(const Op& op) {
  if (op.kind == OpKind::elementwise || op.kind == OpKind::merge)
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
