#include "planner/cli/commands.hpp"

namespace shardline::cli {

void add_costs(Arguments& arguments, std::string& costs) {
  arguments
      .add("--costs", costs,
           "Costs fitted to measurements (calibrated) or of the system file (parameters); default: the "
           "scenario's")
      .one_of({"calibrated", "parameters"});
}

void add_engine(Arguments& arguments, EngineOptions& o) {
  arguments.add("--engine", o.engine,
                "Engine that runs the plans, for instance vllm or \"vllm 0.24.0\"; ideal: bare kernels; "
                "default: the scenario's");
  arguments.flag("--any-gpus", o.any_gpus, "With an engine: also plans of part of a tray or node");
  arguments.flag("--any-context", o.any_context,
                 "With an engine: also requests longer than the model's maximum");
}

Overrides overrides_of(const std::string& costs, const EngineOptions& o) {
  return {costs_named(costs), o.engine, o.any_gpus, o.any_context};
}

std::string engine_arguments(const EngineOptions& o) {
  std::string out;
  if (!o.engine.empty())
    out +=
        o.engine.find(' ') == std::string::npos ? " --engine " + o.engine : " --engine \"" + o.engine + "\"";
  if (o.any_gpus) out += " --any-gpus";
  if (o.any_context) out += " --any-context";
  return out;
}

void add_threads(Arguments& arguments, int& threads) {
  arguments.add("--threads", threads, "Threads (default: all cores)").range(1, 1024);
}

}  // namespace shardline::cli
