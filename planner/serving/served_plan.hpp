// Steady serving of one plan: its own steps, lowered and timed, in the closed form of served.hpp.
#pragma once

#include <map>
#include <memory>

#include "planner/search/evaluate.hpp"
#include "planner/serving/served.hpp"

namespace shardline {

/// What is served: tokens of a request and users, of the whole deployment.
struct ServedWorkload {
  long long input = 0, output = 0;
  long long users = 0;
  bool equal_lengths = false;
  double rounds = 0;
};

struct ServedPlan {
  Served served;  // of one attention group
  ServedTimes times;
  long long users = 0;                               // of the deployment
  double output_per_s_gpu = 0, input_per_s_gpu = 0;  // tokens
  Breakdown decode;                                  // of the step that decodes
};

/// Steps of plans of a case with an engine. The case's own batch does not matter.
class ServedEvaluator {
 public:
  /// Needs c.engine. `cache` may be shared.
  ServedEvaluator(const Case& c, AllReduceRule rule, std::shared_ptr<FabricCache> cache = nullptr);

  /// Users are shared evenly among the attention groups, at least one each. `plan.batch` does not matter.
  ServedPlan of(Plan plan, const ServedWorkload& workload);

 private:
  Seconds step(const Plan& plan, const Batch& batch);

  Case case_;
  AllReduceRule rule_;
  std::shared_ptr<FabricCache> cache_;
};

}  // namespace shardline
