// Launch files of the plans that a command was asked about.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/engines/launch_files.hpp"
#include "planner/scenario/scenario.hpp"
#include "reports/output_folder.hpp"

namespace shardline::cli {

/// The case's engine, or where it names none every engine that has a profile.
std::vector<EngineProfile> engines_of(const Case& c);

/// One per engine that documents a way to run the plan, and one of the case's own engine.
std::vector<Launch> launches_of(const Case& c, const Plan& plan, const std::string& stem);

/// "  vLLM 0.24.0: 1.vllm.sh" or the reason why there are no files.
std::string launch_summary(const std::vector<Launch>& launches);

/// Plans with the lines above each.
struct NamedPlan {
  std::string heading;
  Plan plan;
  std::optional<Plan> prompts = {};  // of the pool that prefills for it, where there is one
};
/// `launch.txt` in `files`, and the files of each plan, numbered in their order, in the folder `launch`
/// there. Returns what was written there: "  wrote out/launch: 12 files, named in launch.txt".
std::string write_launches(OutputFolder& files, const Study& study, const std::vector<NamedPlan>& plans);

}  // namespace shardline::cli
