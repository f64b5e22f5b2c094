// Shapes of the ops that the shipped scenarios' plans contain: what the probe measures.
#pragma once

#include "cuda_probe/probes/shapes.hpp"
#include "planner/scenario/scenario.hpp"

namespace shardline::probe_cli {

/// How many shapes of each kind are kept, after spread().
struct ShapeBudget {
  std::size_t gemm = 1024, prefill = 448, decode = 384, mla = 128, merge = 96;
};

/// Every plan that fits memory of every sweep in the scenarios folder, with each catalogue model that has no
/// sweep of its own put into the first sweep of a decode step; batches are powers of two and the largest,
/// HOP-B off (its chunks are smaller batches). Chunks of prefills over context-parallel ranks are left out: a
/// piece of one is that of a ring's iteration or of a chunk on one rank, at further lengths between. The
/// plans of conversations and of threshold grids, these at factors of 4 in T and at five miss rates. From the
/// lowered schedules: GEMMs with one matrix (m rounded up to a power of two above 8, n and k to multiples of
/// 16), attention, merges. Grouped experts and MLA's per-head projections are not among them. Sorted, no
/// repetitions, not thinned. Throws UserError for a bad scenario.
ShapeLists visited_shapes(const Catalogs& catalogs);

/// What a run measures: each list of visited_shapes() in the order of spread().
ShapeLists chosen_shapes(ShapeLists visited, const ShapeBudget& budget = {});

}  // namespace shardline::probe_cli
