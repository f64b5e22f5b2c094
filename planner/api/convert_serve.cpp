#include "planner/api/convert_serve.hpp"

#include <cmath>

#include "planner/api/convert.hpp"
#include "planner/search/provenance.hpp"
#include "planner/studies/played_cost.hpp"

namespace shardline::api {

namespace {

// The question again, with what was found for it.
ServeQuestion answered(const ServeQuestion& asked, const ServiceQuestion& q) {
  ServeQuestion out = asked;
  out.plan = to_string(q.plan);
  if (q.prefill) out.prefill = to_string(q.prefill->plan);
  out.trace = q.trace.empty() ? std::nullopt : std::optional(q.trace);
  out.input_tokens = q.input;
  out.output_tokens = q.output;
  out.lengths = q.lengths == LengthLaw::equal ? "equal" : "drawn";
  out.requests = static_cast<long long>(q.requests);
  out.router = to_string(q.router);
  if (q.rate > 0) out.requests_per_s = q.rate;
  return out;
}

EngineKnobs knobs_of(const ServiceKnobs& k) {
  return {k.step_tokens(), k.requests(), k.block(), k.blocks(), k.longest(), k.finds()};
}

ServedDrafts drafts_of(const AcceptedLength& of, std::uint64_t seed) {
  return {of.k,
          of.mean,
          acceptance_basis_name(of.basis),
          of.mean * std::exp(of.band.low),
          of.mean * std::exp(of.band.high),
          static_cast<long long>(seed)};
}

ServedLatency latency_of(Latency of, const ToldLatency& told) {
  ServedLatency out;
  out.latency = to_string(of);
  out.mean_s = told.mean;
  out.count = static_cast<long long>(told.count);
  for (std::size_t q = 0; q < kToldQuantiles.size(); ++q)
    out.quantiles.push_back({kToldQuantiles[q], told.quantiles[q], told.half_widths[q]});
  return out;
}

}  // namespace

std::vector<ServedLatency> latencies_of(const ServedLoadAnswer& load) {
  std::vector<ServedLatency> out;
  for (const Latency of : kLatencies)
    out.push_back(latency_of(of, load.latencies[static_cast<std::size_t>(of)]));
  return out;
}

std::vector<ServedTarget> targets_of(const ServedLoadAnswer& load) {
  std::vector<ServedTarget> out;
  for (const TargetResult& t : load.targets)
    out.push_back(
        {std::string(to_string(t.target.of)), t.target.quantile, t.target.most.value, t.measured, t.met});
  return out;
}

namespace {

ServedPools pools_of(const ServedPair& p, const ServiceKnobs& knobs, const PlayedCost& cost) {
  return {knobs_of(knobs),
          p.prefill_gpus,
          p.decode_gpus,
          p.prefill_busy,
          p.decode_busy,
          p.sending,
          p.reading,
          p.prompt.mean,
          p.room.mean,
          p.transfer.mean,
          p.transfer.p99,
          p.begin.mean,
          p.tokens_read,
          static_cast<long long>(p.given_up),
          static_cast<long long>(p.local_prefills),
          p.prefill_down,
          static_cast<long long>(p.cut_transfers),
          static_cast<long long>(p.failed_loads),
          static_cast<long long>(p.recomputed),
          p.lost_tokens,
          p.prefill_dummies,
          p.decode_dummies,
          estimate_of(cost.prefill_watts),
          estimate_of(cost.decode_watts)};
}

}  // namespace

ServeResult serve_result(const AskedService& asked, const ServiceAnswer& answer,
                         const ServeQuestion& question) {
  const Study& study = asked.study;
  const ServedLoadAnswer& load = answer.load;
  ServeResult r;
  r.setting = setting_of(study);
  r.question = answered(question, answer.question);
  if (r.setting.workload) r.setting.workload->lengths = r.question.lengths;
  r.knobs = knobs_of(answer.knobs);
  r.met = load.met;
  if (answer.bracket) r.largest_rate = {answer.bracket->low, answer.bracket->high, answer.bracket->plays};
  r.latencies = latencies_of(load);
  r.targets = targets_of(load);
  r.gpus = static_cast<long long>(answer.question.plan.gpus()) * answer.question.replicas;
  const PlayedCost cost = played_cost(study, answer);
  if (load.pair) {
    r.gpus = load.pair->prefill_gpus + load.pair->decode_gpus;
    r.pools = pools_of(*load.pair, *answer.prefill_knobs, cost);
  }
  if (answer.accepted) r.drafts = drafts_of(*answer.accepted, answer.question.seed);
  r.sent = static_cast<long long>(load.sent);
  r.answered = static_cast<long long>(load.answered);
  r.refused = static_cast<long long>(load.refused);
  r.retried = static_cast<long long>(load.retried);
  r.unserved = static_cast<long long>(load.unserved);
  r.preemptions = static_cast<long long>(load.preemptions);
  r.steps = static_cast<long long>(load.steps);
  r.seconds = load.seconds;
  r.requests_per_s = load.requests_per_s;
  r.goodput_per_s = load.goodput;
  const auto rate = answer.rate_error(*study.study.engine);
  const auto as_they_come = [](double v) { return Estimate{v}; };
  r.output_tokens_per_s_gpu =
      rate ? estimate(load.output_per_s_gpu, *rate) : as_they_come(load.output_per_s_gpu);
  r.input_tokens_per_s_gpu =
      rate ? estimate(load.input_per_s_gpu, *rate) : as_they_come(load.input_per_s_gpu);
  if (load.answered > 0) {
    const ErrorRange prices = served_time_error(*study.study.engine, answer.step_errors);
    r.prices_low = prices.low;
    r.prices_high = prices.high;
  }
  r.prefix_hits = load.found;
  r.time_with_prompts = load.prompting;
  r.time_decoding = load.decoding;
  r.time_idle = load.idle;
  r.time_down = load.down;
  r.running = load.running;
  r.waiting = load.waiting;
  r.kv_held = load.kv_held;
  r.kv_most = load.kv_most;
  r.queue_growth_per_s = load.growth_per_s;
  r.board_w = estimate_of(cost.watts);
  r.energy_j = estimate_of(cost.joules);
  r.joules_per_token = estimate_of(cost.joules_per_token);
  r.cost_per_million_tokens = estimate_of(cost.per_million);
  r.step_error = answer.step_error;
  r.warnings = diagnostics_of(model_notes(study.study));
  for (Diagnostic& d : warnings_of(asked.warnings, answer.narrow)) r.warnings.push_back(std::move(d));
  return r;
}

}  // namespace shardline::api
