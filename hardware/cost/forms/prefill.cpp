#include "hardware/cost/forms/prefill.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hardware/cost/forms/forms.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr double kBlock = 128;
/// Warp groups work on 64 rows, so a short tile costs half.
constexpr double kHalf = 64;
/// Of the largest step that vLLM has CUDA graphs for by default (max_cudagraph_capture_size).
constexpr double kGraphTokens = 512;
/// Of an element of a part's output.
constexpr double kPartialBytes = 4;
/// Time constant of power management.
constexpr double kPowerSeconds = 0.02;

// What overlaps, smooth where both are equal.
double norm4(double a, double b) {
  const double a2 = a * a, b2 = b * b;
  return b > 0 ? std::sqrt(std::sqrt(a2 * a2 + b2 * b2)) : a;
}

double whole_blocks(double seen, double keys) { return seen <= keys / 2 ? 0.5 : std::ceil(seen / keys); }

// Tiles of a head's sequence. Tile i ends at key cached + (i + 1) tokens: sums of these are rounded up to
// blocks, exactly where a tile has a block's length, by half the difference on average where it is shorter.
struct Tiles {
  double tokens, full;  // of a tile; tiles before the last
  double slack;         // keys that rounding adds on average
  double sum = 0, last = 0,
         before = 0;  // blocks: of the tiles before the last, of the last, of that before it
};

// Blocks left of the window are skipped. The window's edge is not aligned to blocks, which costs one more.
void whole_blocks_of_window(const PrefillShape& s, Tiles& t) {
  const double edge = s.cached - s.window + 1 - kBlock;  // of tile 0
  const double first = std::max(0.0, std::ceil(-edge / t.tokens));
  const double many = t.full - first;
  if (many > 0) {
    const double cut = edge / kBlock - std::floor(edge / kBlock);
    const double loss = t.tokens < kBlock ? t.slack / kBlock : cut;
    t.sum -=
        std::max(0.0, many * (edge / kBlock - loss) + t.tokens / kBlock * many * (first + t.full - 1) / 2);
  }
  t.last -= std::floor(std::max(0.0, edge + t.full * t.tokens) / kBlock);
  if (t.full > 0) t.before -= std::floor(std::max(0.0, edge + (t.full - 1) * t.tokens) / kBlock);
}

// FlashAttention-3 counts its blocks from the first key on that the tile's first token sees
// (hopper/block.h:29 of vllm-project/flash-attention@803020a8, which vLLM 0.24.0 builds).
void blocks_from_window(const PrefillShape& s, double keys, Tiles& t) {
  const double inside = std::ceil((s.window - 1 + t.tokens) / keys);
  const double first = std::max(0.0, std::ceil((s.window - 1 - s.cached) / t.tokens));  // with keys left out
  const double many = t.full - first;
  if (many > 0) {
    const double causal =
        many * (s.cached / keys + t.slack / keys) + t.tokens / keys * many * (first + 1 + t.full) / 2;
    t.sum -= std::max(0.0, causal - many * inside);
    t.before = std::min(t.before, inside);
  }
  if (many >= 0) t.last = std::min(t.last, whole_blocks(s.rows - t.full * t.tokens + s.window - 1, keys));
}

// Keys that rounding a tile's end up to blocks of `keys` adds on average: ends are multiples of what tokens
// and keys have in common, and come to lie everywhere in a block.
double mean_slack(double tokens, double keys) {
  if (tokens != std::floor(tokens)) return std::max(0.0, keys - tokens) / 2;
  const auto common = std::gcd(static_cast<long>(tokens), static_cast<long>(keys));
  return (keys - static_cast<double>(common)) / 2;
}

void add_bytes(PrefillWork& w, PrefillKernel kernel, const FormContext& c, const PrefillShape& s, double rows,
               double cache_rows) {
  const bool rope = kernel == PrefillKernel::with_rope;
  const double q = rows * s.heads_q * s.qk_dim, out = rows * s.heads_q * s.v_dim;
  const double element = s.heads_kv * (s.qk_dim + s.v_dim);
  w.tokens = rows;
  w.query_bytes = q * (rope ? 2 + 2 * c.a_bytes : c.a_bytes) + 2 * out;
  // With RoPE new keys and values are read and written; attention then finds them in L2.
  const double fresh = std::min(rows, cache_rows);
  w.cache_bytes = element * (rope ? rows * (2 + c.b_bytes) : fresh * c.b_bytes);
  w.prefix_bytes = element * (cache_rows - fresh) * c.b_bytes;
}

// {kBlockM, kBlockN} of tile_size_fwd_sm90, causal, with pages that TMA cannot fetch: SGLang's hold a token,
// vLLM's 16 (hopper/tile_size.h of vllm-project/flash-attention@803020a8).
PrefillTile flash_attention_3_tile(double qk_dim, bool fp8, bool window) {
  if (qk_dim <= 64) return {192, fp8 || window ? 160.0 : 128.0};
  if (qk_dim <= 96) return {192, 128};
  if (qk_dim <= 128) return {128, fp8 ? 160.0 : 128.0};
  if (qk_dim <= 192) return {128, fp8 ? (window ? 128.0 : 160.0) : 96.0};
  // No head is as wide: MLA's rows, absorbed, of which it takes the 512 values apart from the 64 beside them.
  if (qk_dim > 256) return {64, 64};
  return {128, window ? 64.0 : fp8 ? 128.0 : 80.0};
}

// {BLOCK_M, BLOCK_N} of _get_block_sizes_for_extend_attention, whatever the type
// (sgl-project/sglang@9a0bd24be, kernels/ops/attention/extend_attention.py).
PrefillTile triton_tile(PrefillKernel kernel, double qk_dim) {
  constexpr double kKeys = 64;
  if (qk_dim > 256) return {kernel == PrefillKernel::triton_hopper ? 32.0 : 16.0, kKeys};
  if (qk_dim > 128 || kernel == PrefillKernel::triton_blackwell) return {64, kKeys};
  return {128, kKeys};
}

// SGLang's Triton goes through all new keys before a tile's end, in and out of its window, and leaves a block
// out once it has made the mask and found it empty (extend_attention.py, SKIP_TILE). Of a cached prefix it is
// given those inside the window alone.
void blocks_looked_at(const PrefillShape& s, const PrefillTile& tile, double full, double heads,
                      PrefillWork& w) {
  PrefillShape fresh = s;
  fresh.cached = 0;
  const double slack = mean_slack(tile.rows, tile.keys);
  Tiles all{tile.rows, full, slack};
  all.sum = full * slack / tile.keys + tile.rows / tile.keys * full * (full + 1) / 2;
  all.last = whole_blocks(s.rows, tile.keys);
  Tiles inside = all;
  blocks_from_window(fresh, tile.keys, inside);
  w.skipped = s.batch * heads * std::max(0.0, all.sum + all.last - inside.sum - inside.last);
  w.longest_skip = std::max(0.0, all.last - inside.last);
}

}  // namespace

PrefillTile prefill_tile(PrefillKernel kernel, double qk_dim, double bytes, bool window) {
  if (kernel == PrefillKernel::flash_attention_3) return flash_attention_3_tile(qk_dim, bytes < 2, window);
  if (is_triton(kernel)) return triton_tile(kernel, qk_dim);
  return {};
}

PrefillWork prefill_work(const PrefillShape& s, PrefillKernel kernel, const FormContext& c) {
  const PrefillTile tile = prefill_tile(kernel, s.qk_dim, c.a_bytes, s.window > 0);
  // Heads that share a tile make it taller: `group` rows per token.
  const bool packed = packs_heads(kernel) || (kernel == PrefillKernel::plain && s.rows == 1);
  const double group = packed ? s.heads_q / s.heads_kv : 1;
  const double heads = s.heads_q / group, rows = s.rows * group;
  const double tokens = tile.rows / group;  // per tile
  const double tiles = std::ceil(rows / tile.rows), full = tiles - 1;
  // Of the last tile: one of two warp groups has nothing to do, but FlashAttention-3's computes it all the
  // same, and Triton's tiles are one piece.
  const bool half = !packs_heads(kernel) && !is_triton(kernel) && rows - full * tile.rows <= kHalf;
  const double height = half ? 0.5 : 1;

  // Cached tokens are not rounded to blocks, which is exact where they end with one: a token more in the
  // cache never saves a block a tile.
  Tiles t{tokens, full, mean_slack(tokens, tile.keys)};
  t.sum = full * (s.cached / tile.keys + t.slack / tile.keys) + tokens / tile.keys * full * (full + 1) / 2;
  t.last = whole_blocks(s.cached + s.rows, tile.keys);
  t.before = full > 0 ? (s.cached + t.slack + tokens * full) / tile.keys : 0;
  if (s.window > 0) {
    if (packs_heads(kernel) || is_triton(kernel)) {
      blocks_from_window(s, tile.keys, t);
    } else {
      SL_CHECK(tile.rows == kBlock && tile.keys == kBlock,
               "windows of unpacked heads are counted in tiles of 128");
      whole_blocks_of_window(s, t);
    }
  }
  PrefillWork w;
  w.tile = tile;
  w.blocks = s.batch * heads * (t.sum + height * t.last);
  w.tiles = s.batch * heads * tiles;
  w.longest = std::max(height * t.last, t.before);
  if (s.window > 0 && is_triton(kernel)) blocks_looked_at(s, tile, full, heads, w);
  w.block_dims = s.qk_dim + s.v_dim;
  const double cached = s.window > 0 ? std::min(s.cached, s.window - 1) : s.cached;  // that are read
  add_bytes(w, kernel, c, s, s.batch * s.rows, s.batch * (cached + s.rows));
  return w;
}

namespace {

/// Of a number that is whole but for rounding.
double snapped(double x) {
  const double whole = std::round(x);
  return std::abs(x - whole) <= 1e-6 * std::max(1.0, whole) ? whole : x;
}

// Cached tokens of a sequence of `rows` new ones that see `seen` keys on average, through a window: its first
// g = window - cached rows see fewer keys than the window has, rows (window - seen) = g (g - 1) / 2.
double cached_behind_window(double rows, double seen, double window) {
  const double missing = rows * std::max(0.0, window - seen);
  return std::max(0.0, snapped(window - (1 + std::sqrt(1 + 8 * missing)) / 2));
}

}  // namespace

PrefillShape mean_sequence(const AttendPrefillShape& a) {
  const auto queries = static_cast<double>(a.q_rows), window = static_cast<double>(a.window);
  const double seen = static_cast<double>(a.pairs) / queries;
  PrefillShape s;
  s.heads_q = static_cast<double>(a.q_heads);
  s.heads_kv = static_cast<double>(a.kv_heads);
  s.qk_dim = static_cast<double>(a.qk_dim);
  s.v_dim = static_cast<double>(a.v_dim);
  s.batch = static_cast<double>(std::max<Count>(1, a.intervals));
  s.rows = queries / s.batch;
  s.cached = snapped(std::max(0.0, seen - (s.rows + 1) / 2));
  if (window > 0 && s.cached + s.rows > window * (1 + 1e-9)) {
    s.window = window;
    s.cached = cached_behind_window(s.rows, seen, window);
    // How much lies before the window is not known: some, and it ends with a block.
    if (s.cached >= window - 1) s.cached = kBlock * (std::ceil(window / kBlock) + 1);
  }
  return s;
}

PrefillWork prefill_work(const AttendPrefillShape& a, PrefillKernel kernel, const FormContext& c) {
  if (a.tiles <= 0 || a.q_rows <= 0) return {};
  const PrefillShape s = mean_sequence(a);
  PrefillWork w = prefill_work(s, kernel, c);
  // What is not the work of equal sequences keeps its pairs and its tiles.
  const double pairs = static_cast<double>(a.pairs) / (s.batch * prefill_pairs(s));
  if (std::abs(pairs - 1) > 1e-6) {
    w.blocks *= pairs;
    w.longest *= pairs;
    w.skipped *= pairs;
    w.longest_skip *= pairs;
  }
  // A schedule counts its tiles in rows of 128.
  w.tiles *= static_cast<double>(a.tiles) / (s.batch * std::ceil(s.rows / kBlock));
  add_bytes(w, kernel, c, s, static_cast<double>(a.q_rows), static_cast<double>(a.kv_rows));
  return w;
}

void share_keys(PrefillWork& w, const PrefillShape& s, const TileSplit& split, double sms, Merging merging) {
  const SplitRule rule = w.tokens <= kGraphTokens ? split.few : split.many;
  if (rule == SplitRule::whole || w.tiles <= 0) return;
  const double all = s.cached + s.rows, keys = s.window > 0 ? std::min(all, s.window + kBlock) : all;
  const double parts = tile_parts(rule, sms, keys, w.tiles, w.tiles / s.batch);
  w.longest /= parts;
  if (parts <= 1 || merging == Merging::left_out) return;
  w.parts = parts;
  w.tiles *= parts;
  w.query_bytes += 2 * kPartialBytes * w.parts * w.tokens * s.heads_q * s.v_dim;
}

// reshape_and_cache_flash: a block of min(heads_kv x head_size, 512) threads for each token, of which most
// have nothing to do, for one of them moves eight elements (csrc/cache_kernels.cu of
// vllm-project/vllm@ee0da84ab9).
double write_share(double heads_kv, double qk_dim) {
  constexpr double kThreads = 512;
  return std::min(heads_kv * qk_dim, kThreads) / kThreads;
}

double prefill_seconds(const PrefillWork& w, const FormContext& c, std::span<const double> p) {
  const double pairs = w.tile.rows * w.tile.keys;
  const double mma = 2 * pairs * w.block_dims * c.sms / (p[1] * c.flops);
  const double exponentials = pairs * c.sms / (p[2] * c.exponentials);
  const double block = norm4(mma, exponentials);
  const double start = p[3] * 1e-6, skip = w.skipped > 0 ? p[10] : 0;
  const double mean = (w.tiles * start + (w.blocks + skip * w.skipped) * block) / c.sms;
  const double alone = start + (w.longest + skip * w.longest_skip) * block * p[4];
  const double work = std::max(mean, alone) + p[5] * std::min(mean, alone);
  // No row has a cached prefix: read while tiles are computed, as fast as a decode kernel reads one.
  const double prefix = w.prefix_bytes / (kDecodeMemoryShare * c.bandwidth);
  const double merge = w.parts > 1 ? start : 0;
  const double t = p[0] * 1e-6 + norm4(work, prefix) + merge +
                   w.tokens * w.token_share * p[8] * 1e-6 / c.sms +
                   (w.query_bytes / p[6] + w.cache_bytes / p[7]) / c.bandwidth;
  return t * (1 + p[9] * t / (t + kPowerSeconds));
}

double prefill_pairs(const PrefillShape& s) {
  const double rows = s.rows, all = rows * s.cached + rows * (rows + 1) / 2;
  if (s.window <= 0) return all;
  // Row i sees min(cached + i + 1, window) keys.
  const double growing = std::clamp(s.window - s.cached, 0.0, rows);
  return growing * s.cached + growing * (growing + 1) / 2 + (rows - growing) * s.window;
}

void prefill_coordinates(double pairs, double rows, double tiles, double* out) {
  out[0] = std::log2(std::max(1.0, 2 * pairs / rows - 1));
  out[1] = std::log2(tiles);
}

}  // namespace shardline
