// What `simulate` says of messages and outcomes, as `explain` and `compare` do, and its timelines.
#pragma once

#include <string>

#include "planner/studies/knobs.hpp"
#include "planner/studies/plan_timeline.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "reports/output_folder.hpp"

namespace shardline::cli {

/// Bytes as the op counts them (ExchangeShape), which is not what crosses a link.
std::string message_text(const Op& op);

/// "1 request on 8 GPUs", of a prefill.
std::string requests_on(double requests, int gpus);
/// "TTFT", "TPOT" or "TTL": what PlanTimes::time() is.
std::string time_name(const Study& study, const PlanTimes& times);
/// "new tokens/s/GPU" of a prefill, else "tokens/s/GPU".
std::string rate_name(const Study& study);
/// PlanTimes::tokens_per_s_gpu with as many decimals as `simulate` shows.
std::string rate_text(const Study& study, double tokens_per_s_gpu);
/// "TPOT 18.6 ms (-21/+22 %), TTFT 2.4 s (-11/+40 %), 73.10 tokens/s/GPU, 12 users on 8 GPUs".
std::string outcome_text(const Study& study, const Plan& plan, const PlanTimes& times);

/// On standard error, why the plan does not fit.
void print_misfit(const Study& study, const SimulatedPlan& simulated);

/// A Perfetto trace (to be opened in ui.perfetto.dev) of all ranks of a stage, and a picture of one rank, or
/// of one for each class. Returns what the trace leaves out, empty where nothing. `evaluator` is of the
/// study's case, the plan passes check.
std::string write_timeline(const Study& study, Evaluator& evaluator, const Plan& plan, OutputFolder& files);

}  // namespace shardline::cli
