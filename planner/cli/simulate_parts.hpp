// What `simulate` says of messages, and its timelines.
#pragma once

#include <string>

#include "planner/studies/plan_timeline.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "reports/output_folder.hpp"

namespace shardline::cli {

/// Bytes as the op counts them (ExchangeShape), which is not what crosses a link.
std::string message_text(const Op& op);

/// A Perfetto trace (to be opened in ui.perfetto.dev) of all ranks of a stage, and a picture of one rank, or
/// of one for each class. Returns what the trace leaves out, empty where nothing. `evaluator` is of the
/// study's case, the plan passes check.
std::string write_timeline(const Study& study, Evaluator& evaluator, const Plan& plan, OutputFolder& files);

}  // namespace shardline::cli
