// Sparse attention with an index over MLA's latents (DSA of DeepSeek-V3.2 and GLM-5), or over blocks of keys
// of each KV head (MSA of MiniMax-M3): scores of all keys, the choice of the best, and attention to these
// alone, decoding requests and prompts alike. DSA's index is whole on every rank of a TP group; where ranks
// share a cache by sequence, each scores its own keys, the candidates of all are brought together, and the
// best of them are those of the whole cache. planner/README.md [P27].
#pragma once

#include "planner/layers/cache_flow.hpp"
#include "planner/layers/row_ops.hpp"

namespace shardline {

/// The requests of one attention group in a step that are asked so, the plan's batch of each.
std::vector<Segment> asked_segments(const Case& c, const Plan& p, Asked asked);
/// Their number and that of their new tokens.
Count requests_of(std::span<const Segment> segments);
Count rows_of(std::span<const Segment> segments);

/// (query, chosen key) pairs of one head, whole caches: each new token sees the `top_k` best of what is
/// before it, or all; of blocks the `top_k` best, its own among them, of which it sees what is there.
Count chosen_pairs(const SparseIndex& index, const Segment& segment);

/// The largest of the messages of candidates, as it arrives: [P5].
Bytes candidate_buffers(const Case& c, const Attention& a, const Plan& p, Asked asked);
/// Index queries and scores of all rows of a rank, in bytes. vLLM and SGLang score prompts in pieces:
/// `kMostScores` bytes at once.
Bytes choice_activations(const Case& c, const Attention& a, const Plan& p);

/// What products of the index stand behind those of queries and latents; nothing where the layer takes an
/// earlier one's choice. The small kernels of the block are one op of their own.
void add_index_projections(const RowOps& ops, const Case& c, const Attention& a);
void add_module_rest(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, Count rows,
                     std::span<const Segment> chunk = {});

/// Queries of prompts on a context-parallel rank: intervals as segments, new tokens behind all those before
/// them, and how many requests they are of. Kernels take the intervals of a request one by one (SGLang 0.5.14
/// at 49e384ce9d, layers/attention/dsa/dsa_indexer.py, _get_topk_ragged_with_cp: the two chunks of a rank are
/// two calls), and none of them scores the keys of another's request.
struct RankQueries {
  std::vector<Segment> intervals;
  Count requests = 0;
};
RankQueries rank_queries(TokenView queries);
/// add_module_rest() with the queries of every context-parallel rank.
void add_module_rest(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p,
                     std::span<const RankQueries> ranks);

/// Shapes of an index over these requests: scores and choice. Arithmetic of the scores.
class IndexOps {
 public:
  IndexOps(const Case& c, const Attention& a, const Plan& p, const CacheShare& share, Asked asked)
      : c_(c), a_(a), p_(p), share_(share), asked_(asked) {}
  IndexLogitsShape scores(std::span<const Segment> segments) const;
  TopKShape choice(std::span<const Segment> segments) const { return choice(share_, segments); }
  TopKShape choice(const CacheShare& of, std::span<const Segment> segments) const;
  Dtype math() const;

 private:
  const Case& c_;
  const Attention& a_;
  const Plan& p_;
  const CacheShare& share_;
  const Asked asked_;
};

/// Scores and choice for all requests; nothing where the layer takes an earlier one's.
void add_choice(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, const CacheShare& share,
                std::span<const Segment> segments, Asked asked, CacheFlow& flow);
/// What the rank with most of the caches attends to of these requests.
AttendSparseShape sparse_attend_shape(const Case& c, const Attention& a, const Plan& p,
                                      const CacheShare& share, std::span<const Segment> segments,
                                      Asked asked);

}  // namespace shardline
