#include "planner/studies/idle_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/serving/served_plan.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "sim/base/argument_names.hpp"

namespace shardline {

namespace {

// What is answered or told, not how long plans take: another model, targets, traffic of others, lengths that
// errors were measured with, prices.
bool says_answer(const std::string& setting) {
  constexpr std::array<std::string_view, 5> kTold{"models", "noise", "pareto", "gpu_hour_price",
                                                  "thresholds"};
  const std::string key = setting.substr(0, setting.find('='));
  return std::find(kTold.begin(), kTold.end(), key.substr(0, key.find('.'))) != kTold.end() ||
         key.starts_with("workload.lengths") || key == "constraints.ttl" || key == "constraints.ttft";
}

std::string key_of(const std::string& setting) { return setting.substr(0, setting.find('=')); }

struct Outcome {
  std::optional<std::string> impossible;
  Seconds time, tpot, ttft;
  MemoryUse memory;
  double room = 0;
};

Outcome outcome_of(const Study& s, const Plan& plan) {
  Outcome out;
  out.impossible = check_plan(s.study, plan);
  if (out.impossible) return out;
  const AllReduceRule rule = s.sweep().search.all_reduce;
  Evaluator e(s.study, rule);
  out.time = e.simulate(plan);
  out.memory = memory_use(s.study, plan);
  const Device& device = s.study.system.device;
  out.room = device.memory.value * device.usable_memory + s.study.memory_limit.value;
  const auto& workload = s.sweep().search.workload;
  if (!workload || !serves_prompts(s.study, plan.strategy)) return out;
  ServedWorkload load = *workload;
  load.users = plan.users();
  const ServedPlan served = ServedEvaluator(s.study, rule).of(plan, load);
  out.tpot = served.served.tpot;
  out.ttft = served.served.ttft;
  return out;
}

bool same(const Outcome& a, const Outcome& b) {
  constexpr double kAlike = 1e-9;
  const auto equal = [](double x, double y) {
    return std::abs(x - y) <= kAlike * std::max(std::abs(x), std::abs(y));
  };
  return a.impossible == b.impossible && equal(a.time.value, b.time.value) &&
         equal(a.tpot.value, b.tpot.value) && equal(a.ttft.value, b.ttft.value) &&
         equal(a.memory.total().value, b.memory.total().value) && equal(a.room, b.room);
}

bool changes(const Study& study, const Study& other, std::span<const Plan> plans) {
  return std::any_of(plans.begin(), plans.end(), [&](const Plan& plan) {
    return !same(outcome_of(study, plan), outcome_of(other, plan));
  });
}

}  // namespace

// What it makes of plans (`compare`) among them: those that it reports take as long without.
bool says_plans(const std::string& setting) {
  constexpr std::array<std::string_view, 11> kSearch{
      "name",        "summary", "strategies", "prefill_strategies", "gpus", "batch", "constraints", "compare",
      "all_reduces", "degrees", "options"};
  const std::string key = key_of(setting);
  return std::find(kSearch.begin(), kSearch.end(), key.substr(0, key.find('.'))) != kSearch.end() ||
         key.starts_with("plan") || key.starts_with("workload.users");
}

void add_idle_settings(std::vector<Diagnostic>& to, std::vector<Diagnostic> idle) {
  for (Diagnostic& d : idle) {
    const auto same = [&](const Diagnostic& known) {
      return known.where.file == kSettingOrigin && known.where.source_line == d.where.source_line;
    };
    if (std::none_of(to.begin(), to.end(), same)) to.push_back(std::move(d));
  }
}

std::vector<Diagnostic> idle_settings(const std::vector<std::string>& settings, bool calibrated,
                                      const std::function<bool(const std::vector<std::string>&)>& same) {
  std::vector<Diagnostic> out;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    std::vector<std::string> others = settings;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    try {
      if (!same(others)) continue;
    } catch (const UserError&) {
      continue;  // the question cannot be asked without it
    }
    Location where;
    where.file = kSettingOrigin;
    where.line = where.column = 1;
    where.source_line = settings[i];
    where.key = key_of(settings[i]);
    out.push_back(
        {where,
         key_of(settings[i]) + " changes nothing here: times and memory are the same without it",
         {sets_system(settings[i]) && calibrated
              ? "fits of measurements may stand in for it, which " + argument_given("costs", "parameters") +
                    " leaves out; intervals may be those of another machine all the same"
              : "what is reported does not depend on it"}});
  }
  return out;
}

std::vector<Diagnostic> idle_settings(const Study& study, std::span<const Plan> plans,
                                      const std::vector<std::string>& settings,
                                      std::span<const std::string> named,
                                      const std::function<Study(const std::vector<std::string>&)>& without) {
  if (plans.empty()) return {};
  const auto same = [&](const std::vector<std::string>& others) {
    const Study other = without(others);
    return std::all_of(named.begin(), named.end(),
                       [&](const std::string& text) {
                         return possible_plan(other, text) == possible_plan(study, text);
                       }) &&
           !changes(study, other, plans);
  };
  std::vector<Diagnostic> all = idle_settings(settings, !study.study.system.calibration.empty(), same);
  std::erase_if(all, [&](const Diagnostic& d) {
    return says_answer(d.where.source_line) || (named.empty() && says_plans(d.where.source_line));
  });
  return all;
}

}  // namespace shardline
