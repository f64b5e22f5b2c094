// Prefills under context parallelism that gather caches where an index chooses keys, and what rows of several
// tokens are made of. planner/README.md [C22], [C24].
#pragma once

#include <vector>

#include "planner/layers/context_step.hpp"
#include "planner/layers/sparse_attention.hpp"

namespace shardline {

/// [C22] Every rank gathers the index keys of all tokens, chooses for its own queries among all of them,
/// gathers latents (of blocks keys and values), and attends to what it has chosen. Layers that take an
/// earlier one's choice gather no index keys. Follows SGLang 0.5.14 (sgl-project/sglang 49e384ce9d,
/// python/sglang/srt: layers/attention/dsa/dsa_indexer.py:554, models/deepseek_v2.py:1923,
/// layers/utils/cp_utils.py:310), which reorders what it gathers.
void attend_gathered_choice(ContextStep& s);
/// [C25] The same choice; then latents (of blocks keys and values) stay where they are and travel round the
/// ring, and a rank attends to what it has chosen of those that it holds, until it has seen all.
void attend_ring_choice(ContextStep& s);
/// [P5] Their buffers.
Bytes ring_choice_buffers(const Case& c, const Attention& a, const Plan& p);
Bytes gathered_choice_buffers(const Case& c, const Attention& a, const Plan& p);

/// [C24] Compressed attention: every rank has all caches, gathers what new tokens add to the window and the
/// values and gates that rows are made of, makes all rows, and attends with its own queries to the window and
/// to the rows that it has chosen, or to all. Follows SGLang 0.5.14 (sgl-project/sglang 49e384ce9d,
/// python/sglang/srt: models/deepseek_v4.py:865, layers/attention/dsv4/compressor.py:434,
/// layers/attention/deepseek_v4_backend.py:310), which deals tokens out one by one.
void attend_gathered_rows(ContextStep& s);
/// [P5] Its buffers.
Bytes gathered_rows_buffers(const Case& c, const Attention& a, const Plan& p);

/// Pieces of both. An op with the shape of each rank's intervals of queries.
template <class F>
void add_for_intervals(ContextStep& s, const std::vector<RankQueries>& ranks, const char* name, Dtype math,
                       F shape) {
  const auto of = [&](int k) {
    const RankQueries& rank = ranks[static_cast<std::size_t>(k)];
    auto one = shape(rank.intervals);
    one.requests = rank.requests;
    return one;
  };
  s.b.indexed(name, Part::attention, s.c.precision.kv, math, of(0));
  s.vary([&](int k) { return Shape(of(k)); });
}
/// What the op that was added last does: scores of a rank's queries over gathered keys of the index, which
/// stand for `ratio` tokens each; and the `kept` best of them, of each of `choices` heads, as positions.
/// Slots of scores and of positions.
SlotId score_gathered(ContextStep& s, SlotId keys, const Tokens& list, int ratio);
SlotId keep_gathered(ContextStep& s, SlotId scores, const Tokens& list, std::int64_t kept,
                     std::int64_t choices);

}  // namespace shardline
