// What a flash attention kernel does in prefill, and how long it takes; shared by the forms of GQA and MLA.
#pragma once

#include <cstdint>
#include <span>

#include "hardware/cost/forms/form.hpp"
#include "hardware/cost/forms/split_rules.hpp"
#include "models/ir/schedule.hpp"

namespace shardline {

/// `batch` sequences of `rows` new tokens after `cached` ones. A sliding
/// window of `window` tokens limits what is seen (0: everything before).
struct PrefillShape {
  double batch = 0, rows = 0, cached = 0, heads_q = 0, heads_kv = 0;
  double qk_dim = 0, v_dim = 0;
  double window = 0;
};

/// Query rows of a tile, and keys of one of its blocks.
struct PrefillTile {
  double rows = 128, keys = 128;
};

/// [H30] of all heads and sequences. A block is a tile's query rows by some keys, a tile all blocks of these
/// rows, done by one CTA.
struct PrefillWork {
  PrefillTile tile;
  double blocks = 0;
  double tiles = 0;
  double longest = 0;       // blocks of the longest tile, or of its longest part
  double skipped = 0;       // blocks before a window that a kernel looks at and leaves out, ...
  double longest_skip = 0;  // ... and of them those of the longest tile
  double block_dims = 0;    // qk + v
  double tokens = 0;        // new ones
  double token_share = 1;   // of t_token that one costs
  double query_bytes = 0;   // HBM traffic of queries and outputs
  double cache_bytes = 0;   // ... of keys and values of new tokens
  double prefix_bytes = 0;  // ... of those before them
  double parts = 1;         // that a tile's keys are cut into [H48], each of which counts as a tile
};

/// What kernels differ in beyond their parameters.
enum class PrefillKernel {
  with_rope,  // rotates queries and keys and writes the cache before it attends (TRT-LLM)
  plain,      // attends only; a single new token's heads share a tile (FlashAttention-2)
  packed,     // attends only; the query heads of a KV head share tiles (FlashAttention-4, vLLM's Triton)
  flash_attention_3,  // the same on Hopper, in tiles of its own sizes
  triton_hopper,      // attends only, a head per tile, in tiles of its own sizes (SGLang's Triton) ...
  triton_blackwell,   // ... and there
};
/// SGLang's Triton, wherever it runs.
inline bool is_triton(PrefillKernel k) {
  return k == PrefillKernel::triton_hopper || k == PrefillKernel::triton_blackwell;
}
/// Do the query heads of a KV head share tiles?
inline bool packs_heads(PrefillKernel k) {
  return k == PrefillKernel::packed || k == PrefillKernel::flash_attention_3;
}
/// [H30] bytes: of an element of the arithmetic.
PrefillTile prefill_tile(PrefillKernel kernel, double qk_dim, double bytes, bool window);

/// Exact count of whole blocks, the causal diagonal's included, in constant time.
PrefillWork prefill_work(const PrefillShape& shape, PrefillKernel kernel, const FormContext& context);
/// The equal sequences that have the sums of a schedule's shape: exact for sequences that are alike, but for
/// where in a block a window begins. Its numbers need not be whole for others.
PrefillShape mean_sequence(const AttendPrefillShape& shape);
/// The same of what a schedule knows, sums over intervals of any length: that of mean_sequence(), with the
/// pairs and tiles of the schedule.
PrefillWork prefill_work(const AttendPrefillShape& shape, PrefillKernel kernel, const FormContext& context);

/// [H31] Of t_token: vLLM writes a token's keys and values by a thread block of its own, which is as long
/// there however few of its threads have anything to write.
double write_share(double heads_kv, double qk_dim);

/// What a price counts of tiles that are cut: all, or, for a floor [H57], only what never falls as tokens are
/// added: the more tiles, the fewer parts.
enum class Merging : std::uint8_t { counted, left_out };
/// [H48] Cuts the tiles of `work`, which is of `shape`, as a kernel does that shares their keys among thread
/// blocks; the parts are written in float32 and read again, by a kernel of its own.
void share_keys(PrefillWork& work, const PrefillShape& shape, const TileSplit& split, double sms,
                Merging merging = Merging::counted);

/// Parameters of prefill_seconds(), in its order.
inline constexpr FormParameter kPrefillParameters[] = {
    {"t0", "us", 0.1, 10, 100},         // launch, and what else a call costs before any work
    {"e_mma", "1", 0.05, 0.7, 2},       // achieved fraction of the tensor peak
    {"e_exp", "1", 0.02, 0.6, 2},       // ... of the exponentials'
    {"t_cta", "us", 0.01, 2, 50},       // start and end of a tile
    {"pace", "1", 0.1, 1, 10},          // a block's time in a CTA that is alone over that of a full device
    {"tail", "1", 0.001, 0.5, 2},       // part of the shorter of mean SM and longest tile that is not hidden
    {"e_query", "1", 0.02, 0.6, 5},     // achieved fraction of HBM peak, queries and outputs
    {"e_cache", "1", 0.02, 0.6, 5},     // ... keys and values
    {"t_token", "us", 0.001, 0.1, 10},  // an SM's, for a new token whatever its heads: pages, positions
    {"throttle", "1", 0.001, 0.1, 1},   // slowdown of long kernels, where power limits the clock
    {"skipped", "1", 0.01, 0.4,
     2},  // of a block's time, one before the window that is looked at and left out
};

/// Widths of MLA that its kernels were measured with, DeepSeek-V3's: latent rank, rotary part, a head of keys
/// or values without it.
struct MlaWidths {
  double rank = 512, rotary = 64, head = 128;
};
inline constexpr MlaWidths kMlaMeasured;

/// [H31] p as kPrefillParameters; the rest of p is not looked at, nor `skipped` where `work` has no such
/// blocks.
double prefill_seconds(const PrefillWork& work, const FormContext& context, std::span<const double> p);

/// [H31] The attention of a schedule; p as kPrefillParameters, `context` of kAttentionPrefillForm.
double attention_prefill_seconds(const AttendPrefillShape& shape, const FormContext& context,
                                 std::span<const double> p, Merging merging = Merging::counted);
/// [H32] Attention of MLA, its keys and values expanded or (CacheRows::latent) absorbed, without its
/// projections; p as the form's, `context` that of its scope.
double mla_prefill_seconds(const AttendPrefillShape& shape, const FormContext& context,
                           std::span<const double> p);

/// log2 of: keys that a row sees (tokens of a sequence without a cached prefix), tiles.
void prefill_coordinates(double pairs, double rows, double tiles, double* out);
/// (query, key) pairs of one head of one sequence that mask and window leave.
double prefill_pairs(const PrefillShape& shape);

}  // namespace shardline
