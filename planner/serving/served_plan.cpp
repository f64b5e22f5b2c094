#include "planner/serving/served_plan.hpp"

#include <algorithm>

#include "planner/engines/launchable.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/layers/share.hpp"
#include "planner/layers/step.hpp"
#include "planner/layers/two_batches.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr int kMostUsers = 1'000'000;  // of one attention group, as scenarios name them

// The cut of a prompt into chunks: whole ones and a rest.
struct Chunks {
  long long size = 0, whole = 0, rest = 0;
  long long count() const { return whole + (rest > 0 ? 1 : 0); }
};

Chunks chunks_of(long long input, long long room) {
  const long long size = std::max<long long>(1, std::min(input, room));
  return {size, input / size, input % size};
}

// Of all chunks, from the time of one. It rises evenly with the tokens before it: the mean of the first and
// the last whole one.
template <class Time>
Seconds all_chunks(const Chunks& chunks, Time time) {
  Seconds out = time(0, chunks.size);
  if (chunks.whole > 1) {
    out += time((chunks.whole - 1) * chunks.size, chunks.size);
    out = out * (static_cast<double>(chunks.whole) / 2);
  }
  if (chunks.rest > 0) out += time(chunks.whole * chunks.size, chunks.rest);
  return out;
}

}  // namespace

bool preempts(const Case& c, Plan plan, const ServedWorkload& workload) {
  if (!c.engine || c.engine->admission != Admission::used) return false;
  plan.batch = 1;
  const long long each = std::clamp<long long>(workload.users / plan.users(), 1, kMostUsers);
  Case whole = c;
  whole.served = {workload.input, workload.output};
  whole.batch = decode_batch(whole.served.total());
  return largest_batch(whole, plan, static_cast<int>(each)) < each;
}

bool serves_prompts(const Case& c, StrategyId id) {
  const Strategy& s = strategy(id);
  if (c.engine && answers_alone(*c.engine, s)) return false;
  const bool first = c.engine && c.engine->prefill == PrefillPolicy::first;
  return s.decodes && (first ? s.prefills : s.mixes);
}

ServedEvaluator::ServedEvaluator(const Case& c, AllReduceRule rule, std::shared_ptr<FabricCache> cache)
    : case_(c), evaluator_(case_, rule, std::move(cache)) {
  SL_CHECK(case_.engine != nullptr, "who serves is known");
}

// The whole step: an evaluator's times are of a token, of which one with drafts yields several.
Seconds ServedEvaluator::step(const Plan& plan, const Batch& batch) {
  case_.batch = batch;
  return evaluator_.simulate(with_both_halves(case_, plan)) * tokens_per_step(case_, plan);
}

Seconds ServedEvaluator::step_of_one(const Plan& plan, const Batch& batch, const Batch& others) {
  const auto rows = [&](const Batch& b) {
    Count out = 0;
    for (const Segment& s : b.decode) out += s.count * new_tokens(plan);
    for (const Segment& s : b.prefill) out += s.fresh * s.count;
    return out;
  };
  const auto sequences = [](const std::vector<Segment>& of) {
    Count out = 0;
    for (const Segment& s : of) out += s.count;
    return out;
  };
  const Count beside = plan.dp - 1, prompts = sequences(batch.prefill), decodes = sequences(batch.decode);
  GroupRows all;
  all.rows = rows(batch) + beside * rows(others);
  all.most = std::max(rows(batch), rows(others));
  all.decodes = decodes + beside * sequences(others.decode);
  all.prompts = prompts;
  all.busiest = std::max(prompts + decodes, sequences(others.decode));
  const auto timed = [&](const Batch& b) {
    set_groups(case_, plan, all);
    const Seconds out = step(plan, b);
    case_.groups.reset();
    return out;
  };
  return std::max(timed(batch), others.decode.empty() ? Seconds(0) : timed(others));
}

double ServedEvaluator::steps_of(const Plan& plan, long long output) {
  const int k = plan[kDrafts];
  if (k == 0 || output < 2) return static_cast<double>(std::max(1LL, output - 1));
  const auto known = steps_.find({k, output});
  if (known != steps_.end()) return known->second;
  return steps_[{k, output}] = steps_of_answer(case_.acceptance->at(k), output - 1);
}

void ServedEvaluator::serve(ServedWorkload workload, Point& point) {
  workload.users = point.plan.users() + point.all_waiting();
  const ServedPlan s = of(point.plan, workload);
  point.time = s.served.tpot;
  point.ttft = s.served.ttft;
  point.burst = s.served.burst;
  point.decoding = s.served.decoding / point.plan.batch * workload.tokens_a_step();
}

Seconds ServedEvaluator::least_ttft(Plan plan, long long input) {
  const Seconds path = case_.engine->host.path;
  if (!strategy(plan.strategy).prefills) return path;
  plan.batch = 1;
  return path + all_chunks(chunks_of(input, budget(plan, 0)), [&](long long cached, long long fresh) {
           case_.batch = prefill_batch({{cached, fresh}});
           if (plan.dp == 1) return evaluator_.bound(plan);
           // Other attention groups may have nothing to do.
           set_groups(case_, plan, {fresh, fresh, 0, 1, 1});
           const Seconds out = evaluator_.bound(plan);
           case_.groups.reset();
           return out;
         });
}

Rating ServedEvaluator::prompt_rating(const Plan& plan, long long input) {
  case_.batch = prefill_batch({{0, chunks_of(input, budget(plan, 0)).size}});
  if (!strategy(plan.strategy).prefills) case_.batch.decode = decode_batch(input).decode;
  return rating_of(evaluator_, plan);
}

Breakdown ServedEvaluator::decode_breakdown(Plan plan, const ServedPlan& served) {
  plan.batch = 1;
  case_.batch = served.decode;
  return break_down(evaluator_, with_both_halves(case_, plan));
}

long long ServedEvaluator::budget(const Plan& plan, long long requests) const {
  const EngineProfile& engine = *case_.engine;
  if (case_.disaggregated) return prompt_budget(engine, case_.system.device, plan);
  const long long all = engine.tokens_of_step(case_.system.device);
  const long long own = engine.shared_budget ? std::max(1LL, all / plan.dp) : all;
  // Decoding requests come first in a mixed step; an eighth is left to prompts in any case.
  const long long decoding = requests * new_tokens(plan);
  return engine.prefill == PrefillPolicy::mixed ? std::max({own - decoding, own / 8, 1LL}) : own;
}

Seconds ServedEvaluator::prompt_alone(const Plan& plan, long long input, long long prompts) {
  ServedTimes out;
  time_prompts(plan, input, 0, prompts, {}, out);
  return out.prompt;
}

long long ServedEvaluator::prompts_of_step(const Plan& plan, long long input) const {
  return prompt_step(case_, *case_.engine, plan, input).prompts;
}

void ServedEvaluator::time_prompts(const Plan& plan, long long input, long long requests, long long prompts,
                                   const Batch& decode, ServedTimes& out) {
  // Strategies without steps that only prefill have a request that decodes beside them.
  const bool beside = !decode.decode.empty() && case_.engine->prefill == PrefillPolicy::mixed &&
                      (requests > 1 || !strategy(plan.strategy).prefills);
  const Chunks chunks = chunks_of(input, budget(plan, requests));
  const auto time = [&](long long cached, long long fresh) {
    Batch b = beside ? decode : Batch{};
    b.prefill = {{cached, fresh, static_cast<int>(prompts)}};
    return step(plan, b);
  };
  out.prompt = all_chunks(chunks, time);
  out.steps = static_cast<double>(chunks.count());
  out.prompts = static_cast<double>(prompts);
  out.rides = beside;
  if (out.groups > 1) {
    out.prompt_one = all_chunks(chunks, [&](long long cached, long long fresh) {
      Batch b = beside ? decode : Batch{};
      b.prefill = {{cached, fresh, static_cast<int>(prompts)}};
      return step_of_one(plan, b, decode);
    });
  }
  const Seconds added = beside ? std::max(Seconds(0), out.prompt - out.decode * out.steps) : out.prompt;
  out.prompt_added = added / out.prompts;
}

ServedPlan ServedEvaluator::of(Plan plan, const ServedWorkload& workload) {
  const EngineProfile& engine = *case_.engine;
  ServedPlan out;
  plan.batch = 1;
  const long long groups = plan.users();  // attention groups and microbatches
  const long long each = std::clamp<long long>(workload.users / groups, 1, kMostUsers);
  out.users = each * groups;
  case_.batch = decode_batch(workload.context());
  case_.served = {workload.input, workload.output};
  case_.batch = with_room(case_).batch;
  const long long room = largest_batch(case_, plan, static_cast<int>(each));
  out.times.room = static_cast<double>(room);
  if (room == 0) return out;
  out.decode.decode = {{workload.context() - 1, 1, static_cast<int>(room)}};
  out.times.decode = step(plan, out.decode);
  // Users of equal lengths come back together in all groups.
  const bool together = workload.equal_lengths && plan[kDrafts] == 0;
  if (!together) out.times.groups = plan.dp;
  // [P29] The closed form counts steps: with drafts an answer takes fewer of them than it has tokens, and not
  // all answers as many, so that users of equal lengths drift apart, too.
  const double steps = steps_of(plan, workload.output);
  const ServedLoad load{static_cast<double>(workload.input),
                        plan[kDrafts] > 0 ? 1 + steps : static_cast<double>(workload.output),
                        static_cast<double>(each), together, workload.rounds};
  const long long most = std::clamp<long long>(budget(plan, room) / workload.input, 1, room);
  const PackedServing packed = packed_serving(engine, load, most, [&](long long prompts) {
    ServedTimes times = out.times;
    time_prompts(plan, workload.input, room, prompts, out.decode, times);
    return times;
  });
  out.served = packed.served;
  if (plan[kDrafts] > 0) out.served.tpot *= steps / static_cast<double>(std::max(1LL, workload.output - 1));
  out.times = packed.used;
  const double requests = out.served.requests_per_s * static_cast<double>(groups) / plan.gpus();
  out.output_per_s_gpu = requests * static_cast<double>(workload.output);
  out.input_per_s_gpu = requests * static_cast<double>(workload.input);
  return out;
}

}  // namespace shardline
