#include "planner/studies/conversation.hpp"
#include "planner/strategies/strategy.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace shardline {

namespace {

Plan plan_of(const Conversation& talk, StrategyId id) {
  Plan p;
  p.strategy = id;
  p.cp = talk.cp;
  p.tpa = p.tpf = talk.tpa;
  return p;
}

void require(const Case& c, const Plan& p, std::size_t turn) {
  if (const auto reason = check_plan(c, p))
    throw UserError(fmt::format("turn {}: plan {} is impossible: {}", turn + 1, to_string(p), *reason));
  if (const auto reason = does_not_fit(c, memory_use(c, p)))
    throw UserError(fmt::format("turn {} does not fit {}: {}", turn + 1, c.system.name, *reason));
}

}  // namespace

std::vector<TurnTime> converse(const Study& study,
                               const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const Conversation& talk = study.conversation();
  const Plan kv = plan_of(talk, strategy_id("ring_pass_kv")), q = plan_of(talk, strategy_id("ring_pass_q")),
             decode = plan_of(talk, strategy_id("ring_decode"));
  const auto cache = std::make_shared<Placement>(talk.cp, 1);
  std::vector<TurnTime> out;
  Case prefill = study.study, answer = study.study;
  prefill.placement = cache;
  Evaluator prefills(prefill), decodes(answer);
  for (const Turn& turn : talk.turns) {
    if (progress) progress(out.size(), talk.turns.size());
    TurnTime t;
    t.cached = cache->length(0);
    t.fresh = turn.fresh;
    t.output = turn.output;
    prefill.batch = prefill_batch({{t.cached, t.fresh}});
    require(prefill, kv, out.size());
    t.pass_kv = prefills.simulate(kv);
    t.pass_q = prefills.simulate(q);
    t.kv_chosen = t.pass_kv <= t.pass_q;
    t.answer = t.ttft();
    const Rating by_kv = rating_of(prefills, kv), by_q = rating_of(prefills, q);
    t.kv_errors = by_kv.errors;
    t.q_errors = by_q.errors;
    Rating turn_rating = t.kv_chosen ? by_kv : by_q;
    cache->prefill(0, turn.fresh);
    if (turn.output > 0) {
      // The prefill gives the first token of the answer; each step appends the one before it.
      const long long context = cache->length(0);
      answer.batch = decode_batch(context + 1);
      t.first_ttl = decodes.simulate(decode);
      answer.batch = decode_batch(context + turn.output);
      require(answer, decode, out.size());
      t.last_ttl = decodes.simulate(decode);
      t.answer += (t.first_ttl + t.last_ttl) * (static_cast<double>(turn.output - 1) / 2);
      const Rating last = rating_of(decodes, decode);
      t.ttl_errors = last.errors;
      turn_rating = turn_rating * (t.ttft() / t.answer);
      turn_rating += last * (1 - t.ttft() / t.answer);
      cache->decode(0, turn.output);
    }
    t.shares = turn_rating.shares;
    t.errors = turn_rating.errors;
    cache->forget_positions();  // else every turn would look at the intervals of all before it
    t.fullest = t.emptiest = cache->count(0, 0);
    for (int r = 1; r < talk.cp; ++r) {
      t.fullest = std::max(t.fullest, cache->count(r, 0));
      t.emptiest = std::min(t.emptiest, cache->count(r, 0));
    }
    answer.batch = decode_batch(cache->length(0));
    t.kv_per_gpu = memory_use(answer, decode).kv;
    out.push_back(t);
  }
  return out;
}

TtftTotals ttft_totals(const std::vector<TurnTime>& turns) {
  TtftTotals all;
  for (const TurnTime& turn : turns) {
    all.chosen += turn.ttft();
    all.pass_kv += turn.pass_kv;
    all.pass_q += turn.pass_q;
  }
  return all;
}

}  // namespace shardline
