#include "planner/studies/plan_cost.hpp"

#include <fmt/format.h>

#include "planner/search/evaluate.hpp"
#include "planner/studies/plan_intervals.hpp"

namespace shardline {

namespace {

constexpr double kHour = 3600, kMillion = 1e6;

double tokens_per_s_gpu(const Study& study, const Point& p) {
  const Case& c = study.study;
  if (c.batch.kind() == StepKind::prefill) return prefill_metrics(c, p.time, p.plan).new_tokens_per_s_gpu;
  return decode_metrics(c, p.time, p.plan, p.decoding).tokens_per_s_gpu;
}

}  // namespace

double money_per_million(double gpu_hour, double tokens_per_s_gpu) {
  return gpu_hour / kHour / tokens_per_s_gpu * kMillion;
}

std::string cost_digits(double value) {
  constexpr double kWhole = 10;
  return value >= kWhole ? fmt::format("{:.0f}", value) : fmt::format("{:.2g}", value);
}

PlanCost cost_of(const Study& study, const Rating& rating, double rate) {
  PlanCost out;
  if (!(rate > 0)) return out;
  const ErrorRange of_rate = plan_rate_error(study, rating.errors);
  if (const double watts = rating.watts.total(); watts > 0) {
    const ErrorRange error = watts_error(study.study.system.power, rating.watts);
    out.watts = CostNumber{watts, error};
    out.joules = CostNumber{watts / rate, energy_error(error, of_rate)};
  }
  if (study.gpu_hour > 0)
    out.per_million = CostNumber{money_per_million(study.gpu_hour, rate), energy_error({}, of_rate)};
  return out;
}

PlanCost cost_of(const Study& study, const Point& p, const Rating& rating) {
  return cost_of(study, rating, tokens_per_s_gpu(study, p));
}

PlanCost pair_cost(const Study& study, const SweepAnswer& answer, const PoolPair& p) {
  Rating rating;
  rating.errors = pair_errors(answer, p);
  rating.watts = pair_watts(answer, p);
  return cost_of(study, rating, p.output_per_s_gpu);
}

PlanCost whole_cost(const Study& study, const SweepAnswer& answer, const PoolPair& p) {
  Rating rating;
  rating.errors = whole_errors(answer, p);
  rating.watts = whole_watts(answer, p, study.study.system.power);
  return cost_of(study, rating, p.whole_output_per_s_gpu);
}

std::string cost_text(const Study& study, const PlanCost& cost) {
  const auto range = [](const CostNumber& n) {
    return cost_digits(n.value * (1 + n.error.low)) + " to " + cost_digits(n.value * (1 + n.error.high));
  };
  // Steps that decode alone have no prompts in their costs, as a deployment has.
  const char* const of = study.study.batch.kind() == StepKind::prefill ? "prompts"
                         : workload_of(study) != nullptr               ? "answers"
                                                                       : "answers in these steps alone";
  std::string out;
  if (cost.joules)
    out = fmt::format("{} J per token of {} (90 %: {}), GPU boards at {:.0f} W{}",
                      cost_digits(cost.joules->value), of, range(*cost.joules), cost.watts->value,
                      power_text(study.study.system));
  if (cost.per_million)
    out +=
        fmt::format("{}{} per million tokens of {} at {:g} per GPU-hour (90 %: {})", out.empty() ? "" : "; ",
                    cost_digits(cost.per_million->value), of, study.gpu_hour, range(*cost.per_million));
  return out;
}

std::string power_text(const System& s) {
  return s.power.like.empty() ? "" : ", scaled from " + s.power.like;
}

}  // namespace shardline
