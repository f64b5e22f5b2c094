#include "planner/cli/commands.hpp"

namespace shardline::cli {

void add_costs(Arguments& arguments, std::string& costs) {
  arguments
      .add("--costs", costs,
           "Costs fitted to measurements (calibrated) or of the system file (parameters); default: the "
           "scenario's")
      .one_of({"calibrated", "parameters"});
}

void add_engine(Arguments& arguments, std::string& engine) {
  arguments.add("--engine", engine,
                "Engine that runs the plans: trtllm, vllm, sglang, or ideal for bare kernels; default: the "
                "scenario's");
}

void add_threads(Arguments& arguments, int& threads) {
  arguments.add("--threads", threads, "Threads (default: all cores)").range(1, 1024);
}

}  // namespace shardline::cli
