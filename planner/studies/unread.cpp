#include "planner/studies/unread.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "planner/scenario/shipped.hpp"

namespace shardline {

namespace {

// Fitted prices are kept as demands of the parameters' rates and a rest: a change of those rounds them.
constexpr double kRounding = 1e-9;

// The plans' times on this system, and whether another one with one figure changed has others.
class TimedPlans {
 public:
  TimedPlans(const Case& c, std::span<const Plan> plans, AllReduceRule rule)
      : cases_{c}, plans_(plans), rule_(rule) {
    // Plans that serve take prompts beside their steps, which other figures may tell.
    if (c.served.input > 0 && c.batch.kind() != StepKind::prefill) {
      cases_.push_back(c);
      cases_.back().batch = prefill_batch({{0, c.served.input, 1}});
    }
    for (const Case& each : cases_) {
      Evaluator e(each, rule);
      for (const Plan& plan : plans) times_.push_back(time_of(e, each, plan));
    }
  }

  bool depends_on(const MachineFigure& figure, double value) const {
    std::size_t at = 0;
    for (const Case& each : cases_) {
      Case other = each;
      figure.set(other.system, value);
      Evaluator e(other, rule_);
      for (const Plan& plan : plans_) {
        const Seconds before = times_[at++], now = time_of(e, other, plan);
        if (std::abs((now - before).value) > kRounding * std::max(before, now).value) return true;
      }
    }
    return false;
  }

 private:
  // 0: the plan cannot be, which its system tells, too (runtime.host_layer), or has no such step.
  static Seconds time_of(Evaluator& e, const Case& c, Plan plan) {
    if (c.batch.kind() == StepKind::prefill) plan.batch = 1;
    return check_plan(c, plan) ? Seconds(0) : e.simulate(plan);
  }

  std::vector<Case> cases_;
  std::span<const Plan> plans_;
  AllReduceRule rule_;
  std::vector<Seconds> times_;
};

struct Changed {
  const MachineFigure* figure;
  double measured;
  Location where;
};

// A borrowed calibration is of a machine with other figures, which nobody who takes a shipped system wrote.
bool is_shipped(const Location& where) {
  std::error_code error;
  return std::filesystem::equivalent(std::filesystem::path(where.file).parent_path(),
                                     shipped_catalogs().systems, error);
}

std::vector<Changed> changed_parameters(const System& system) {
  const MeasuredMachine& machine = system.calibration.machine;
  std::vector<Changed> out;
  for (const KeyPlace& place : system.places) {
    if (is_shipped(place.where)) continue;
    for (std::size_t i = 0; i < machine.figures.size(); ++i) {
      const MachineFigure& f = machine_figures()[i];
      if (f.key != place.key || f.use != FigureUse::parameter) continue;
      const std::optional<double> measured = machine.figure(i);
      const double now = f.of(system);
      if (measured && std::abs(now - *measured) > 1e-6 * std::max(now, *measured))
        out.push_back({&f, *measured, place.where});
    }
  }
  return out;
}

Case by_parameters(Case c) {
  c.system.calibration = {};
  return c;
}

}  // namespace

std::vector<Diagnostic> unread_parameters(const Case& c, std::span<const Plan> plans, AllReduceRule rule) {
  std::vector<Diagnostic> out;
  if (c.system.calibration.empty() || c.system.calibration.machine.empty()) return out;
  const std::vector<Changed> changed = changed_parameters(c.system);
  if (changed.empty()) return out;
  const TimedPlans fitted(c, plans, rule), parameters(by_parameters(c), plans, rule);
  for (const Changed& key : changed) {
    if (fitted.depends_on(*key.figure, key.measured)) continue;
    out.push_back({key.where,
                   fmt::format("{} changes nothing here: these plans take as long with that of {}",
                               key.figure->key, c.system.calibration.machine.system),
                   {parameters.depends_on(*key.figure, key.measured)
                        ? "fits of measurements stand in for it; with costs: parameters it counts"
                        : "nor does it with costs: parameters"}});
  }
  return out;
}

}  // namespace shardline
