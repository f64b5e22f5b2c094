#include "planner/search/unread.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

namespace shardline {

namespace {

using Keys = std::set<std::string_view>;

// Of an op that the system file's parameters price ([H2], [H3], [H18]).
void add_parameters(const Op& op, bool inside, Keys& keys) {
  if (op.drive == Drive::host_layer) return;
  keys.insert({"device.kernel_cost", "device.memory.efficiency"});
  if (is_gemm(op.kind) || is_attention(op.kind)) keys.insert("device.compute.efficiency");
  if (op.kind == OpKind::attend_prefill)
    keys.insert(
        {"device.compute.attention_efficiency", "device.compute.tile_efficiency", "device.compute.sms"});
  if (!is_communication(op.kind)) return;
  keys.insert({"fabric.nvlink.latency", "fabric.nvlink.efficiency"});
  if (!inside)
    keys.insert({"fabric.network.latency", "fabric.network.efficiency", "fabric.network.spine_latency"});
}

// Kernels that run at the same time share what the parameters say there is [S3].
bool overlaps(const Schedule& s) {
  for (const Block& b : s.blocks) {
    for (std::uint32_t i = b.first + 1; i < b.last; ++i) {
      const auto before = s.dependencies_of(s.ops[i]);
      if (std::find_if(before.begin(), before.end(), [&](OpIndex d) { return d.value == i - 1; }) ==
          before.end())
        return true;
    }
  }
  return false;
}

void add_read(Evaluator& e, const Plan& plan, Keys& keys) {
  e.simulate(plan);
  const Schedule& s = e.schedule();
  for (std::uint32_t i = 0; i < s.ops.size(); ++i) {
    for (int k = 0; k < s.classes; ++k) {
      const Op op = s.op_of_class(i, k);
      if (e.cost().price(op).basis != Basis::assumed) continue;
      add_parameters(op, is_communication(op.kind) && e.cost().group(op.group).whole.one_node, keys);
    }
  }
  if (!overlaps(s)) return;
  keys.insert({"device.memory.efficiency", "device.compute.efficiency", "fabric.nvlink.efficiency",
               "fabric.network.efficiency"});
}

}  // namespace

std::vector<Diagnostic> unread_parameters(Evaluator& e, std::span<const Plan> plans) {
  const System& system = e.study().system;
  const MeasuredMachine& machine = system.calibration.machine;
  std::vector<Diagnostic> out;
  if (system.calibration.empty() || machine.empty()) return out;
  std::vector<std::pair<const MachineFigure*, Location>> changed;
  for (const KeyPlace& place : system.places) {
    for (std::size_t i = 0; i < machine.figures.size(); ++i) {
      const MachineFigure& f = machine_figures()[i];
      if (f.key != place.key || f.use != FigureUse::parameter) continue;
      const double now = f.of(system);
      if (std::abs(now - machine.figures[i]) > 1e-6 * std::max(now, machine.figures[i]))
        changed.emplace_back(&f, place.where);
    }
  }
  if (changed.empty()) return out;
  Keys read;
  for (const Plan& plan : plans) add_read(e, plan, read);
  for (const auto& [figure, where] : changed) {
    if (read.contains(figure->key)) continue;
    out.push_back({where,
                   fmt::format("{} changes nothing here: no price of these plans reads it", figure->key),
                   {fmt::format("they are fitted to measurements of {}; with costs: parameters it counts",
                                machine.system)}});
  }
  return out;
}

}  // namespace shardline
