// Which keys each tile of queries must look at: causal attention over token intervals as the prefill kernel
// sees it.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda_probe/kernels/attention.hpp"
#include "models/ir/tokens.hpp"

namespace shardline {

/// Host copies of the arrays that PrefillArguments points to.
struct AttendPlan {
  std::vector<Visible> visible;
  std::vector<std::int32_t> codes, run_begin, order;
  std::vector<KeyRun> runs;
  /// (query, key) products that the kernel computes for one head: whole tiles.
  double computed = 0;
};

/// Row i of each list is row i of its matrix. Codes number the positions of all requests one after the other;
/// throws std::length_error if that takes more than 31 bits.
AttendPlan plan_attend(TokenView queries, TokenView keys);

}  // namespace shardline
