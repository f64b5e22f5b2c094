// How far times and rates of a study's plans may be off, and what such an interval is of. hardware/README.md
// [H65].
#pragma once

#include <string>

#include "planner/scenario/scenario.hpp"
#include "planner/serving/served.hpp"
#include "planner/studies/rated_points.hpp"

namespace shardline {

/// The workload of a study that has one; else null.
const ServedWorkload* workload_of(const Study& study);
/// What times and rates of a study are of: "served by vLLM 0.24.0", "decode only under vLLM 0.24.0", "steps
/// alone under ..."; of bare kernels "decode only by bare kernels", "steps alone by bare kernels".
std::string rates_of_what(const Study& study);

/// Of a plan's time or rate, in parts of it: of what is served, where the study has a workload.
ErrorRange plan_time_error(const Study& study, const ErrorTerms& errors);
ErrorRange plan_rate_error(const Study& study, const ErrorTerms& errors);

/// preempts() of a served point with its users and those who wait.
bool point_preempts(const Study& study, const Point& point);
/// Of a served TTFT, by points with about as many users; nothing where none was measured, and of plans whose
/// engine preempts: bands are of points whose engine did not.
std::optional<ErrorRange> ttft_error(const Study& study, const Point& point, const ErrorTerms& errors);

/// "nominal 90 % by the prices of bare kernels; the engine around them is not in it".
extern const char* const kWhatIntervalsAre;
/// What an interval is of: bare kernels, or an engine's steps.
std::string what_intervals_are(const Case& c);

/// Whether there are two strategies to tell apart, and prices of several sources to do it by: a system file's
/// parameters are off one by one, which no interval of theirs says, and an engine's host is the same for all.
bool comparable(const RatedPoints& rated);

}  // namespace shardline
