// Plans with what they do.
#include <cmath>

#include "planner/api/convert.hpp"
#include "planner/studies/plan_cost.hpp"
#include "planner/studies/plan_intervals.hpp"

namespace shardline::api {

namespace {

Degrees degrees_of(const Plan& p) {
  return {p.pp, p.dp, p.kvp, p.cp, p.tpa, p.ep, p.tpf, p.dense_tp, p.in_flight};
}

std::map<std::string, std::string> options_of(const Plan& p) {
  std::map<std::string, std::string> out;
  for (const OptionValues::Value& v : p.options.all()) out[v.option->key] = value_text(*v.option, p.options);
  return out;
}

// Numbers of a point; their ends are unknown without a rating.
class Numbers {
 public:
  Numbers(const Study& study, const Rating* rating) : rated_(rating != nullptr) {
    if (!rated_) return;
    time_ = plan_time_error(study, rating->errors);
    rate_ = plan_rate_error(study, rating->errors);
  }
  Estimate time(double value) const { return of(value, time_); }
  Estimate rate(double value) const { return of(value, rate_); }

 private:
  Estimate of(double value, const ErrorRange& error) const {
    return rated_ ? estimate(value, error) : Estimate{value};
  }

  bool rated_;
  ErrorRange time_, rate_;
};

void set_prefill(const Study& study, const Point& p, const Numbers& numbers, PlanPoint& out) {
  const PrefillMetrics m = prefill_metrics(study.study, p.time, p.plan);
  out.requests = std::llround(m.requests);
  out.attention_computed = attention_computed(study.study, p.plan);
  out.ttft_s = numbers.time(m.ttft.value);
  out.prompt_tokens_per_s_gpu = numbers.rate(m.new_tokens_per_s_gpu);
  out.gpu_seconds_per_request = numbers.time(m.gpu_seconds_per_request);
}

void set_decode(const Study& study, const Point& p, const Numbers& numbers, PlanPoint& out) {
  const DecodeMetrics m = decode_metrics(study.study, p.time, p.plan, p.decoding);
  out.waiting = p.all_waiting();
  out.requests = users_of(study.study, p.plan) + out.waiting;
  (workload_of(study) != nullptr ? out.tpot_s : out.ttl_s) = numbers.time(m.ttl.value);
  out.tokens_per_s_user = numbers.rate(m.tokens_per_s_user);
  out.tokens_per_s_gpu = numbers.rate(m.tokens_per_s_gpu);
  if (study.study.batch.prefills()) out.prompt_tokens_per_s_gpu = numbers.rate(m.prefilled_per_s_gpu);
}

void set_cost(const Study& study, const Point& p, const Rating& rating, PlanPoint& out) {
  const PlanCost cost = cost_of(study, p, rating);
  out.board_w = estimate_of(cost.watts);
  out.joules_per_token = estimate_of(cost.joules);
  out.cost_per_million_tokens = estimate_of(cost.per_million);
}

// Mean TTFT of served users, whose interval is known where their engine was measured.
void set_first_token(const Study& study, const Point& p, const ErrorTerms* errors, PlanPoint& out) {
  out.ttft_s = Estimate{p.ttft.value};
  out.ttft_burst_s = p.burst.value;
  out.memory_capped = point_preempts(study, p);
  if (errors == nullptr) return;
  const auto range = ttft_error(study, p, *errors);
  if (range) out.ttft_s = estimate(p.ttft.value, *range);
}

}  // namespace

PlanPoint plan_point(const Study& study, const Point& p, const Rating* rating, const ErrorTerms* ttft) {
  PlanPoint out;
  out.plan = to_string(p.asked());
  out.strategy = to_string(p.plan.strategy);
  out.exact = strategy(p.plan.strategy).exact;
  out.degrees = degrees_of(p.plan);
  out.options = options_of(p.plan);
  out.gpus = p.plan.gpus();
  out.batch = p.plan.batch;
  out.what = what_of(study);
  out.memory_bytes_per_gpu = p.memory.value;
  if (rating != nullptr) {
    out.shares = shares_of(rating->shares);
    set_cost(study, p, *rating, out);
  }
  const Numbers numbers(study, rating);
  if (study.study.batch.kind() == StepKind::prefill) {
    set_prefill(study, p, numbers, out);
  } else {
    set_decode(study, p, numbers, out);
    if (workload_of(study) != nullptr) set_first_token(study, p, ttft, out);
  }
  return out;
}

}  // namespace shardline::api
