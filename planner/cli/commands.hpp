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
/// --engine, --any-gpus and --any-context: which engine runs the plans; empty: as the scenario says.
struct EngineOptions {
  std::string engine;
  bool any_gpus = false, any_context = false;
};
void add_engine(Arguments& arguments, EngineOptions& options);
Overrides overrides_of(const std::string& costs, const EngineOptions& options);
/// The same as arguments of a command: " --engine vllm".
std::string engine_arguments(const EngineOptions& options);
/// --threads: 0 for all cores.
void add_threads(Arguments& arguments, int& threads);

}  // namespace shardline::cli
