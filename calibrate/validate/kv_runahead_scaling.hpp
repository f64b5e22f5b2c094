// What more GPUs bring to a KV-Runahead chain: the paper's claims on slow networks, and its two lower bounds.
#pragma once

#include <span>

#include "calibrate/validate/kv_runahead_paper.hpp"

namespace shardline {

/// Adds to `report` which steps to more GPUs pay (TTFT falls by 1 % or more), published and ours, and how far
/// KVR-S is from TTFT(1)/p and from TTFT*(p) = TTFT(1)/2 (1/p + 1/p^2) (Equation 3). `ours`: seconds of
/// truth.values.
void add_chain_scaling(const ChainTruth& truth, std::span<const double> ours, ChainModel& model,
                       PaperReport& report);

}  // namespace shardline
