// Plain attention and one plain transformer layer on one device: what every data flow has to reproduce.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda_probe/execute/core/tensors.hpp"
#include "cuda_probe/execute/cpu/block_reference.hpp"
#include "cuda_probe/execute/cpu/compressed_reference.hpp"
#include "cuda_probe/execute/cpu/recurrent_reference.hpp"

namespace shardline {

/// Sizes of a small model and the requests it serves. Positions of a request begin at 0.
struct Problem {
  int q_heads = 1;
  int kv_heads = 1;
  // latent: MLA in absorbed form alone; a row of kv is the key of every head, its first v_dim columns the
  // value.
  CacheRows cache = CacheRows::heads;
  int qk_dim = 4, v_dim = 4;  // MLA: kv_lora + rope, kv_lora
  int value_up = 0;           // MLA: width of a head after value_up_weight; 0: no such step
  // MLA: keys and values follow from latent rows [kv_lora, rope] and kv_up_weight, a key ends in the rotary
  // part that all heads share; absorbed queries and value_up_weight follow from the same weight, so that
  // attention to the latents is that to the expanded heads. 0: they are random.
  int kv_lora = 0, rope = 0;
  int hidden = 0;                     // 0: attention only, query and kv are random
  int ffn_inner = 0;                  // 0: no layer output
  std::vector<std::int64_t> lengths;  // tokens of each request, cached ones included
  Tokens expected_queries;            // tokens whose outputs must be there; empty: all
  std::uint64_t seed = 1;
  double scale = 0;             // of the scores; 0: 1/sqrt(qk_dim)
  BlockDefinition blocks = {};  // of an approximate attention
  Reach reach = {};             // which earlier tokens a query sees
  // MLA, expanded: a query sees the `top_k` keys before it of the highest scores of this index; 0: all.
  int index_heads = 0, index_dim = 0, top_k = 0;
  // Above 1: blocks of so many tokens are chosen, for each KV head by one head of the index, the first
  // `index_init` and the `index_local` last ones always.
  int index_block = 1, index_init = 0, index_local = 0;
  // What queries, weights and keys of the index are drawn from; 0: `seed`. A layer that takes an earlier
  // one's choice has that layer's.
  std::uint64_t index_seed = 0;
  RecurrenceDefinition recurrence = {};  // linear attention, in place of attention
  RowDefinition rows = {};               // compressed attention, in place of the above
  bool sinks = false;                    // random ones, 1 x q_heads: each head's softmax has one more score
  // Linear attention: the state behind each expected token must be there, not that behind the last alone.
  bool every_state = false;
};

/// Inputs made of normal random numbers (the same bits everywhere), and from them by loops over positions
/// attention_output and, where hidden and ffn_inner are set, layer_output. With hidden, query and kv follow
/// from hidden: x -> rms_norm -> qkv_weight -> attention (-> value_up_weight per head) -> out_weight -> + x
/// -> rms_norm -> up_weight -> swiglu -> down_weight -> + . No rotary embedding. With blocks, attention is
/// that of block_attention().
Tensors<double> reference(const Problem& problem);

/// Causal softmax attention of every token over what it sees of its own request, [head][v_dim] as
/// Whole::attention_output. sinks: as Whole::sinks; empty: none. chosen: as Whole::chosen; empty: all keys.
Matrix<double> plain_attention(const Problem& problem, const Matrix<double>& query, const Matrix<double>& kv,
                               const Matrix<double>& sinks = {}, const Matrix<double>& chosen = {});

}  // namespace shardline
