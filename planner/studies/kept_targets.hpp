// Times that were asked for, and whether a plan keeps them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/studies/simulated_plan.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// A time that was asked for, and what a plan has of it.
struct AskedTime {
  std::string what;  // "TTFT", "TPOT" or "TTL"
  Seconds is, most;
};

/// The latency constraints of a scenario (constraints.ttl, constraints.ttft) with what a simulated plan has
/// of each: TPOT and mean TTFT where a workload is served, TTL or TTFT of the bare step elsewhere. Nothing
/// where the scenario has none; the plan must fit where it has some.
std::vector<AskedTime> asked_times(const Study& study, const SimulatedPlan& plan);

/// Whether a simulated plan keeps the scenario's latency constraints: not where it does not fit, nothing
/// where there are none.
std::optional<bool> keeps_constraints(const Study& study, const SimulatedPlan& plan);

/// All are at most what was asked for; nothing where nothing was.
std::optional<bool> all_kept(const std::vector<AskedTime>& times);

}  // namespace shardline
