// A comparison of what no comparison is of: two models, two systems, two scenarios.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace shardline::cli {

/// Lines on `words` of a command line, "compare" the first, where they name two models, systems or scenarios:
/// what is compared, and the commands whose answers stand side by side instead. Empty: they name one of each.
std::vector<std::string> two_questions(std::span<const std::string> words);

}  // namespace shardline::cli
