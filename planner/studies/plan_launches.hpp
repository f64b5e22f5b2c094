// How each engine is told a plan.
#pragma once

#include <string>
#include <vector>

#include "planner/engines/launch_files.hpp"

namespace shardline {

/// The case's engine, or where it names none every engine that has a profile.
std::vector<EngineProfile> engines_of(const Case& c);

/// launch_files() of a plan that the engine's own rules let it start, else the rule.
Launch launch_under_rules(const Case& c, const Plan& plan, const EngineProfile& engine,
                          const std::string& stem, int copies = 1, const ServedOptions* served = nullptr);

/// One per engine that documents a way to run the plan, and one of the case's own engine.
std::vector<Launch> launches_of(const Case& c, const Plan& plan, const std::string& stem, int copies = 1);

}  // namespace shardline
