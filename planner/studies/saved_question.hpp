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

/// " --users 12 --set ...": of the question what a saved file has no keys for and `sweep` takes beside it.
std::string options_beside(const PlanAnswer& answer);
/// " --ttl '20 ms'": the targets, which are in no saved file: `sweep` takes them beside it and tells what
/// misses them, too.
std::string targets_beside(const PlanAnswer& answer);
/// " --set constraints.ttl='20 ms'": the same for commands that look at one plan of the file; empty of a
/// question with a rate, whose targets are not those of a steady loop of users.
std::string constraint_settings(const PlanAnswer& answer);
/// " --rate 5/s": the same of what `serve` takes.
std::string load_beside(const PlanQuestion& question);

}  // namespace shardline
