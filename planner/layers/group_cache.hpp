// Attention over a cache that consecutive ranks of a TP group share by sequence: both ways of bringing
// partial outputs together, and prefills beside such a cache. planner/README.md [P6].
#pragma once

#include "planner/layers/cache_flow.hpp"

namespace shardline {

/// ag_rs: log-sum-exps are gathered, corrected outputs reduce-scattered. a2a: both are sent all-to-all.
enum class PartialExchange : unsigned char { ag_rs, a2a };
inline constexpr double kGroupLseBytes = 4;  // float32 in either

/// What is brought together of an attention over the shards of a group.
struct Partials {
  Count rows = 0, heads = 0, width = 0;  // query rows; heads of the group, and numbers of each
  int requests = 0;
  bool charged = false;  // whether kernels over partial outputs pay for what they move [C4]
};
/// Every rank of the group gets its own heads, merged.
void bring_together(ScheduleBuilder& b, const Case& c, const Partials& partials, Group group,
                    PartialExchange exchange, CacheFlow& flow);
/// The queries of a group's heads, `width` numbers each, to all its ranks.
void gather_queries(ScheduleBuilder& b, const Case& c, const CacheShare& share, Count rows, Count width,
                    CacheFlow& flow);

/// The prefills of a step. Every rank has the queries, keys and values of all new tokens for its own heads,
/// as under TP, and attends among them by itself. Cached tokens lie on the ranks of the group: under GQA the
/// queries go to them (where `gathers_queries`) and partial outputs come back; under MLA the latents come to
/// the queries, which expand them. Both parts are merged where they are.
///
/// vllm-project/vllm 833483f3578a: model_executor/layers/attention/mla_attention.py
/// (_context_parallel_compute_prefill_context; latents travel dequantised),
/// v1/attention/backends/flashinfer.py (BatchDCPPrefillWrapper). Ignored: the workspace through which vLLM
/// gathers long contexts piece by piece; rows that pad shards to a whole interleave; FlashInfer's gather of
/// queries where nothing is cached.
void add_group_prefill(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p,
                       PartialExchange exchange, bool gathers_queries);

}  // namespace shardline
