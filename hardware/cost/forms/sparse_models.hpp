// The attention blocks whose modules were measured whole: what their projections, indexes and caches are made
// of. hardware/cost/forms/README.md [H71].
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace shardline {

/// latent: MLA's rows, absorbed (DSA). compressed: DeepSeek-V4's rows of 512 that are keys and values at
/// once. blocks: whole blocks of keys and values of KV heads (MSA).
enum class SparseCache : std::uint8_t { latent, compressed, blocks };

/// One kind of layer of one model; elements, widths and keys as its config.json has them.
struct SparseLayer {
  std::string_view model, layer;  // as tables name them
  SparseCache cache;
  double shared_weights;    // elements of projections that every rank has whole, in the layer's type
  double head_weights;      // more for each query head of the rank
  double absorbed_weights;  // of each query head, in BF16 whatever the layer's type
  double whole_bf16;        // of every rank, in BF16 (compressors)
  double selected;          // rows of the cache that a query attends to at most; 0: all that there are
  double ratio;             // tokens that one row of the cache stands for
  double window;            // last tokens that are attended to beside those
  double index_heads;       // 0: the layer does not score
  double index_bytes;       // of one row's index key, with its scale
  double width;             // elements of a query and an output of one head
  double group;             // query heads per KV head, of `blocks`
};
std::span<const SparseLayer> sparse_layers();
/// Null: not among them.
const SparseLayer* find_sparse_layer(std::string_view model, std::string_view layer);

/// Weights that a rank with so many query heads multiplies each token by: elements, and bytes if `type_bytes`
/// is what an element of the layer's type takes.
double projection_weights(const SparseLayer& l, double heads);
double projection_bytes(const SparseLayer& l, double heads, double type_bytes);

/// Rows of the cache that a query with so many tokens before and at it attends to, the window's included.
double attended_rows(const SparseLayer& l, double tokens);

}  // namespace shardline
