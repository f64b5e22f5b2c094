#include "hardware/cost/op_power.hpp"

#include <algorithm>
#include <variant>

namespace shardline {

namespace {

// HBM's traffic as the pricing by parameters counts it [H2].
Bytes traffic(const PricedOp& op) {
  if (is_gemm(op.kind)) return weight_bytes(op);
  if (is_attention(op.kind)) return kv_bytes(op);
  if (is_of_index(op.kind) || is_recurrent(op.kind)) return kv_bytes(op) + score_bytes(op) + token_bytes(op);
  if (op.kind == OpKind::mix_streams) return token_bytes(op) + weight_bytes(op);
  if (const auto* e = std::get_if<ElementwiseShape>(&op.shape)) return e->bytes;
  return Bytes(0);
}

// The work of hosts, which a device waits for.
bool of_host(const PricedOp& op) {
  return op.kind == OpKind::launch || op.drive == Drive::host_layer || op.drive == Drive::host_kernel ||
         op.drive == Drive::engine || op.drive == Drive::distribute || op.drive == Drive::ring_step;
}

}  // namespace

DeviceUse device_use(const Device& device, const PricedOp& op, Seconds time) {
  if (!(time > Seconds(0))) return {};
  const FlopsPerSecond peak = device.peak[static_cast<std::size_t>(op.math)];
  DeviceUse out;
  if (peak > FlopsPerSecond(0)) out.tensor = std::min(1.0, flops(op) / peak / time);
  out.memory = std::min(1.0, traffic(op) / device.memory_bandwidth / time);
  return out;
}

double op_watts(const System& system, const PricedOp& op, Seconds time) {
  const BoardPower& power = system.power;
  if (of_host(op) || !(time > Seconds(0))) return power.idle;
  const DeviceUse use = device_use(system.device, op, time);
  return power.watts(power_class(op.kind), use.tensor, use.memory);
}

}  // namespace shardline
