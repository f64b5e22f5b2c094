#include "planner/cli/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/cli/sweep_parts.hpp"
#include "planner/engines/profile.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/listing.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "sim/base/read_text.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline::cli {

namespace {

constexpr std::array<const char*, 3> kAsked{"thresholds", "partition", "conversation"};

// Shipped scenarios with the key at its top; with none of kAsked where `key` is null: those that sweep.
std::vector<std::string> scenarios_with(const char* key) {
  std::vector<std::string> out;
  for (const std::string& name : scenario_names()) {
    const std::string text =
        "\n" + read_text(shipped_catalogs().scenarios / (name + ".yaml"), kLargestDocument);
    const auto has = [&](const char* k) { return text.find(fmt::format("\n{}:", k)) != std::string::npos; };
    if (key == nullptr ? std::none_of(kAsked.begin(), kAsked.end(), has) : has(key)) out.push_back(name);
  }
  return out;
}

}  // namespace

std::vector<std::string> offered_sweeps() { return scenarios_with(nullptr); }
std::vector<std::string> offered_thresholds() { return scenarios_with(kAsked[0]); }
std::vector<std::string> offered_partitions() { return scenarios_with(kAsked[1]); }
std::vector<std::string> offered_conversations() { return scenarios_with(kAsked[2]); }

std::vector<std::string> offered_models() {
  std::vector<std::string> names;
  for (const ListedModel& m : list_models(shipped_catalogs())) names.push_back(m.name);
  return names;
}

std::vector<std::string> offered_systems() { return system_names(shipped_catalogs().systems); }

std::vector<std::string> offered_engines() {
  std::vector<std::string> names = engine_names(shipped_catalogs().engines);
  names.emplace_back("ideal");
  return names;
}

std::vector<std::string> offered_engines_by_name() {
  std::vector<std::string> names;
  for (const std::string& engine : offered_engines()) names.push_back(engine.substr(0, engine.find(' ')));
  return names;
}

std::vector<std::string> offered_questions() {
  std::vector<std::string> names = offered_models(), scenarios = offered_sweeps();
  names.insert(names.end(), scenarios.begin(), scenarios.end());
  return names;
}

std::vector<std::string> offered_strategies() {
  std::vector<std::string> names{"all"};
  for (const Strategy* s : strategies()) names.emplace_back(s->name);
  return names;
}

void add_costs(Arguments& arguments, std::string& costs) {
  arguments
      .add("--costs", costs,
           "Costs fitted to measurements (calibrated) or of the system file (parameters); default: the "
           "scenario's")
      .one_of({"calibrated", "parameters"});
}

void add_settings(Arguments& arguments, std::vector<std::string>& settings) {
  arguments
      .add("--set", settings,
           "KEY=VALUE in place of what the system's file or the scenario says, for instance "
           "device.memory.bandwidth=\"4 TB/s\"; again for more")
      .each();
}

void add_engine(Arguments& arguments, EngineOptions& o) {
  arguments
      .add("--engine", o.engine,
           "Engine that runs the plans, for instance vllm or \"vllm 0.24.0\"; ideal: bare kernels; "
           "default: the scenario's; of plan the one with most measured points of the question")
      .offers(offered_engines_by_name);
  arguments.flag("--any-gpus", o.any_gpus, "With an engine: also plans of part of a tray or node");
  arguments.flag("--any-context", o.any_context,
                 "With an engine: also requests longer than the model's maximum");
  add_settings(arguments, o.settings);
}

Overrides overrides_of(const std::string& costs, const EngineOptions& o) {
  return {costs_named(costs), o.engine, o.any_gpus, o.any_context, o.settings};
}

Overrides overrides_of(const std::string& costs, const std::vector<std::string>& settings) {
  return {costs_named(costs), "", false, false, settings};
}

void warn_of_idle_settings(const std::string& scenario, const std::string& costs,
                           const std::vector<std::string>& settings, const Study& study,
                           const std::string& own, const std::function<std::string(const Study&)>& answer) {
  print_warnings(idle_settings(settings, !study.study.system.calibration.empty(),
                               [&](const std::vector<std::string>& others) {
                                 return answer(study_of(scenario_named(scenario, overrides_of(costs, others)),
                                                        study.study.model.name)) == own;
                               }));
}

std::function<Study(const std::vector<std::string>&)> study_with_settings(const std::string& scenario,
                                                                          const std::string& costs,
                                                                          const EngineOptions& options,
                                                                          const std::string& model) {
  return [=](const std::vector<std::string>& settings) {
    EngineOptions others = options;
    others.settings = settings;
    return study_of(scenario_named(scenario, overrides_of(costs, others)), model);
  };
}

std::string engine_arguments(const EngineOptions& o) {
  std::string out;
  if (!o.engine.empty()) out += " --engine " + shell_word(o.engine);
  if (o.any_gpus) out += " --any-gpus";
  if (o.any_context) out += " --any-context";
  for (const std::string& setting : o.settings) out += " --set " + shell_word(setting);
  return out;
}

void add_threads(Arguments& arguments, int& threads) {
  arguments.add("--threads", threads, "Threads (default: all cores)").range(1, 1024);
}

}  // namespace shardline::cli
