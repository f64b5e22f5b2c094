// Why a plan takes as long as it does, and two plans side by side.
#include "planner/api/convert_explain.hpp"

#include <cmath>

#include "planner/api/convert.hpp"

namespace shardline::api {

namespace {

Estimate of(const Sensitivity& s) { return {s.value, s.low, s.high}; }

Estimate ratio_of(double ratio, const ErrorBand& band) {
  return {ratio, ratio * std::exp(band.low), ratio * std::exp(band.high)};
}

ErrorRange error_of(const Study& study, const PlanTimes& t) {
  return t.served() ? served_time_error(*study.study.engine, t.errors) : time_error(t.errors);
}

// TTL, TPOT or TTFT, whichever it is.
template <class To>
void set_time(const Study& study, const PlanTimes& t, To& to) {
  const Estimate time = estimate(t.time().value, error_of(study, t));
  if (study.study.batch.kind() == StepKind::prefill) {
    to.ttft_s = time;
  } else {
    (t.served() ? to.tpot_s : to.ttl_s) = time;
  }
}

Bottleneck bottleneck_of(const shardline::Bottleneck& b) {
  Bottleneck out{b.name, b.time.value, b.share, {}, b.text};
  for (const auto& [name, time] : b.parts)
    out.parts.push_back({name, time.value, b.time > Seconds(0) ? time / b.time * b.share : 0});
  return out;
}

Elasticity elasticity_of(const shardline::Elasticity& e) {
  Elasticity out;
  out.of = to_string(e.knob);
  out.means = meaning(e.knob);
  out.from_factor = e.from;
  out.to_factor = e.to;
  out.time = of(e.time);
  if (e.ttft) out.ttft = of(*e.ttft);
  out.tokens_per_s_gpu = of(e.rate);
  return out;
}

Rival rival_of(const Study& study, const shardline::Rival& r) {
  Rival out;
  out.plan = to_string(r.plan);
  out.strategy = to_string(r.plan.strategy);
  set_time(study, r.times, out);
  out.ratio = ratio_of(r.ratio, r.band);
  out.told_apart = r.told_apart;
  for (const shardline::Turnover& t : r.turnovers)
    out.turnovers.push_back({std::string(to_string(t.knob)), t.factor, t.why});
  return out;
}

Purchase purchase_of(const Study& study, const shardline::Purchase& p) {
  Purchase out;
  out.what = p.what;
  out.means = p.key;
  out.plan = to_string(p.plan);
  out.why = p.why;
  if (!p.times) return out;
  out.users = p.times->users;
  set_time(study, *p.times, out);
  if (p.times->served()) {
    const auto error = ttft_error(study, *p.times);
    out.ttft_s = error ? estimate(p.times->ttft.value, *error) : Estimate{p.times->ttft.value};
  }
  out.tokens_per_s_gpu = estimate(p.times->tokens_per_s_gpu, rate_error(study, *p.times));
  out.time_ratio = ratio_of(p.time_ratio, p.band);
  out.tokens_per_s_gpu_ratio = ratio_of(p.rate_ratio, {-p.band.high, -p.band.low});
  out.extrapolated = p.times->extrapolated;
  return out;
}

ComparedPlan compared(const Study& study, const SimulatedPlan& s) {
  ComparedPlan out;
  out.plan = to_string(s.plan);
  out.fits = !s.misfit;
  out.misfit = s.misfit.value_or("");
  if (s.refusal) out.refusal = Refusal{s.refusal->rule, s.refusal->says, s.refusal->text, s.refusal->source};
  out.memory = memory_of(study.study.system, s.memory);
  if (!out.fits) return out;
  out.outcome = outcome_of(study, s);
  if (s.served) out.served = served_of(study, s);
  for (const PricedCollective& c : s.collectives) out.collectives.push_back(collective_of(c));
  return out;
}

}  // namespace

ExplainResult explain_result(const Study& study, const Explanation& e) {
  ExplainResult out;
  const SimulatedPlan& s = e.simulated;
  out.setting = setting_of(study);
  out.plan = to_string(s.plan);
  out.fits = !s.misfit;
  out.misfit = s.misfit.value_or("");
  out.met = keeps_constraints(study, s);
  if (!out.fits) return out;
  out.outcome = outcome_of(study, s);
  if (s.served) out.served = served_of(study, s);
  for (const shardline::Bottleneck& b : e.bottlenecks) out.bottlenecks.push_back(bottleneck_of(b));
  for (const shardline::Elasticity& x : e.elasticities) out.elasticities.push_back(elasticity_of(x));
  for (const NoElasticity& n : e.without) {
    Elasticity none;
    none.of = to_string(n.knob);
    none.means = meaning(n.knob);
    none.why = n.why;
    out.elasticities.push_back(std::move(none));
  }
  out.compared = e.rivals.compared;
  out.equal_users = e.rivals.equal_users;
  for (const shardline::Rival& r : e.rivals.best) out.rivals.push_back(rival_of(study, r));
  for (const shardline::Purchase& p : e.purchases) out.purchases.push_back(purchase_of(study, p));
  out.unmeasured = e.unmeasured;
  out.warnings = warnings_of(s.unread, s.narrow);
  return out;
}

CompareResult compare_result(const Study& study, const PlanComparison& c) {
  CompareResult out;
  out.setting = setting_of(study);
  out.plans = {compared(study, c.first), compared(study, c.second)};
  out.met = keeps_constraints(study, c.first);
  for (const shardline::ComparedRow& r : c.rows)
    out.rows.push_back({std::string(to_string(r.as)), r.name, r.first, r.second});
  out.warnings = warnings_of(c.first.unread, c.first.narrow);
  for (Diagnostic& d : warnings_of(c.second.unread, c.second.narrow)) out.warnings.push_back(std::move(d));
  if (!c.both()) return out;
  out.time_ratio = ratio_of(c.time_ratio, c.shared);
  out.tokens_per_s_gpu_ratio = ratio_of(c.rate_ratio, c.rate_shared);
  out.told_apart = c.told_apart(FitErrors::shared);
  out.told_apart_unrelated = c.told_apart(FitErrors::unrelated);
  return out;
}

}  // namespace shardline::api
