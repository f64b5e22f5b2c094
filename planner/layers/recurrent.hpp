// Layers that keep a state, by the delta rule (gated DeltaNet, Kimi Delta Attention) or Mamba-2: projections,
// the short convolution, and a state per request that every new token updates, decoding or of a prompt. Heads
// are sharded over the ranks that share the output projection, whatever shards the caches of other layers; a
// state is never split by context. Context-parallel ranks exchange their tokens of a prompt for heads before
// the convolution, and heads for tokens behind the states, whatever their attention layers do.
// planner/README.md [P30], [C23].
#pragma once

#include "planner/layers/row_ops.hpp"

namespace shardline {

class ContextStep;

/// The layer's heads as the delta rule names them. Of Mamba-2: groups are key heads, C and B queries and keys
/// of the state's width, inputs values.
DeltaRule state_rule(const Attention& a);

/// Heads of keys and of values on the rank with most. Beyond the key heads, ranks have copies of them.
struct RecurrentHeads {
  Count key = 0, value = 0;
};
/// Over the ranks that share the output projection.
RecurrentHeads recurrent_heads(const Attention& a, const Plan& p);
/// Value heads [first, second) of rank `t` of those.
std::pair<Count, Count> value_heads(const Attention& a, const Plan& p, int t);
/// Those of them of which rank `r` of an attention group keeps states: all; under context parallelism its
/// part of those of its TP rank.
std::pair<Count, Count> state_heads(const Attention& a, const Plan& p, int r);
/// Key heads [first, second) that value heads [first, second) use.
std::pair<Count, Count> key_heads_of(const DeltaRule& d, std::pair<Count, Count> values);

/// Numbers of queries, keys and values of one token, and of the outputs, on the rank with most.
Count recurrent_channels(const Attention& a, const Plan& p);
Count recurrent_values(const Attention& a, const Plan& p);

/// [P5] Both sides of the exchange of context-parallel ranks: what a rank has of its tokens before the
/// convolution and behind the states.
Bytes recurrent_buffers(const Case& c, const Attention& a, const Plan& p);

/// The state of one request of one layer on the rank with most: its matrices in their own type, and the last
/// rows of the convolution in BF16 [M14], `more` of them than it has taps behind the newest.
Bytes rank_state_bytes(const Attention& a, const Plan& p, Count more = 0);
/// Whether the states behind drafts lie beside the pool, and the accepted one is copied into it (SGLang,
/// TensorRT-LLM); else each has a place in the pool, and the next step reads the accepted one's (vLLM).
bool copies_states(const Case& c);
/// One such place: with drafts it holds the rows of the convolution that any of them needs.
Bytes state_place_bytes(const Case& c, const Attention& a, const Plan& p);
/// Places of all requests of a step that are on their way at once: one each, or one behind each of the tokens
/// that are verified.
Bytes recurrent_cache_bytes(const Case& c, const Attention& a, const Plan& p);
/// [P29] The copy of the accepted states of all layers, once a step, behind the tokens that are picked: each
/// is read and written (sgl-project/sglang layers/attention/hybrid_linear_attn_backend.py,
/// update_mamba_state_after_mtp_verify, whose kernel takes all layers at once).
void add_accepted_states(ScheduleBuilder& b, const Case& c, const Plan& p);

/// Elements of its projections on one rank, the output's apart [M1].
AttentionWeights recurrent_weights(const Case& c, const Attention& a, const Plan& p);

/// Numbers that one new token has alive at once, beside the residual stream.
double recurrent_activations(const Attention& a, const Plan& p);

/// Why the plan's ranks have no heads of such layers each, if they have not.
std::optional<std::string> too_many_for_states(const Model& m, const Plan& p);

/// Everything between the norm and the output projection. `prefills` of the step, or null.
void add_recurrent(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, const RowOps& ops,
                   ContextStep* prefills);

/// New tokens of the prompts of a step or round, as one interval of each request.
Tokens whole_prompts(const ContextStep& step);

}  // namespace shardline
