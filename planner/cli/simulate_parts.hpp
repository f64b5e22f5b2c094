// What `simulate` says of messages, and its timelines.
#pragma once

#include <string>

#include "planner/studies/plan_timeline.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "reports/output_folder.hpp"

namespace shardline::cli {

/// Bytes as the op counts them (ExchangeShape), which is not what crosses a link.
std::string message_text(const Op& op);

/// A Perfetto trace (to be opened in ui.perfetto.dev) and a picture.
void write_timeline(const Study& study, const Plan& plan, const PlanTimeline& timeline, OutputFolder& files);

}  // namespace shardline::cli
