#include "planner/search/named_kernels.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "hardware/cost/kernel_cost.hpp"

namespace shardline {

namespace {

std::string kernel_of(const KernelFit& f) {
  const auto column = kernel_column(*f.form);
  return column ? f.words[*column] : std::string(f.form->family);
}

bool of_dynamic_fp8(const KernelFit& f) {
  return f.form->family == std::string_view("gemm") && f.words[0] == "fp8";
}

}  // namespace

std::vector<Diagnostic> searched_scales(const Case& c, std::span<const Plan> plans, AllReduceRule rule) {
  if (c.system.calibration.empty()) return {};
  CostModel cost(c.system, rule);
  Schedule schedule;
  std::set<std::string> ops, kernels;
  for (const Plan& plan : plans) {
    lower(schedule, c, plan);
    for (const Op& op : schedule.ops) {
      if (op.kind != OpKind::gemm || op.dtype != Dtype::fp8 || op.math != Dtype::fp8) continue;
      const KernelFit* f = cost.price(op).fit;
      if (f == nullptr || !of_dynamic_fp8(*f)) continue;
      ops.insert(op.name);
      kernels.insert((f->framework.empty() ? "" : f->framework + "/") + kernel_of(*f));
    }
  }
  if (ops.empty()) return {};
  return {{{},
           fmt::format("static fp8 is priced as fp8_dynamic is, with a search for scales, for no kernel "
                       "without one was measured of {}: {}",
                       fmt::join(kernels, ", "), fmt::join(ops, ", ")),
           {}}};
}

std::vector<Diagnostic> unused_kernels(const Case& c, std::span<const Plan> plans, AllReduceRule rule) {
  std::map<std::string, std::set<std::string>> named, others;  // by family
  for (const KernelRule& r : c.system.kernels.rules) {
    for (const KernelName& n : r.use) {
      if (r.asked) named[r.family].insert(n.kernel);
    }
  }
  if (named.empty() || c.system.calibration.empty()) return {};
  CostModel cost(c.system, rule);
  Schedule schedule;
  for (const Plan& plan : plans) {
    lower(schedule, c, plan);
    for (const Op& op : schedule.ops) {
      const KernelFit* f = cost.price(op).fit;
      if (f == nullptr) continue;
      const auto of = named.find(f->form->family);
      if (of != named.end() && !of->second.contains(kernel_of(*f)))
        others[f->form->family].insert(
            fmt::format("{} in {} by {}", op.name, to_string(op.dtype), f->name()));
    }
  }
  std::vector<Diagnostic> out;
  for (const auto& [family, ops] : others)
    out.push_back({{},
                   fmt::format("kernels.{} names {}, which was not measured for these types: {}", family,
                               fmt::join(named[family], ", "), fmt::join(ops, "; ")),
                   {}});
  return out;
}

}  // namespace shardline
