// What comes nearest where no plan meets a target.
#pragma once

#include <optional>
#include <vector>

#include "planner/search/candidates.hpp"

namespace shardline {

/// Of a search with a workload: the lowest TTFT of all candidates at their smallest batches, of those within
/// the time asked for if any is. Nothing where nobody is served.
std::optional<Point> nearest_ttft(const Case& c, const SearchOptions& options,
                                  const std::vector<Candidate>& candidates);

}  // namespace shardline
