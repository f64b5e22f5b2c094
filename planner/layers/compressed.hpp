// Attention over a window of single tokens and over rows that several tokens were compressed to (CSA and HCA
// of DeepSeek-V4). One key, which is the value too, serves all heads: tensor parallelism shares out queries
// and outputs, and every rank of a TP group makes and keeps all rows. Ranks that share a cache by sequence
// deal out tokens of the window and rows, each in blocks of its own; each of them makes the rows that it
// keeps, of values and gates that all project and keep. Of CSA each scores its own rows, as of other indexes
// [P27]. planner/README.md [P34].
#pragma once

#include "planner/layers/cache_flow.hpp"
#include "planner/layers/row_ops.hpp"

namespace shardline {

/// Rows that a request of so many tokens has: whole ones alone.
long long rows_of_tokens(const Attention& a, long long tokens);
/// How sharers of the tokens deal out rows: of as many rows in a block as its tokens make, one at least.
CacheShare row_share(const Attention& a, const CacheShare& tokens);
/// (query, row) pairs of a segment's new tokens with the rows of a sharer: a token sees those of which the
/// last token is not behind it. Its own row is among them if it is its last.
Count row_pairs(const Attention& a, const CacheShare& rows, int member, const Segment& segment);
/// The same of whole caches with what an index leaves: the `top_k` best of each token's rows, or all.
Count chosen_row_pairs(const Attention& a, const Segment& segment);

/// Tokens of a page of the window, and of what rows to come are made of, which is part of two rows where they
/// overlap (vllm-project/vllm near v0.24.0: v1/attention/backends/mla/sparse_swa.py, DeepseekV4SWACache;
/// models/deepseek_v4/compressor.py, CompressorStateCache).
inline constexpr int kWindowPage = 64;
inline int uncompressed_page(const Attention& a) { return a.index ? 4 : 8; }

/// What a rank keeps of the requests of one layer: of the window, of rows with index keys, and what rows to
/// come are made of, which every rank has.
Bytes compressed_cache_bytes(const Case& c, const Attention& a, const Plan& p);
AttentionWeights compressed_weights(const Case& c, const Attention& a, const Plan& p);

/// The output projection of a rank: heads of each group to `rank` numbers, those of all groups that it has
/// heads of to the model's width. A group that ranks share is summed with the rest.
struct OutputGroups {
  Count groups = 0, width = 0;  // numbers of heads that it has of each
};
OutputGroups output_groups(const Attention& a, const Plan& p);

/// Products of the input: queries, the window's key, values and gates of rows, and of an index its own.
void add_compressed_projections(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p,
                                const RowOps& ops);
void add_grouped_outputs(const Case& c, const Attention& a, const Plan& p, const RowOps& ops);

/// As in sparse_attention.hpp, which asks these for layers of this kind.
AttendSparseShape compressed_attend_shape(const Case& c, const Attention& a, const Plan& p,
                                          const CacheShare& share, std::span<const Segment> segments,
                                          Asked asked);
IndexLogitsShape row_logits_shape(const Case& c, const Attention& a, const CacheShare& share,
                                  std::span<const Segment> segments, Asked asked);
TopKShape row_choice_shape(const Case& c, const Attention& a, const CacheShare& share,
                           std::span<const Segment> segments, Asked asked);
/// Rows that a rank has of the longest request.
Count longest_rows(const Attention& a, const CacheShare& share, std::span<const Segment> segments);

}  // namespace shardline
