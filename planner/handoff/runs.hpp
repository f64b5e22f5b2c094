// Tokens that two ranks hold, and how many contiguous runs of their pages they make. README.md [D4].
#pragma once

#include "planner/layers/places.hpp"

namespace shardline {

/// Rows that follow one another in a page on both sides.
struct PageRun {
  std::int64_t token = 0, source_row = 0, target_row = 0, rows = 0;
};

struct RunCount {
  std::int64_t tokens = 0, runs = 0;
  std::int64_t whole = 0;  // of the runs, those that fill their page on both sides
  // Pages of which one run begins both sides and another one ends both: where heads lie one behind the other,
  // the end of a head's rows and the beginning of the next one's follow one another.
  std::int64_t around = 0;
  bool operator==(const RunCount&) const = default;
};

/// Tokens that both lists have, cut in runs at the edges of pages of so many rows. Whole periods of two
/// round-robin lists are counted once and multiplied, so that a million tokens take as long as one period.
RunCount count_runs(const HeldList& source, const HeldList& target, int source_page, int target_page);
/// The same, one by one.
std::vector<PageRun> list_runs(const HeldList& source, const HeldList& target, int source_page,
                               int target_page);

}  // namespace shardline
