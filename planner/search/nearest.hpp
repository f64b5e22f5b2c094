// What comes nearest where no plan meets a target.
#pragma once

#include <vector>

#include "planner/search/candidates.hpp"

namespace shardline {

/// The largest part by which what users get of a served point, its TPOT and its mean TTFT, is above what was
/// asked for; 0 where nothing is.
double excess(const Point& point, Seconds most_time, Seconds most_ttft);

/// Of a search with a workload and a target: all candidates at their smallest batches that no other beats
/// both in excess() and in tokens/s/GPU, the nearest to the target first. Nothing where nobody is served.
std::vector<Point> nearest_points(const Case& c, const SearchOptions& options,
                                  const std::vector<Candidate>& candidates);
/// The same of the candidates of a search with these options.
std::vector<Point> nearest_points(const Case& c, SearchOptions options);

/// Takes out strategies whose plans need a pool of their own for prompts, and says so in `result`.
void leave_out_decoders(const Case& c, SearchOptions& options, SearchResult& result);

}  // namespace shardline
