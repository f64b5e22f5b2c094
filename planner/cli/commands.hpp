// The rows of shardline's table of commands (main.cpp), each in its command's file, and what they share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/scenario/shipped.hpp"
#include "planner/studies/idle_settings.hpp"
#include "reports/cli/command.hpp"

namespace shardline::cli {

extern const Command kPlanCommand, kServeCommand, kSweepCommand, kSimulateCommand, kExplainCommand,
    kCompareCommand, kHandoffCommand, kListCommand, kValidateCommand, kThresholdsCommand, kPartitionCommand,
    kConversationCommand, kVerifyCommand, kCalibrateCommand, kEvaluateCommand, kAccuracyCommand;

/// What completions offer: names of the catalogues, strategies, and those that have a meaning beside them.
std::vector<std::string> offered_models();
std::vector<std::string> offered_systems();
std::vector<std::string> offered_engines();  // and "ideal"
/// The same without versions, as words that a shell completes.
std::vector<std::string> offered_engines_by_name();
std::vector<std::string> offered_strategies();  // and "all"
/// Shipped scenarios, by what they ask: plans to be compared, or what these three commands answer.
std::vector<std::string> offered_sweeps();
/// Models, and scenarios that sweep.
std::vector<std::string> offered_questions();
std::vector<std::string> offered_thresholds();
std::vector<std::string> offered_partitions();
std::vector<std::string> offered_conversations();

/// --costs: calibrated or parameters; empty: as the scenario says.
void add_costs(Arguments& arguments, std::string& costs);
/// --set KEY=VALUE, as often as wanted: of the system's file and of the scenario.
void add_settings(Arguments& arguments, std::vector<std::string>& settings);
/// --engine, --any-gpus and --any-context: which engine runs the plans; empty: as the scenario says. And
/// --set.
struct EngineOptions {
  std::string engine;
  bool any_gpus = false, any_context = false;
  std::vector<std::string> settings = {};
};
void add_engine(Arguments& arguments, EngineOptions& options);
Overrides overrides_of(const std::string& costs, const EngineOptions& options);
Overrides overrides_of(const std::string& costs, const std::vector<std::string>& settings);
/// Warns of settings without which the study of a model has the same answer, `own`, as text, as `answer`
/// computes it.
void warn_of_idle_settings(const std::string& scenario, const std::string& costs,
                           const std::vector<std::string>& settings, const Study& study,
                           const std::string& own, const std::function<std::string(const Study&)>& answer);
/// The study of a model, read again with other settings.
std::function<Study(const std::vector<std::string>& settings)> study_with_settings(
    const std::string& scenario, const std::string& costs, const EngineOptions& options,
    const std::string& model);
/// The same as arguments of a command: " --engine vllm".
std::string engine_arguments(const EngineOptions& options);
/// --threads: 0 for all cores.
void add_threads(Arguments& arguments, int& threads);

}  // namespace shardline::cli
