// The parts of a measured block of sparse attention. README.md [H71], [H72].
#pragma once

#include <span>

#include "hardware/cost/forms/form.hpp"

namespace shardline {

/// Seconds on the device. projections: all products with weights. index: scores of all keys. top_k: the rows
/// with the highest ones. attend: to these and to the window. rest: norms, rotation, cache writes, launches.
/// sorting: what top_k takes more on scores that lie flat, as those of the tables do and no model's: of rows
/// that were measured, and in no price.
struct SparseParts {
  double projections = 0, index = 0, top_k = 0, attend = 0, rest = 0, sorting = 0;
  double device() const { return projections + index + top_k + attend + rest + sorting; }
};

/// What of a block a rank does that has a part of the cache. Negative: all of it.
struct SparseShard {
  double attended = -1;  // chosen rows of its own, a mean over the queries
};

/// [H71] x: batch, kv_len, heads_local, as kSparseDecodeForm has them; its seconds are the parts' sum.
SparseParts sparse_decode_parts(std::span<const double> x, const FormContext& c, std::span<const double> p,
                                const SparseShard& shard = {});
/// [H72] x: batch, seq_q, kv_cached, heads_local; kSparsePrefillForm's seconds have a host beside the sum.
SparseParts sparse_prefill_parts(std::span<const double> x, const FormContext& c, std::span<const double> p,
                                 const SparseShard& shard = {});

}  // namespace shardline
