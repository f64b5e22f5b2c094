// What engines, their benchmarks and other planners call the options of ours.
#pragma once

#include <span>

#include "reports/cli/command.hpp"

namespace shardline::cli {

/// As Program::other_names: of several of one name the first that the command has counts.
std::span<const Meaning> other_names();

}  // namespace shardline::cli
