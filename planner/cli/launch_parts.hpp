// Launch files of the plans that a command was asked about.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/scenario/scenario.hpp"
#include "planner/studies/plan_launches.hpp"
#include "reports/output_folder.hpp"

namespace shardline::cli {

/// Per engine what one would type, indented, and why it does not start the plan so; or that no engine has the
/// plan's strategy.
/// Notes and reasons, not commands, are wrapped at `width` columns; 0: nothing is.
std::string launch_text(const Plan& plan, const std::vector<Launch>& launches, std::size_t width = 0);

/// "  vLLM 0.24.0: 1.vllm.sh", of each that has files.
std::string launch_summary(const std::vector<Launch>& launches);

/// Plans with the lines above each.
struct NamedPlan {
  std::string heading;
  Plan plan;
  std::optional<Plan> prompts = {};  // of the pool that prefills for it, where there is one
  int servers = 1;                   // of `plan`
  int prompt_servers = 1;            // of `prompts`
};
/// `launch.txt` in `files`, and the files of each plan, numbered in their order, in the folder `launch`
/// there. Returns what was written there: "  wrote out/launch: 12 files, named in launch.txt".
std::string write_launches(OutputFolder& files, const Study& study, const std::vector<NamedPlan>& plans);

/// The same of one heading whose launches are known.
std::string write_launches(OutputFolder& files, const Study& study, const std::string& heading,
                           const Plan& plan, const std::vector<Launch>& launches);

}  // namespace shardline::cli
