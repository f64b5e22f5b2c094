// Prompts and answers on pools of their own.
#include <cmath>

#include "planner/api/convert.hpp"
#include "planner/studies/plan_cost.hpp"
#include "planner/studies/plan_intervals.hpp"

namespace shardline::api {

namespace {

// Of a TTFT, by loops of about as many users as wait for the same server.
Estimate first_token(const Study& study, const shardline::PoolPair& p, Seconds ttft, double users,
                     const ErrorTerms& errors) {
  const auto range = point_preempts(study, p.decode)
                         ? std::nullopt
                         : served_ttft_error(*study.study.engine, false, std::round(users), errors);
  if (range) return estimate(ttft.value, *range);
  Estimate out;
  out.value = ttft.value;
  return out;
}

template <class Out>
void set_cost(const PlanCost& cost, Out& out) {
  out.board_w = estimate_of(cost.watts);
  out.joules_per_token = estimate_of(cost.joules);
  out.cost_per_million_tokens = estimate_of(cost.per_million);
}

WholePools whole_of(const Study& study, const SweepAnswer& answer, const shardline::PoolPair& p) {
  const shardline::WholePools& w = p.whole;
  WholePools out;
  out.prefill_replicas = w.prefill;
  out.decode_replicas = w.decode;
  out.gpus = w.gpus;
  out.users = w.decode * (p.decode.plan.users() + p.decode.all_waiting());
  out.ttft_s = first_token(study, p, p.whole_loop.ttft, p.whole_users(), first_token_errors(answer, p));
  out.ttft_burst_s = p.whole_loop.burst.value;
  out.handoff_s = p.whole_handoff.value;
  out.tokens_per_s_gpu = estimate(p.whole_output_per_s_gpu, plan_rate_error(study, whole_errors(answer, p)));
  out.prompts_together = p.whole_loop.together;
  out.prefill_busy = p.whole_loop.prefill_busy;
  out.decode_busy = p.whole_loop.decode_busy;
  set_cost(whole_cost(study, answer, p), out);
  return out;
}

PoolPair pair_of(const Study& study, const SweepAnswer& answer, const shardline::PoolPair& p) {
  const ErrorTerms& decode = answer.pool_decoders.of(p.decode.plan).errors;
  PoolPair out;
  out.decode_plan = to_string(p.decode.plan);
  out.decode_gpus = p.decode.plan.gpus();
  out.decode_users = p.decode.plan.users() + p.decode.all_waiting();
  out.prefill_plan = to_string(p.prefill.plan);
  out.prefill_gpus = p.prefill.plan.gpus();
  out.what = what_of(study) + ", prompts and answers on separate pools";
  out.tpot_s = estimate(p.decode.time.value, plan_time_error(study, decode));
  out.ttft_s = first_token(study, p, p.loop.ttft, p.users, first_token_errors(answer, p));
  out.ttft_burst_s = p.loop.burst.value;
  out.memory_capped = point_preempts(study, p.decode);
  out.tokens_per_s_user = estimate(1 / p.decode.time.value, plan_rate_error(study, decode));
  out.tokens_per_s_gpu = estimate(p.output_per_s_gpu, plan_rate_error(study, pair_errors(answer, p)));
  out.prefill_users = p.users;
  out.prompts_together = p.loop.together;
  out.most_prompts_a_step = p.prefill.step.prompts;
  out.tokens_a_step = p.prefill.step.tokens();
  out.prompt_s = p.prefill.server.prompt(p.loop.together).value;
  out.prefill_requests_per_s_gpu = p.prefill_requests_per_s_gpu();
  out.handoff_s = p.handoff.value;
  out.prefill_gpus_per_decode_gpu = p.prefill_gpus;
  set_cost(pair_cost(study, answer, p), out);
  if (p.whole.gpus > 0) out.whole = whole_of(study, answer, p);
  return out;
}

}  // namespace

std::vector<PoolPair> pool_pairs_of(const Study& study, const SweepAnswer& answer) {
  std::vector<PoolPair> out;
  for (const shardline::PoolPair& p : answer.pools) out.push_back(pair_of(study, answer, p));
  return out;
}

}  // namespace shardline::api
