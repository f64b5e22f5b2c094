#include "calibrate/validate/kv_runahead_scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace shardline {

namespace {

using Rows = std::vector<std::vector<std::string>>;

// What is compared with itself on more GPUs. Over a slow network, one GPU is that of the file's own network.
using Curve = std::tuple<std::string, std::string, long long, double, ChainMethod>;
struct Times {
  double published = 0, ours = 0;
};

std::map<Curve, std::map<int, Times>> curves_of(const ChainTruth& truth, std::span<const double> ours) {
  std::map<Curve, std::map<int, Times>> curves;
  for (std::size_t i = 0; i < truth.values.size(); ++i) {
    const ChainValue& v = truth.values[i];
    if (v.gpus > 1)
      curves[{v.table, v.model, v.context, v.network, v.method}][v.gpus] = {v.time.value, ours[i]};
  }
  for (std::size_t i = 0; i < truth.values.size(); ++i) {
    const ChainValue& v = truth.values[i];
    if (v.gpus > 1) continue;
    for (auto& [curve, times] : curves) {
      if (std::get<0>(curve) == v.table && std::get<1>(curve) == v.model && std::get<2>(curve) == v.context)
        times[1] = {v.time.value, ours[i]};
    }
  }
  return curves;
}

bool pays(double before, double after) { return after < 0.99 * before; }

std::string step_text(double before, double after) {
  return fmt::format("{:.3f} to {:.3f} s, {}", before, after, pays(before, after) ? "pays" : "does not");
}

void add_steps(const ChainTruth& truth, std::span<const double> ours, PaperReport& report) {
  Rows rows{{"table", "model", "tokens", "network", "what", "GPUs", "published", "ours", ""}};
  int right = 0, all = 0;
  for (const auto& [curve, times] : curves_of(truth, ours)) {
    const auto& [table, model, context, network, method] = curve;
    for (auto more = times.begin(); more != times.end(); ++more) {
      if (more == times.begin()) continue;
      const auto less = std::prev(more);
      const Times &a = less->second, &b = more->second;
      const bool agree = pays(a.published, b.published) == pays(a.ours, b.ours);
      ++all;
      right += agree;
      rows.push_back({table.substr(5), model, std::to_string(context),
                      network > 0 ? fmt::format("{:g} GB/s", network) : "",
                      method == ChainMethod::tsp ? "TSP" : "KVR",
                      fmt::format("{} to {}", less->first, more->first), step_text(a.published, b.published),
                      step_text(a.ours, b.ours), agree ? "" : "WRONG"});
    }
  }
  if (all == 0) return;
  report.sections.push_back({"More GPUs pay if TTFT falls by 1 % or more", {PaperItem(std::move(rows))}});
  PaperGroup g{"More GPUs pay or not"};
  g.finding = fmt::format("{} of {} right", right, all);
  g.goal = "all right";
  g.verdict = right == all ? Verdict::met : Verdict::missed;
  report.groups.push_back(std::move(g));
}

void add_bounds(const ChainTruth& truth, std::span<const double> ours, ChainModel& model,
                PaperReport& report) {
  Rows rows{{"model", "tokens", "GPUs", "TTFT(1), ours (s)", "TTFT(1)/p (s)", "published over it",
             "ours over it", "TTFT*(p), Eq. 3 (s)", "published over it", "ours over it"}};
  for (std::size_t i = 0; i < truth.values.size(); ++i) {
    const ChainValue& v = truth.values[i];
    if (v.method != ChainMethod::kvr_searched || v.network > 0 || v.gpus < 2) continue;
    const double one = model.ttft(v.model, v.context, 1, 0, ChainMethod::one_gpu).value, p = v.gpus;
    const double linear = one / p, least = one / 2 * (1 / p + 1 / (p * p));
    const auto over = [](double t, double bound) { return fmt::format("{:.2f}x", t / bound); };
    rows.push_back({v.model, std::to_string(v.context), std::to_string(v.gpus), fmt::format("{:.3f}", one),
                    fmt::format("{:.3f}", linear), over(v.time.value, linear), over(ours[i], linear),
                    fmt::format("{:.3f}", least), over(v.time.value, least), over(ours[i], least)});
  }
  if (rows.size() > 1)
    report.sections.push_back({"KVR-S against both lower bounds", {PaperItem(std::move(rows))}});
}

}  // namespace

void add_chain_scaling(const ChainTruth& truth, std::span<const double> ours, ChainModel& model,
                       PaperReport& report) {
  add_bounds(truth, ours, model, report);
  add_steps(truth, ours, report);
}

}  // namespace shardline
