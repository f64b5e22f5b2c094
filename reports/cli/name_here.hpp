// An option that a command has not, as others call it: its name here.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "reports/cli/command_text.hpp"

namespace shardline::cli {

/// What an option is called here, or what is said of it: of one that other tools have (Program::other_names),
/// or that is one of `names` but for its hyphens and capitals. Nothing: it is known nowhere.
std::optional<std::string> name_here(std::span<const Meaning> others, std::span<const std::string> names,
                                     const std::string& name);

}  // namespace shardline::cli
