// What TSP takes longer than predicted where only its speedup is published, per token and layer.
#pragma once

#include <span>

#include "calibrate/validate/kv_runahead_paper.hpp"

namespace shardline {

/// Speedups that a figure states beside ours, and what they leave for TSP with our KVR-S: whether that part
/// shrinks with more GPUs, and how much of it keys and values gathered once per query head would be.
/// `ours`: seconds of truth.values.
void add_chain_figure(const ChainTruth& truth, std::span<const double> ours, ChainModel& model,
                      PaperReport& report);

}  // namespace shardline
