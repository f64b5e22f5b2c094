// The small models on which strategies are run on real tensors.
#pragma once

#include <span>
#include <vector>

#include "cuda_probe/execute/verify/verify_cases.hpp"

namespace shardline::cli {

/// The attention of a small model's layers.
struct Layers {
  const char* name;
  std::vector<Attention> (*attentions)(const CaseSizes& z);
};

/// Every kind of attention that a strategy may run.
std::span<const Layers> verify_layers();

/// Two layers at least, on nodes enough, in BF16, with a module that drafts.
Case small_case(const Layers& layers, const CaseSizes& z);

}  // namespace shardline::cli
