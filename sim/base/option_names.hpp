// An option that a command has not, as others call it: its name here.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace shardline {

/// Something numbered or named that has a meaning: an option of another program, an exit code, a variable of
/// the environment.
struct Meaning {
  const char* name;
  const char* meaning;
};

/// What an option is called here, or what is said of it: of one that other tools have (`others`),
/// or that is one of `names` but for its hyphens and capitals. Nothing: it is known nowhere.
std::optional<std::string> name_here(std::span<const Meaning> others, std::span<const std::string> names,
                                     const std::string& name);

}  // namespace shardline
