// What `simulate` says of messages, and its timelines.
#pragma once

#include <string>

#include "planner/studies/plan_timeline.hpp"

namespace shardline::cli {

/// What a message was priced as: the algorithm that was fastest, or the library or engine that was measured.
std::string algorithm_text(const OpCost& cost);
/// Bytes as the op counts them (ExchangeShape), which is not what crosses a link.
std::string message_text(const Op& op);
/// Of what message_text gives the bytes.
const char* message_meaning(OpKind kind);

/// A Perfetto trace and a picture in the folder `out`; says on standard output what was written.
void write_timeline(const Study& study, const Plan& plan, const PlanTimeline& timeline,
                    const std::string& out);

}  // namespace shardline::cli
