#include "planner/search/narrow.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace shardline {

namespace {

// Prices of one fit agree to rounding; what differs by less than a row of measurements repeats is no loss.
constexpr double kClear = 1.01;

std::string type_text(Dtype stored, Dtype math) {
  if (stored == math) return std::string(to_string(stored));
  return fmt::format("{} in {}", to_string(stored), to_string(math));
}

}  // namespace

std::optional<NarrowLoss> narrow_loss(CostModel& cost, const Op& op) {
  if (!is_gemm(op.kind) && !is_attention(op.kind)) return std::nullopt;
  const Seconds time = cost.time(op);
  std::optional<NarrowLoss> best;
  for (const Dtype wide : {Dtype::fp8, Dtype::bf16}) {
    const int bits = element_bits(wide);
    const bool wider = bits >= element_bits(op.dtype) && bits >= element_bits(op.math) &&
                       (bits > element_bits(op.dtype) || bits > element_bits(op.math));
    if (!wider || !(cost.system().device.achieved(wide) > FlopsPerSecond(0))) continue;
    PricedOp other = op;
    other.dtype = other.math = wide;
    const Seconds there = cost.time(other);
    if (!(there > Seconds(0)) || time / there < kClear || (best && there >= best->wider)) continue;
    best = NarrowLoss{op.name, op.dtype, op.math, wide, time, there};
  }
  return best;
}

std::vector<Diagnostic> narrow_warnings(const Case& c, std::span<const Plan> plans, AllReduceRule rule) {
  CostModel cost(c.system, rule);
  Schedule schedule;
  std::optional<NarrowLoss> worst;
  const Plan* of = nullptr;
  std::set<std::string> names;
  for (const Plan& plan : plans) {
    lower(schedule, c, plan);
    for (const Op& op : schedule.ops) {
      const auto loss = narrow_loss(cost, op);
      if (!loss) continue;
      names.insert(loss->op);
      if (worst && loss->ratio() <= worst->ratio()) continue;
      worst = loss;
      of = &plan;
    }
  }
  if (!worst) return {};
  std::string others;
  if (names.size() == 2) others = " (1 other kind of op loses less)";
  if (names.size() > 2) others = fmt::format(" ({} other kinds of ops lose less)", names.size() - 1);
  return {
      Diagnostic{{},
                 fmt::format("a narrow type does not pay: {} in {} is priced {}, {} would take {}, in {}{}",
                             worst->op, type_text(worst->stored, worst->math), to_string(worst->time),
                             to_string(worst->wide), to_string(worst->wider), to_string(*of), others),
                 {}}};
}

}  // namespace shardline
