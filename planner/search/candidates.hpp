// The plans that a search looks at.
#pragma once

#include "planner/search/search.hpp"

namespace shardline {

/// One plan with its feasible range of batches, as indices into options.batches.
struct Candidate {
  Plan plan;
  std::size_t first = 0, last = 0;  // [first, last)
  std::uint64_t order = 0;          // of its first batch among all configurations
  bool baseline = false;            // equal parts of a chain whose searched parts are a candidate too
  int runs = 0;                     // of one batch that memory does not hold: the one that runs, others wait
};

/// All of them, in the order of strategies, GPU counts and enumeration. Counts what they are, what of them
/// does not fit, and says in `result` which strategies and values asked for have none.
std::vector<Candidate> enumerate_candidates(const Case& c, const SearchOptions& o, SearchResult& result);

}  // namespace shardline
