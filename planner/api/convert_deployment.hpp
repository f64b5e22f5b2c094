// From a question of plan with targets by percentile, and to its answer. Not installed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/api/convert_serve.hpp"
#include "planner/api/plan.hpp"
#include "planner/studies/deployment.hpp"
#include "planner/studies/plan_answer.hpp"

namespace shardline::api {

struct AskedDeployment {
  PlanAnswer plan;  // the question with its defaults; nothing is searched for
  DeploymentQuestion question;
  std::vector<std::string> knobs;  // as given: "max_num_seqs=64,256"
  /// The study of the same question with other settings.
  std::function<Study(const std::vector<std::string>&)> with;
};

/// Throws UserError: what is asked without `slo` that is of it alone, targets that mean nothing beside it, no
/// rate and no trace, no length of answers.
AskedDeployment asked_deployment(const PlanQuestion& asked, const RunOptions& options);
/// Where `slo` is empty: throws UserError of what is of it alone.
void require_no_load(const PlanQuestion& asked);

/// What is said beside an answer, and stands in its document: notes of the model, settings that change
/// nothing of the first of its replicas, and what prices of those are narrow of.
std::vector<shardline::Diagnostic> deployment_warnings(const AskedDeployment& asked,
                                                       const DeploymentAnswer& answer);

/// " --rate 8/s --slo 'tpot p99 40 ms' ...": what is played, as options of `serve`.
std::string load_options(const ServiceQuestion& question, const std::string& slo);
/// The same of a saved question, from any folder: with the knobs of the answer's best candidate, and in
/// brackets those that were tried.
std::string saved_load_options(const AskedDeployment& asked, const DeploymentAnswer& answer,
                               const std::string& slo);
/// The command that plays a candidate again, of a scenario in the file.
std::string serve_command(const ServiceQuestion& question, const std::string& slo, const std::string& file,
                          const std::string& settings);
/// Whether a target of TPOT or ITL is met, and missed at the end of the interval of prices.
bool may_miss(const Study& study, const ServiceAnswer& answer);

/// Money for a million tokens of answers, all GPUs being paid for all the time; nothing without a price.
std::optional<double> cost_per_million(const AskedDeployment& asked, const ServiceAnswer& answer);

/// Everything but `version`, `command` and `question`. `saved`: the file that has the question as a scenario.
PlanResult deployment_result(const AskedDeployment& asked, const DeploymentAnswer& answer,
                             const std::string& slo, const std::string& saved);

/// The name in commands where the question has no file yet.
inline constexpr const char* kUnsavedQuestion = "plan.yaml";

}  // namespace shardline::api
