// The same plan on another machine: more of one thing, or another system of the catalogue.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/studies/explanation.hpp"

namespace shardline {

namespace {

constexpr int kLargestBatch = 65'536;

struct More {
  const char* what;
  Knob knob;
  double factor;
};
constexpr More kMore[] = {{"1.5x HBM bandwidth", Knob::hbm, 1.5},
                          {"2x FLOP/s", Knob::flops, 2},
                          {"2x link bandwidth", Knob::links, 2},
                          {"half message latency", Knob::latency, 0.5},
                          {"half host times", Knob::host, 0.5}};
constexpr double kMoreMemory = 1.5;

void compare(Purchase& p, const PlanTimes& own, FitErrors errors) {
  p.time_ratio = p.times->time() / own.time();
  p.rate_ratio = p.times->tokens_per_s_gpu / own.tokens_per_s_gpu;
  p.band = ratio_band(p.times->errors, own.errors, errors);
}

Purchase priced(Purchase p, const Study& study, const PlanTimes& own, double times, FitErrors errors) {
  if (auto reason = cannot_run(study, own.waiting > 0 ? running(study, p.plan) : p.plan)) {
    p.why = *reason;
    return p;
  }
  p.times = times_of(study, p.plan, times);
  compare(p, own, errors);
  return p;
}

// More memory holds more requests: as many as before take as long.
Purchase more_memory(const Study& study, const Plan& plan, const PlanTimes& own) {
  Purchase out{
      fmt::format("{}x HBM capacity", kMoreMemory), "device.memory.capacity", plan, {}, "", 1, 1, {}};
  Study larger = study;
  larger.study.system.device.memory = study.study.system.device.memory * kMoreMemory;
  const int before = largest_batch(study.study, plan, kLargestBatch);
  const int after = largest_batch(larger.study, plan, kLargestBatch);
  if (before < 1 || after <= before) {
    out.why = "no larger batch fits";
    return out;
  }
  if (own.waiting > 0) return priced(std::move(out), larger, own, 1, FitErrors::shared);  // fewer wait
  if (plan.batch < before) {  // what a larger batch gives is no gift of more memory
    out.why = fmt::format("memory does not limit the batch: {} fit as it is", before);
    return out;
  }
  out.plan.batch =
      std::max(plan.batch, static_cast<int>(static_cast<long long>(plan.batch) * after / before));
  if (out.plan.batch == plan.batch) {
    out.why = "no larger batch fits";
    return out;
  }
  out.what = fmt::format("{}x HBM, batch {}", kMoreMemory, out.plan.batch);
  return priced(std::move(out), larger, own, 1, FitErrors::shared);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Purchase other_system(const std::string& name, const Plan& plan, const PlanTimes& own,
                      const std::vector<std::string>& settings, const WithSettings& with) {
  std::vector<std::string> others;
  for (const std::string& setting : settings) {
    if (!sets_system(setting) && !setting.starts_with("system=") && !setting.starts_with("gpus"))
      others.push_back(setting);
  }
  others.push_back("system=" + name);
  others.push_back(fmt::format("gpus=[{}]", plan.gpus()));
  Purchase out{name, "", plan, {}, "", 1, 1, {}};
  try {
    const Study other = with(others);
    const System& system = other.study.system;
    out.key = system.device.name;
    if (const auto refused = does_not_start(other.study, plan)) {
      out.why = refused->text;
      return out;
    }
    return priced(std::move(out), other, own, 1, FitErrors::unrelated);
  } catch (const UserError& e) {
    out.why = e.diagnostics().empty() ? first_line(e.what()) : e.diagnostics().front().what;
    return out;
  }
}

}  // namespace

std::vector<Purchase> purchases_of(const Study& study, const Plan& plan, const PlanTimes& own,
                                   const std::vector<std::string>& settings,
                                   const std::filesystem::path& systems, const WithSettings& with,
                                   std::size_t& unmeasured, const Advance& advance) {
  std::vector<Purchase> out;
  for (const More& more : kMore) {
    const auto s = changed(study, plan, more.knob, more.factor, ChangedMachine::another);
    if (!s) continue;
    const Purchase p{more.what, std::string(meaning(more.knob)), s->plan, {}, "", 1, 1, {}};
    out.push_back(priced(p, s->study, own, s->times, FitErrors::shared));
    if (advance) advance(1);
  }
  if (study.study.batch.kind() != StepKind::prefill) out.push_back(more_memory(study, plan, own));
  for (const std::string& name : system_names(systems)) {
    if (name == study.study.system.name) continue;
    // Costs of a system that nothing was measured of are not of the same kind.
    if (!study.study.system.calibration.empty() && load_system(name, systems).calibration.empty()) {
      ++unmeasured;
    } else {
      out.push_back(other_system(name, plan, own, settings, with));
    }
    if (advance) advance(1);
  }
  return out;
}

}  // namespace shardline
