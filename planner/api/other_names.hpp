// What engines, their benchmarks and other planners call the options of ours. Not installed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/base/option_names.hpp"

namespace shardline::api {

/// As Program::other_names: of several of one name the first that the command has counts.
std::span<const Meaning> other_names();

/// Of an option that is none of `options`, all with their two hyphens: "its name here is --input", or without
/// hyphens "did you mean users?", or where no name is near "expected one of: ...".
std::string meant_option(const std::string& found, const std::vector<std::string>& options);

}  // namespace shardline::api
