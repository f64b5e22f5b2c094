#include "planner/serving/served_plan.hpp"

#include <algorithm>

#include "planner/strategies/strategy.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr int kMostUsers = 65536;  // of one attention group

// The cut of a prompt into chunks: whole ones and a rest.
struct Chunks {
  long long size = 0, whole = 0, rest = 0;
  long long count() const { return whole + (rest > 0 ? 1 : 0); }
};

Chunks chunks_of(long long input, long long room) {
  const long long size = std::max<long long>(1, std::min(input, room));
  return {size, input / size, input % size};
}

}  // namespace

bool serves_prompts(const Case& c, StrategyId id) {
  const Strategy& s = strategy(id);
  const bool first = c.engine && c.engine->prefill == PrefillPolicy::first;
  return s.decodes && (first ? s.prefills : s.mixes && s.prefills);
}

ServedEvaluator::ServedEvaluator(const Case& c, AllReduceRule rule, std::shared_ptr<FabricCache> cache)
    : case_(c), evaluator_(case_, rule, std::move(cache)) {
  SL_CHECK(case_.engine != nullptr, "who serves is known");
}

Seconds ServedEvaluator::step(const Plan& plan, const Batch& batch) {
  case_.batch = batch;
  return evaluator_.simulate(plan);
}

Breakdown ServedEvaluator::decode_breakdown(Plan plan, const ServedPlan& served) {
  plan.batch = 1;
  case_.batch = served.decode;
  return break_down(evaluator_, plan);
}

Seconds ServedEvaluator::prompt_alone(const Plan& plan, long long input) {
  ServedWorkload workload;
  workload.input = input;
  ServedPlan out;
  time_prompt(plan, workload, 1, out);
  return out.times.prompt;
}

void ServedEvaluator::time_prompt(const Plan& plan, const ServedWorkload& workload, long long requests,
                                  ServedPlan& out) {
  const EngineProfile& engine = *case_.engine;
  const bool mixed = engine.prefill == PrefillPolicy::mixed;
  const bool beside = mixed && requests > 1;
  const long long all = engine.tokens_of_step(case_.system.device);
  const long long budget = engine.shared_budget ? std::max(1LL, all / plan.dp) : all;
  // Decoding requests come first in a mixed step; an eighth is left to prompts in any case.
  const Chunks chunks = chunks_of(workload.input, mixed ? std::max(budget - requests, budget / 8) : budget);
  const auto time = [&](long long cached, long long fresh) {
    Batch b = beside ? out.decode : Batch{};
    b.prefill = {{cached, fresh, 1}};
    return step(plan, b);
  };
  // A chunk's time rises evenly with the tokens before it: the mean of the first and the last whole one.
  out.times.prompt = time(0, chunks.size);
  if (chunks.whole > 1) {
    out.times.prompt += time((chunks.whole - 1) * chunks.size, chunks.size);
    out.times.prompt = out.times.prompt * (static_cast<double>(chunks.whole) / 2);
  }
  if (chunks.rest > 0) out.times.prompt += time(chunks.whole * chunks.size, chunks.rest);
  out.times.steps = static_cast<double>(chunks.count());
  out.times.prompt_added =
      beside ? std::max(Seconds(0), out.times.prompt - out.times.decode * out.times.steps) : out.times.prompt;
}

ServedPlan ServedEvaluator::of(Plan plan, const ServedWorkload& workload) {
  const EngineProfile& engine = *case_.engine;
  ServedPlan out;
  plan.batch = 1;
  const long long groups = plan.users();  // attention groups and microbatches
  const long long each = std::clamp<long long>(workload.users / groups, 1, kMostUsers);
  out.users = each * groups;
  case_.batch = decode_batch(engine.admission == Admission::whole ? workload.input + workload.output
                                                                  : workload.context());
  const long long room = largest_batch(case_, plan, static_cast<int>(each));
  out.times.room = static_cast<double>(room);
  if (room == 0) return out;
  out.decode.decode = {{workload.context() - 1, 1, static_cast<int>(room)}};
  out.times.decode = step(plan, out.decode);
  time_prompt(plan, workload, room, out);
  const ServedLoad load{static_cast<double>(workload.input), static_cast<double>(workload.output),
                        static_cast<double>(each), workload.equal_lengths, workload.rounds};
  out.served = steady_serving(engine, load, out.times);
  const double requests = out.served.requests_per_s * static_cast<double>(groups) / plan.gpus();
  out.output_per_s_gpu = requests * static_cast<double>(workload.output);
  out.input_per_s_gpu = requests * static_cast<double>(workload.input);
  return out;
}

}  // namespace shardline
