// The question of `plan` as a file of its own: read from any folder it asks the same.
#pragma once

#include <string>

#include "planner/studies/plan_answer.hpp"

namespace shardline {

/// The answer's scenario with paths from the root, for those of a scenario are of the folder that commands
/// run in, and with what --set changed in it. What it has no keys for stands in its comments; `of_serve` is
/// more of that (" --slo '...'").
std::string saved_scenario(const PlanAnswer& answer, const Catalogs& catalogs,
                           const std::string& of_serve = "");

/// A path from the root, as it is in a file that may be read from any folder.
std::string from_anywhere(const std::string& path);

/// " --set device.memory.bandwidth='4 TB/s'": the settings that a saved file does not have.
std::string settings_beside(const PlanQuestion& question);

/// " --ttl '20 ms' --set ...": of the question what a saved file does not have and `sweep` takes beside it.
std::string options_beside(const PlanAnswer& answer);
/// " --rate 5/s": the same of what `serve` takes.
std::string load_beside(const PlanQuestion& question);

}  // namespace shardline
