// What `simulate` says of messages, and its timelines.
#pragma once

#include <string>

#include "planner/studies/plan_timeline.hpp"
#include "planner/studies/simulated_plan.hpp"

namespace shardline::cli {

/// Bytes as the op counts them (ExchangeShape), which is not what crosses a link.
std::string message_text(const Op& op);

/// A Perfetto trace and a picture in the folder `out`; says on standard output what was written.
void write_timeline(const Study& study, const Plan& plan, const PlanTimeline& timeline,
                    const std::string& out);

}  // namespace shardline::cli
