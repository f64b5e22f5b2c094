// Attention over a window and over rows of several tokens, of all tokens by its definition: what every split
// of caches and of steps has to reproduce.
#pragma once

#include "cuda_probe/execute/core/tensors.hpp"

namespace shardline {

struct Problem;

/// Sizes of the rows of DeepSeek-V4's attention; none with a ratio of 0.
struct RowDefinition {
  int ratio = 0;            // tokens that a row stands for
  int parts = 1;            // 2: it is made of as many before these, too
  bool compressed = false;  // one key, which is the value too, for all heads; with rows or without
};

/// Random inputs of all tokens: absorbed_query, latent (the window's keys), values, gates and biases of rows
/// and of an index's rows, index queries and weights; from them row, index_key, chosen and attention_output.
/// `t.first_row` is set. transformers models/deepseek_v4/modular_deepseek_v4.py: DeepseekV4HCACompressor,
/// DeepseekV4CSACompressor and its _overlap_pool, DeepseekV4Indexer, DeepseekV4Attention; without rotations
/// and weights of norms. Queries with equal scores choose the first rows.
void set_compressed(const Problem& p, Tensors<double>& t);

}  // namespace shardline
