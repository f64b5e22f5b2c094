// Prompts and answers on pools of their own.
#include "planner/api/convert.hpp"
#include "planner/studies/plan_intervals.hpp"

namespace shardline::api {

namespace {

WholePools whole_of(const Study& study, const SweepAnswer& answer, const shardline::PoolPair& p) {
  const shardline::WholePools& w = p.whole;
  return {w.prefill,
          w.decode,
          w.gpus,
          w.decode * (p.decode.plan.users() + p.decode.all_waiting()),
          estimate(p.whole_output_per_s_gpu, plan_rate_error(study, whole_errors(answer, p))),
          w.prefill_busy,
          w.decode_busy};
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
  out.ttft_s.value = p.ttft.value;
  const auto first = ttft_error(study, p.decode, first_token_errors(answer, p));
  if (first) out.ttft_s = estimate(p.ttft.value, *first);
  out.tokens_per_s_user = estimate(1 / p.decode.time.value, plan_rate_error(study, decode));
  out.tokens_per_s_gpu = estimate(p.output_per_s_gpu, plan_rate_error(study, pair_errors(answer, p)));
  out.prompt_s = p.prefill.prompt.value;
  out.prefill_requests_per_s_gpu = p.prefill.requests_per_s_gpu;
  out.handoff_s = p.handoff.value;
  out.prefill_gpus_per_decode_gpu = p.prefill_gpus;
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
