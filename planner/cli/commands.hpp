// The rows of shardline's table of commands (main.cpp), each in its command's file, and what they share.
#pragma once

#include <string>

#include "planner/scenario/shipped.hpp"
#include "reports/cli/command.hpp"

namespace shardline::cli {

extern const Command kSweepCommand, kSimulateCommand, kListCommand, kValidateCommand, kThresholdsCommand,
    kPartitionCommand, kConversationCommand, kVerifyCommand, kCalibrateCommand, kEvaluateCommand,
    kAccuracyCommand;

/// --costs: calibrated or parameters; empty: as the scenario says.
void add_costs(Arguments& arguments, std::string& costs);
/// --engine: a profile's name, and its version if it is not the only one; empty: as the scenario says.
void add_engine(Arguments& arguments, std::string& engine);
/// --threads: 0 for all cores.
void add_threads(Arguments& arguments, int& threads);

}  // namespace shardline::cli
