#include "hardware/cost/forms/sparse_models.hpp"

#include <algorithm>

namespace shardline {

namespace {

constexpr double kRank = 512, kRope = 64, kIndexDim = 128;
constexpr double kIndexRow = kIndexDim + 4;  // FP8 and a float scale

// DSA: hidden, rank of queries, widths without rotation and of values, heads of the index.
constexpr SparseLayer dsa(std::string_view model, std::string_view layer, double hidden, double q_rank,
                          double nope, double v, double index_heads) {
  const double index =
      index_heads > 0 ? q_rank * index_heads * kIndexDim + hidden * (kIndexDim + index_heads) : 0;
  return {.model = model,
          .layer = layer,
          .cache = SparseCache::latent,
          .shared_weights = hidden * (q_rank + kRank + kRope) + index,
          .head_weights = q_rank * (nope + kRope) + v * hidden,
          .absorbed_weights = kRank * (nope + v),
          .whole_bf16 = 0,
          .selected = 2048,
          .ratio = 1,
          .window = 0,
          .index_heads = index_heads,
          .index_bytes = kIndexRow,
          .width = kRank + kRope + kRank,
          .group = 1};
}

// DeepSeek-V4: 64 index heads; outputs in `groups` blocks of rank 1024; compressors project a token to a key
// and a gate: twice 512 of each, and of the index 128, where they overlap (CSA), once 512 (HCA).
constexpr SparseLayer v4(std::string_view model, std::string_view layer, bool csa, double hidden,
                         double q_rank, double heads, double groups, double selected) {
  constexpr double kIndexHeads = 64, kOutRank = 1024, kWidth = 512;
  const double index = csa ? q_rank * kIndexHeads * kIndexDim + hidden * kIndexHeads : 0;
  return {.model = model,
          .layer = layer,
          .cache = SparseCache::compressed,
          .shared_weights = hidden * (q_rank + kWidth) + index,
          .head_weights = q_rank * kWidth + kWidth * kOutRank + groups / heads * kOutRank * hidden,
          .absorbed_weights = 0,
          .whole_bf16 = hidden * 2 * (csa ? 2 * (kWidth + kIndexDim) : kWidth),
          .selected = csa ? selected : 0,
          .ratio = csa ? 4.0 : 128.0,
          .window = 128,
          .index_heads = csa ? kIndexHeads : 0,
          .index_bytes = kIndexRow,
          .width = 2 * kWidth,
          .group = 1};
}

// MSA: 64 query and 4 KV heads of 128, blocks of 128 keys, 16 of them; one index head per KV head.
constexpr SparseLayer kMsa{.model = "MiniMax-M3",
                           .layer = "msa",
                           .cache = SparseCache::blocks,
                           .shared_weights = 6144.0 * kIndexDim,
                           .head_weights = 2.0 * 6144 * 128 + 6144.0 * (2 * 128 + kIndexDim) / 16,
                           .absorbed_weights = 0,
                           .whole_bf16 = 0,
                           .selected = 16 * 128,
                           .ratio = 1,
                           .window = 0,
                           .index_heads = 4,
                           .index_bytes = 2 * kIndexDim,
                           .width = 2 * 128,
                           .group = 16};

constexpr SparseLayer kLayers[] = {
    dsa("deepseek-v3.2", "indexer", 7168, 1536, 128, 128, 64),
    dsa("glm-5", "indexer", 6144, 2048, 192, 256, 32),
    dsa("glm-5.2", "indexer", 6144, 2048, 192, 256, 32),
    dsa("glm-5.2", "skip_indexer", 6144, 2048, 192, 256, 0),
    v4("deepseek-v4-flash", "csa", true, 4096, 1024, 64, 8, 512),
    v4("deepseek-v4-flash", "hca", false, 4096, 1024, 64, 8, 0),
    v4("deepseek-v4-pro", "csa", true, 7168, 1536, 128, 16, 1024),
    v4("deepseek-v4-pro", "hca", false, 7168, 1536, 128, 16, 0),
    kMsa,
};

}  // namespace

std::span<const SparseLayer> sparse_layers() { return kLayers; }

const SparseLayer* find_sparse_layer(std::string_view model, std::string_view layer) {
  const auto* const found = std::find_if(std::begin(kLayers), std::end(kLayers), [&](const SparseLayer& l) {
    return l.model == model && l.layer == layer;
  });
  return found == std::end(kLayers) ? nullptr : found;
}

double projection_weights(const SparseLayer& l, double heads) {
  return l.shared_weights + l.whole_bf16 + heads * (l.head_weights + l.absorbed_weights);
}

double projection_bytes(const SparseLayer& l, double heads, double type_bytes) {
  return (l.shared_weights + heads * l.head_weights) * type_bytes +
         2 * (l.whole_bf16 + heads * l.absorbed_weights);
}

double attended_rows(const SparseLayer& l, double tokens) {
  const double rows = tokens / l.ratio;
  return (l.selected > 0 ? std::min(rows, l.selected) : rows) + std::min(tokens, l.window);
}

}  // namespace shardline
