// APB (arXiv 2502.12085) and StarAttention (arXiv 2411.17116) by their definition: one full matrix of scores
// per head, each pair weighted by how often its query sees its key. Shares no code with their schedules.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda_probe/execute/core/tensors.hpp"

namespace shardline {

struct Problem;

/// A request of a Problem with blocks is a document of `lengths[r] - query` tokens, then its query. It is cut
/// into `hosts` blocks, the first of them one token longer where it does not divide. The anchor is the query,
/// then the first `anchor` tokens of the document (0: its first block). The second half of the requests are
/// these anchors: what a later host computes of its copy.
struct BlockDefinition {
  int hosts = 0;  // 0: attention is exact
  std::int64_t anchor = 0, passing = 0, query = 0;
  int retaining = 0;  // width of the retaining heads; 0: nothing is passed on
};

/// Tokens of the anchor of a document of `document` tokens, the query included.
std::int64_t anchor_length(const BlockDefinition& blocks, std::int64_t document);

/// Makes the rows of every anchor those of the tokens it repeats.
void copy_anchors(const Problem& problem, Matrix<double>& rows);

/// Attention of every document and anchor token, [head][v_dim]; 0 for the query's.
Matrix<double> block_attention(const Problem& problem, const Tensors<double>& tensors);

/// Of the attention output of all documents: |definition - exact| / |exact|, root mean squares.
double distance_to_exact(const Problem& problem);

}  // namespace shardline
