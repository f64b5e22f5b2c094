#include "planner/studies/plan_intervals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "planner/serving/served_plan.hpp"

namespace shardline {

bool point_preempts(const Study& study, const Point& p) {
  ServedWorkload load = *workload_of(study);
  load.users = p.plan.users() + p.all_waiting();
  return preempts(study.study, p.plan, load);
}

std::optional<ErrorRange> ttft_error(const Study& study, const Point& p, const ErrorTerms& errors) {
  if (point_preempts(study, p)) return std::nullopt;
  return served_ttft_error(*study.study.engine, workload_of(study)->equal_lengths,
                           static_cast<double>(p.plan.users() + p.all_waiting()), errors);
}

const char* const kWhatIntervalsAre =
    "nominal 90 % by the prices of bare kernels; the engine around them is not in it";

namespace {

// "trtllm, sglang or vllm": whose kernels may run, where nobody says whose; else empty.
std::string open_frameworks(const Case& c) {
  if (!c.frameworks) return "";
  const std::vector<std::string> others = c.frameworks->names(c.system);
  std::string out = others.empty() ? "" : c.system.kernels.framework;
  for (const std::string& other : others) out += (other == others.back() ? " or " : ", ") + other;
  return out;
}

}  // namespace

const ServedWorkload* workload_of(const Study& study) {
  const Sweep* sweep = std::get_if<Sweep>(&study.question);
  return sweep != nullptr && sweep->search.workload ? &*sweep->search.workload : nullptr;
}

std::string rates_of_what(const Study& study) {
  const Case& c = study.study;
  const char* const steps = c.batch.kind() == StepKind::decode ? "decode only" : "steps alone";
  if (!c.engine) return fmt::format("{} by bare kernels", steps);
  const std::string engine = c.engine->title + " " + c.engine->version;
  return fmt::format("{} {}", workload_of(study) != nullptr ? "served by" : fmt::format("{} under", steps),
                     engine);
}

ErrorRange plan_time_error(const Study& study, const ErrorTerms& errors) {
  return workload_of(study) != nullptr ? served_time_error(*study.study.engine, errors) : time_error(errors);
}

ErrorRange plan_rate_error(const Study& study, const ErrorTerms& errors) {
  return workload_of(study) != nullptr ? served_rate_error(*study.study.engine, errors) : rate_error(errors);
}

std::string what_intervals_are(const Case& c) {
  if (const std::string open = open_frameworks(c); !open.empty())
    return fmt::format(
        "nominal 90 % by the prices of bare kernels of {} (none is named); the engine "
        "around them is not in it",
        open);
  if (!c.engine) return kWhatIntervalsAre;
  return fmt::format(
      "nominal 90 % by the prices of kernels, the fitted host times of {} {} with the band of its profile",
      c.engine->title, c.engine->version);
}

bool comparable(const RatedPoints& rated) {
  std::set<StrategyId> ids;
  bool several = false;
  for (const Point& p : rated.points) ids.insert(p.plan.strategy);
  for (const Rating& r : rated.ratings)
    several = several || std::any_of(r.errors.all().begin(), r.errors.all().end(), [](const ErrorTerm& t) {
                return t.source != kAssumedSource && t.source != kHostSource;
              });
  return ids.size() > 1 && several;
}

}  // namespace shardline
