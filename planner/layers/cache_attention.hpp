// Attention over caches that several ranks share by sequence, for the decoding requests of a step and for its
// prefills; without sharers, that of a decoding rank over whole caches. planner/README.md [P6].
#pragma once

#include "planner/layers/share.hpp"

namespace shardline {

class CacheFlow;

/// What a rank attends for decoding requests [first, first + count) of its group, over the tokens that the
/// fullest sharer holds.
AttendDecodeShape decode_attend_shape(const Case& c, const Attention& a, const Plan& p, Count first,
                                      Count count);
/// The same for all prefills of the group: all their new tokens, whose keys and those of cached ones lie on
/// the sharers. Under MLA over expanded heads.
AttendPrefillShape shared_prefill_shape(const Case& c, const Attention& a, const Plan& p);
/// [P1] Tokens of all prefills of the group, cached and new, on the fullest sharer, as far as new ones see.
Count prefill_keys_on_fullest(const Case& c, const Attention& a, const Plan& p);
/// New tokens of all prefills of the group, and their number.
Count prefill_tokens(const Case& c, const Plan& p);
inline Count prefill_sequences(const Case& c, const Plan& p) {
  return requests_in(c.batch.prefill) * p.batch;
}

/// MLA's up-projections: keys and values of a rank's heads from `rows` latent rows; values of `heads` heads
/// from averaged latents (absorbed), in `parts` of one kernel.
OpIndex add_kv_up(ScheduleBuilder& b, const Case& c, const Attention& a, Count rows, Count heads);
OpIndex add_value_up(ScheduleBuilder& b, const Case& c, const Attention& a, Count rows, Count heads,
                     Count parts = 1, double launches = 1);

/// Bytes of one query head's partial output and log-sum-exp (two float32, as TensorRT-LLM sends them).
double partial_output_bytes(const Case& c, const Attention& a, const Plan& plan);

/// The attention of the decoding requests; without one of the strategy's own that over KVP ranks, in one
/// chunk.
void add_decode_attention(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& plan);
/// Attention over this rank's KV shard with the exchange (all-to-all or all-gather) of partial outputs over
/// the KVP ranks. Of several chunks of requests, the exchange of one overlaps the attention of the next
/// (HOP-B, 2507.07120 section 2.1.3).
void add_kvp_attention(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& plan,
                       OpKind exchange, int chunks);
/// Prefills over KVP ranks: each attends with the queries of all new tokens over its part of the keys, causal
/// by position; the partial outputs are brought together as those of decoding requests. Exact, for a merge by
/// log-sum-exps is. arXiv 2507.07120 has decoding alone.
void add_kvp_prefill(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& plan,
                     OpKind exchange);
/// [P27] The same where an index chooses keys; `rows` of each request, if they are not those of all the
/// step's prefills.
void add_sparse_prefill(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& plan,
                        OpKind exchange, TokenView rows = {});
/// [P34] Compressed attention: the outputs of a window and of rows, behind an op that attends to both: one
/// kernel writes them as one. Nothing where there are no rows.
void merge_window_and_rows(ScheduleBuilder& b, const Attention& a, Count rows, Count heads, CacheFlow& flow,
                           int first, int count);
/// [P5] The largest message of add_kvp_prefill(), and what latents expand to.
Bytes kvp_prefill_buffers(const Case& c, const Attention& a, const Plan& plan);

}  // namespace shardline
