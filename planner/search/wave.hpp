// A wave of candidates of a search: what each came to, merged when all of them are done.
#pragma once

#include <vector>

#include "planner/search/journal.hpp"
#include "planner/search/sample.hpp"

namespace shardline {

struct CandidateResult {
  Frontier frontier{Metric::time, Metric::time};
  SearchCounts counts;
  Sample simulations, bounds;
  std::vector<Point> all;
};

/// A wave of candidates [begin, end) of which nothing is found yet; which calls are timed goes by their
/// number.
void begin_wave(std::vector<CandidateResult>& wave, Metric x, Metric y, std::size_t begin, std::size_t end);

void add_counts(SearchCounts& to, const SearchCounts& from);

/// Fills the wave of candidates [begin, end) from the journal (null: none); false where it has no record of
/// it.
bool restored(SearchJournal* journal, std::size_t begin, std::size_t end, std::vector<CandidateResult>& wave);
void keep(SearchJournal* journal, std::size_t begin, std::size_t end,
          const std::vector<CandidateResult>& wave);

}  // namespace shardline
