// How far rows of a table lie from each other where the same kernel does the same work. calibrate/README.md
// [F11].
#pragma once

#include <cstddef>
#include <vector>

#include "calibrate/fit.hpp"

namespace shardline {

/// Rows whose times others of the same table ought to have, and what those have.
struct Neighbours {
  std::vector<std::size_t> rows;
  std::vector<double> seconds;  // the median of at least three others
};

/// [F11] Products of `gemm` by others of the same n and k whose m fills the same tile: m of 1 to 128 in
/// blocks of 16, which lie inside one tile of any height from 16 on.
Neighbours in_one_tile(const FitRows& products);

/// [F11] The times of all shapes that two tables have, in the order of the first.
struct Repeats {
  std::vector<double> first, second;  // seconds
};
Repeats repeats_of(const FitRows& first, const FitRows& second);

}  // namespace shardline
