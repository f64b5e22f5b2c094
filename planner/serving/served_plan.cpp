#include "planner/serving/served_plan.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// The cut of a prompt into chunks: whole ones and a rest.
struct Chunks {
  long long size = 0, whole = 0, rest = 0;
};

Chunks chunks_of(long long input, long long room) {
  const long long size = std::max<long long>(1, std::min(input, room));
  return {size, input / size, input % size};
}

Batch decoding(long long context, long long requests) {
  return {{{context - 1, 1, static_cast<int>(requests)}}, {}};
}

}  // namespace

ServedEvaluator::ServedEvaluator(const Case& c, AllReduceRule rule, std::shared_ptr<FabricCache> cache)
    : case_(c), rule_(rule), cache_(std::move(cache)) {
  SL_CHECK(case_.engine != nullptr, "who serves is known");
}

Seconds ServedEvaluator::step(const Plan& plan, const Batch& batch) {
  case_.batch = batch;
  Evaluator evaluator(case_, rule_, cache_);
  return evaluator.simulate(plan);
}

ServedPlan ServedEvaluator::of(Plan plan, const ServedWorkload& workload) {
  const EngineProfile& engine = *case_.engine;
  ServedPlan out;
  plan.batch = 1;
  const long long groups = plan.users();  // attention groups and microbatches
  const long long each = std::max<long long>(1, workload.users / groups);
  out.users = each * groups;
  const long long mean = workload.input + std::max<long long>(1, workload.output / 2);
  case_.batch = decode_batch(engine.admission == Admission::whole ? workload.input + workload.output : mean);
  const long long room = largest_batch(case_, plan, static_cast<int>(std::min<long long>(each, 65536)));
  out.times.room = static_cast<double>(room);
  if (room == 0) return out;
  const long long n = std::min(each, room);
  Batch batch = decoding(mean, n);
  case_.batch = batch;
  Evaluator evaluator(case_, rule_, cache_);
  out.decode = break_down(evaluator, plan);
  out.times.decode = out.decode.time;

  const bool mixed = engine.prefill == PrefillPolicy::mixed;
  const long long budget = engine.tokens_of_step(case_.system.device);
  const Chunks chunks =
      chunks_of(workload.input, mixed ? std::max<long long>(budget - n, budget / 8) : budget);
  const auto time = [&](long long cached, long long fresh, bool beside) {
    Batch b = beside ? batch : Batch{};
    b.prefill = {{cached, fresh, 1}};
    return step(plan, b);
  };
  // Each chunk's time rises evenly with the tokens before it: the mean of the first and the last whole one.
  const auto prompt = [&](bool beside) {
    Seconds sum = time(0, chunks.size, beside);
    if (chunks.whole > 1) {
      sum += time((chunks.whole - 1) * chunks.size, chunks.size, beside);
      sum = sum * (static_cast<double>(chunks.whole) / 2);
    }
    if (chunks.rest > 0) sum += time(chunks.whole * chunks.size, chunks.rest, beside);
    return sum;
  };
  const double steps = static_cast<double>(chunks.whole + (chunks.rest > 0 ? 1 : 0));
  out.times.steps = steps;
  if (mixed && n > 1) {
    out.times.prompt = prompt(true);
    out.times.prompt_added = std::max(Seconds(0), out.times.prompt - out.times.decode * steps);
  } else {
    out.times.prompt = prompt(false);
    out.times.prompt_added = out.times.prompt;
  }
  const ServedLoad load{static_cast<double>(workload.input), static_cast<double>(workload.output),
                        static_cast<double>(each), workload.equal_lengths, workload.rounds};
  out.served = steady_serving(engine, load, out.times);
  const double requests = out.served.requests_per_s * static_cast<double>(groups) / plan.gpus();
  out.output_per_s_gpu = requests * static_cast<double>(workload.output);
  out.input_per_s_gpu = requests * static_cast<double>(workload.input);
  return out;
}

}  // namespace shardline
