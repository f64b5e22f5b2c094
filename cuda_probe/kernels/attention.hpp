// Arguments of the attention kernels. All pointers are of the device that runs them; strides are in elements
// and multiples of 8 (16 bytes), as are the pointers' alignments. Log-sum-exps are natural logarithms of
// sum(exp(scale * q.k)), -infinity where nothing is seen; the output is 0 there.
#pragma once

#include <cstdint>

#include "cuda_probe/kernels/bf16.hpp"

namespace shardline {

/// Key rows that a query sees: those whose code lies in [low, high]. Nothing: low > high.
struct Visible {
  std::int32_t low, high;
};

/// Key rows [first, last) that a query tile must look at; first is a multiple of kKeyTile, last too or the
/// number of key rows. Unmasked: every query of the tile sees all of them.
struct KeyRun {
  std::int32_t first, last, masked;
};

inline constexpr int kQueryTile = 128, kKeyTile = 128;

/// Attention of many query rows, for prefill (GQA, MHA, MQA): rows of any requests and positions, see
/// attend_plan.hpp. Key and value rows may be interleaved in one matrix.
struct PrefillArguments {
  const Bf16 *q, *k, *v;
  std::int64_t q_row, q_head;    // strides
  std::int64_t kv_row, kv_head;  // of k and v alike
  std::int64_t out_row, out_head;
  Bf16* out;
  float* lse;  // [query row][head], rows lse_row apart
  std::int64_t lse_row;
  std::int32_t q_rows, kv_rows, q_heads, kv_heads;
  std::int32_t qk_dim, v_dim;  // 64 and 64, 128 and 128, or 192 and 128 (expanded MLA)
  float scale;                 // of the scores
  // The plan, on the device.
  const Visible* visible;         // [q_rows]
  const std::int32_t* codes;      // [kv_rows rounded up to kKeyTile], -1: padding
  const KeyRun* runs;             // of tile t: runs[run_begin[t], run_begin[t + 1])
  const std::int32_t* run_begin;  // [tiles + 1]
  const std::int32_t* order;      // [tiles]: heaviest first
};

/// One query row per sequence against its cache (GQA), the cache in pieces ("split-KV").
struct DecodeArguments {
  const Bf16 *q, *k, *v;
  std::int64_t q_row, q_head;  // q: [sequence][head]
  std::int64_t kv_row, kv_head;
  // Contiguous: the cache of sequence s is rows [kv_begin[s], kv_begin[s] + kv_rows[s]). Paged (pages not
  // null): its row i is row pages[s * most_pages + i / page_rows] * page_rows + i % page_rows.
  const std::int64_t* kv_begin;  // null: paged
  const std::int32_t* kv_rows;   // [sequences]
  const std::int32_t* pages;
  std::int32_t most_pages, page_rows;  // page_rows: 16, 32, 64, 128 or 256
  Bf16* out;                           // [sequence][head]
  std::int64_t out_row, out_head;
  float* lse;  // [sequence][head], rows lse_row apart; may be null
  std::int64_t lse_row;
  std::int32_t sequences, q_heads, kv_heads, head_dim;  // head_dim 64 or 128; 1 to 64 query heads per KV head
  float scale;
  // Partial results where splits > 1: out [split][sequence][head][head_dim], lse [split][sequence][head].
  std::int32_t splits;
  float* partial_out;
  float* partial_lse;
};

/// DecodeArguments for MLA's latent cache: a row holds v_dim = 512 latent values and 64 rotary ones, shared
/// by all heads; keys are the whole row, values its first 512.
struct MlaDecodeArguments {
  const Bf16 *q, *kv;  // q: [sequence][head][576]
  std::int64_t q_row, q_head, kv_row;
  const std::int64_t* kv_begin;
  const std::int32_t* kv_rows;
  const std::int32_t* pages;
  std::int32_t most_pages, page_rows;
  std::int64_t cache_rows;  // of kv in all; rows below it may be read, whatever they hold
  Bf16* out;                // [sequence][head][512]
  std::int64_t out_row, out_head;
  float* lse;
  std::int64_t lse_row;
  std::int32_t sequences, q_heads;  // 1 to 128
  float scale;
  std::int32_t splits;
  float* partial_out;
  float* partial_lse;
};
inline constexpr int kLatent = 512, kRotary = 64;

/// Top-k of a KV block by score, per KV head (arXiv 2502.12085, Section 3.3): the `keep` rows of highest
/// score, ties to the lower row, copied in the order of their rows. NaN scores are never kept before numbers.
struct CompressArguments {
  const float* scores;  // [kv head][row]
  const Bf16 *k, *v;
  std::int64_t kv_row, kv_head;
  std::int32_t rows, kv_heads, head_dim, keep;  // keep <= rows
  std::int32_t* chosen;                         // [kv head][keep]
  Bf16 *k_out, *v_out;                          // [keep][kv head][head_dim], rows out_row apart
  std::int64_t out_row, out_head;
};

}  // namespace shardline
