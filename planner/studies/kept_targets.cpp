#include "planner/studies/kept_targets.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

std::vector<AskedTime> asked_times(const Study& study, const SimulatedPlan& plan) {
  std::vector<AskedTime> out;
  const auto add = [&](const char* what, Seconds is, Seconds most) {
    if (most > Seconds(0)) out.push_back({what, is, most});
  };
  const SearchOptions& asked = study.sweep().search;
  SL_CHECK(!plan.misfit, "the plan fits");
  if (plan.served && plan.served->serves()) {
    add("TPOT", plan.served->served.tpot, asked.most_time);
    add("TTFT", plan.served->served.ttft, asked.most_ttft);
  } else {
    add(study.study.batch.kind() == StepKind::prefill ? "TTFT" : "TTL", plan.breakdown.time, asked.most_time);
  }
  return out;
}

std::optional<bool> keeps_constraints(const Study& study, const SimulatedPlan& plan) {
  const SearchOptions& asked = study.sweep().search;
  if (!(asked.most_time > Seconds(0)) && !(asked.most_ttft > Seconds(0))) return std::nullopt;
  if (plan.misfit) return false;
  return all_kept(asked_times(study, plan));
}

std::optional<bool> all_kept(const std::vector<AskedTime>& times) {
  if (times.empty()) return std::nullopt;
  return std::all_of(times.begin(), times.end(), [](const AskedTime& t) { return t.is <= t.most; });
}

}  // namespace shardline
