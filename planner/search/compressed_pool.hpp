// What an engine's pool of caches takes of a rank under compressed attention. planner/README.md [P34].
#pragma once

#include "planner/search/cache_sizes.hpp"

namespace shardline {

/// Bytes of the pool that a rank with these layers needs for the batch, of an engine that lays out rows,
/// windows and what rows to come are made of as blocks of one size (CachePools::compressed_block): all of the
/// layers have compressed attention.
Bytes compressed_pool(const Case& c, const Plan& plan, const std::vector<KindLayers>& layers);

}  // namespace shardline
