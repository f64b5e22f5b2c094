// What an engine's pools of caches take of a rank, where layers are of several kinds. planner/README.md [P3],
// [P30].
#pragma once

#include <vector>

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Layers with one kind of attention on a rank.
struct KindLayers {
  int attention = 0;  // number in Model::attentions
  int count = 0;
};

/// Bytes of the pools that a rank with these layers (of one stage) needs for the batch, as the case's engine
/// lays them out. Without an engine, and where no layer has a window, chunks or a state, the sum of what each
/// layer holds.
Bytes cache_pools(const Case& c, const Plan& plan, const std::vector<KindLayers>& layers);

/// Places for states that an attention group's pool has to have for the batch; 0: no layer keeps a state.
long long state_places(const Case& c, const Plan& plan);

/// Tokens of prompts that steps under way beside the batch compute, all of which an engine keeps in layers
/// with windows until they have ended (WindowCaches::steps). Of a case with an engine.
long long tokens_under_way(const Case& c, const Plan& plan);

/// Of an engine whose layers with windows or chunks have a pool of their own (WindowCaches::split): its
/// tokens for each thousand of the other layers' pool, rounded up, with which the batch is served. 0: there
/// is no such pool, or its size follows from the number of requests.
int window_thousandths(const Case& c, const Plan& plan);

/// Requests that a server of prompts has under way under SGLang, in batches of a step: the one that is
/// computed, the one behind it, which is scheduled meanwhile, and those whose caches are being handed over,
/// whose places in the pool of requests are not free before (0.5.14, managers/scheduler.py,
/// get_new_batch_prefill: req_to_token_pool.available_size()).
inline constexpr long long kBatchesUnderWay = 3;

}  // namespace shardline
