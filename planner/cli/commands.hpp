// The rows of shardline's table of commands (main.cpp), each in its command's file, and what they share.
#pragma once

#include <string>

#include "planner/scenario/scenario.hpp"
#include "reports/cli/command.hpp"

namespace shardline::cli {

extern const Command kSweep, kSimulate, kList, kValidate, kThresholds, kPartition, kConversation, kVerify,
    kCalibrate, kEvaluate, kAccuracy;

/// --costs: calibrated or parameters; empty: as the scenario says.
void add_costs(Arguments& arguments, std::string& costs);
/// --threads: 0 for all cores.
void add_threads(Arguments& arguments, int& threads);

/// Where the catalogues are: $SHARDLINE_DATA, else the installed or source tree.
Catalogs catalogs();

/// A scenario by path, or by the name of a shipped one, with the costs of an option `--costs`. Throws
/// UserError.
Scenario scenario_named(const std::string& name_or_path, const std::string& costs = "");

}  // namespace shardline::cli
