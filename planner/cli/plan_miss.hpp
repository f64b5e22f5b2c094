// What `plan` says where no plan meets its question: by how much the nearest misses, and what would meet it.
#pragma once

#include <string>

#include "planner/studies/plan_answer.hpp"

namespace shardline::cli {

/// Whether requests are served by an engine; else steps of bare kernels, or a prefill, are priced.
bool served(const PlanAnswer& answer);

/// What Point::time of the answer's plans is: "TPOT", "TTL" or "TTFT".
std::string time_name(const PlanAnswer& answer);

/// "-18/+26 %" of it; where prices are not calibrated all times are off alike.
std::string time_range(const PlanAnswer& answer, const PlannedPoint& plan);

/// Likewise of TTFT of served requests, or that it was not measured.
std::string ttft_range(const PlanAnswer& answer, const PlannedPoint& plan);

/// How many of the users of all its copies wait for memory.
long long waiting_of(const PlanAnswer& answer, const PlannedPoint& plan);

/// "+42 %", or "427,000 times as much": by which part a time is above what was asked.
std::string excess_text(double part);

/// A sentence on a question that is not met, of one line.
std::string miss_text(const PlanAnswer& answer);

}  // namespace shardline::cli
