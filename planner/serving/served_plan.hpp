// Steady serving of one plan: its own steps, lowered and timed, in the closed form of served.hpp.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "planner/search/pareto.hpp"
#include "planner/search/provenance.hpp"
#include "planner/serving/served.hpp"

namespace shardline {

struct ServedPlan {
  Served served;        // of one attention group; TPOT is of a token
  ServedTimes times;    // of whole steps, which yield several tokens of a request where the plan drafts
  long long users = 0;  // of the deployment
  Batch decode;         // what its steps decode between prompts, of one attention group
  double output_per_s_gpu = 0, input_per_s_gpu = 0;  // tokens
  bool serves() const { return served.tpot > Seconds(0); }
};

/// Whether memory does not hold all users of a plan with whole answers, under an engine that admits requests
/// by what they use, whether or not it holds them with the tokens that they have on average. The engine then
/// takes the caches of some away and computes them again (vLLM 0.24.0, v1/core/sched/scheduler.py,
/// _preempt_request; SGLang 0.5.14 retracts, managers/schedule_batch.py, retract_decode). [P19] has no such
/// steps, only the wait of those who never fit.
bool preempts(const Case& c, Plan plan, const ServedWorkload& workload);

/// Whether plans of a strategy can be served without a pool of their own for prefills: it runs steps that
/// decode and prefill, and the engine runs it in servers that do both.
bool serves_prompts(const Case& c, StrategyId id);

/// Steps of plans of a case with an engine. The case's own batch does not matter. One object per thread.
class ServedEvaluator {
 public:
  /// Needs c.engine. `cache` may be shared.
  ServedEvaluator(const Case& c, AllReduceRule rule, std::shared_ptr<FabricCache> cache = nullptr);
  ServedEvaluator(const ServedEvaluator&) = delete;  // the evaluator points to the case
  ServedEvaluator& operator=(const ServedEvaluator&) = delete;

  /// Users are shared evenly among attention groups and microbatches, at least one each. `plan.batch` does
  /// not matter. Nothing is served where no request fits.
  ServedPlan of(Plan plan, const ServedWorkload& workload);
  /// The steps of so many prompts in each attention group, with nobody beside them.
  Seconds prompt_alone(const Plan& plan, long long input, long long prompts = 1);
  /// Gives a point what its plan serves with its users and those who wait: [P19] a step that decodes takes no
  /// longer than TPOT, and users decode part of their time, so that bounds of the one hold for the other.
  void serve(ServedWorkload workload, Point& point);
  /// Below the TTFT of any load: the request path, and the bounds [H17] of one prompt's steps with nobody
  /// beside it, if steps take no less with others beside.
  Seconds least_ttft(Plan plan, long long input);
  /// Prompts that a step of an attention group has that prefills alone, at least one [P22].
  long long prompts_of_step(const Plan& plan, long long input) const;
  /// Of the step that decodes between prompts.
  Breakdown decode_breakdown(Plan plan, const ServedPlan& served);
  /// Of the first step of a prompt, with nobody beside it: what errors of prices do to it [P12], and what
  /// boards draw [P32].
  Rating prompt_rating(const Plan& plan, long long input);

 private:
  Seconds step(const Plan& plan, const Batch& batch);
  /// [P37] In which one attention group has the batch, with prompts, and each other one that of `others`,
  /// which decodes or is empty.
  Seconds step_of_one(const Plan& plan, const Batch& batch, const Batch& others);
  /// Times of the steps of so many prompts beside `requests` that decode.
  void time_prompts(const Plan& plan, long long input, long long requests, long long prompts,
                    const Batch& decode, ServedTimes& out);
  long long budget(const Plan& plan, long long requests) const;
  /// Steps that an answer of so many tokens takes behind its prompt's, in the mean [P28].
  double steps_of(const Plan& plan, long long output);

  Case case_;
  Evaluator evaluator_;
  std::map<std::pair<int, long long>, double> steps_;  // by drafts and tokens of an answer
};

}  // namespace shardline
