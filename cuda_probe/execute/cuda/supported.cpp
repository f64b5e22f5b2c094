#include "cuda_probe/execute/cuda/supported.hpp"

#include <algorithm>

#include "cuda_probe/execute/cpu/executor.hpp"
#include "cuda_probe/execute/cuda/kernel_limits.hpp"

namespace shardline {

namespace {

std::string why_not(const Layout& layout, const Move& m) {
  if (!layout.inside(m.from, m.source) || !layout.inside(m.to, m.target))
    return "has a region outside its slot";
  if (m.source.rows != m.target.rows || m.source.columns != m.target.columns)
    return "has a message that does not have the shape of its target";
  if (!m.add) return "";
  if (layout.number(m.target.slot) != Number::bf16) return "adds log-sum-exps";
  const auto odd = [](std::int64_t column) { return column % kRowUnit != 0; };
  if (odd(m.source.column) || odd(m.target.column) || odd(m.target.columns))
    return "adds regions whose width is no multiple of 8";
  return "";
}

}  // namespace

std::optional<std::string> unsupported(const Schedule& s) {
  if (!s.flow) return "the schedule has no data flow";
  const Dataflow& flow = *s.flow;
  const int ranks = ranks_of(s);
  for (const Move& m : flow.moves) {
    if (m.source.slot >= flow.slots.size() || m.target.slot >= flow.slots.size()) return "no such slot";
  }
  for (const Region& r : flow.regions) {
    if (r.slot >= flow.slots.size()) return "no such slot";
  }
  const auto second_kind = [](const Binding& b) { return b.kind != 0; };
  if (std::any_of(flow.inputs.begin(), flow.inputs.end(), second_kind) ||
      std::any_of(flow.outputs.begin(), flow.outputs.end(), second_kind))
    return "layers are of several kinds of attention, this executor has the inputs of one";
  const Layout layout(flow, ranks);
  for (OpIndex op = 0; op < s.ops.size() && op < flow.ops.size(); ++op) {
    const OpFlow& part = flow.ops[op];
    const auto at = [&](const std::string& why) { return "op '" + std::string(s.ops[op].name) + "' " + why; };
    if (part.actions > 0 && part.moves > 0) return at("moves and computes");
    for (std::uint32_t i = 0; i < part.actions; ++i) {
      const std::string why = why_not(flow, layout, flow.actions[part.first_action + i]);
      if (!why.empty()) return at(why);
    }
    for (std::uint32_t i = 0; i < part.moves; ++i) {
      const std::string why = why_not(layout, flow.moves[part.first_move + i]);
      if (!why.empty()) return at(why);
    }
  }
  return std::nullopt;
}

}  // namespace shardline
