#include "hardware/cost/forms/prefill.hpp"

#include <algorithm>
#include <cmath>

namespace shardline {

namespace {

constexpr double kBlock = 128;
/// Warp groups work on 64 rows, so a short tile costs half.
constexpr double kHalf = 64;
/// Time constant of power management.
constexpr double kPowerSeconds = 0.02;

double whole_blocks(double keys) { return keys <= kHalf ? 0.5 : std::ceil(keys / kBlock); }

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
void blocks_from_window(const PrefillShape& s, Tiles& t) {
  const double inside = std::ceil((s.window - 1 + t.tokens) / kBlock);
  const double first = std::max(0.0, std::ceil((s.window - 1 - s.cached) / t.tokens));  // with keys left out
  const double many = t.full - first;
  if (many > 0) {
    const double causal = many * (std::ceil(s.cached / kBlock) + t.slack / kBlock) +
                          t.tokens / kBlock * many * (first + 1 + t.full) / 2;
    t.sum -= std::max(0.0, causal - many * inside);
    t.before = std::min(t.before, inside);
  }
  if (many >= 0) t.last = std::min(t.last, whole_blocks(s.rows - t.full * t.tokens + s.window - 1));
}

void add_bytes(PrefillWork& w, PrefillKernel kernel, const FormContext& c, const PrefillShape& s, double rows,
               double cache_rows) {
  const bool rope = kernel == PrefillKernel::with_rope;
  const double q = rows * s.heads_q * s.qk_dim, out = rows * s.heads_q * s.v_dim;
  const double element = s.heads_kv * (s.qk_dim + s.v_dim);
  w.tokens = rows;
  w.query_bytes = q * (rope ? 2 + 2 * c.a_bytes : c.a_bytes) + 2 * out;
  // With RoPE new keys and values are read and written; attention then finds them in L2.
  const double read = rope ? std::max(0.0, cache_rows - rows) : cache_rows;
  w.cache_bytes = element * (read * c.b_bytes + (rope ? rows * (2 + c.b_bytes) : 0));
}

}  // namespace

PrefillWork prefill_work(const PrefillShape& s, PrefillKernel kernel, const FormContext& c) {
  // Heads that share a tile make it taller: `group` rows per token.
  const bool packed = kernel == PrefillKernel::packed || (kernel == PrefillKernel::plain && s.rows == 1);
  const double group = packed ? s.heads_q / s.heads_kv : 1;
  const double heads = s.heads_q / group, rows = s.rows * group;
  const double tokens = kBlock / group;  // per tile
  const double tiles = std::ceil(rows / kBlock), full = tiles - 1;
  const double height = rows - full * kBlock <= kHalf ? 0.5 : 1;  // of the last tile

  Tiles t{tokens, full, (kBlock - tokens) / 2};
  t.sum = full * (std::ceil(s.cached / kBlock) + t.slack / kBlock) + tokens / kBlock * full * (full + 1) / 2;
  t.last = whole_blocks(s.cached + s.rows);
  t.before = full > 0 ? std::ceil(s.cached / kBlock) + (t.slack + tokens * full) / kBlock : 0;
  if (s.window > 0) (kernel == PrefillKernel::packed ? blocks_from_window : whole_blocks_of_window)(s, t);
  PrefillWork w;
  w.blocks = s.batch * heads * (t.sum + height * t.last);
  w.tiles = s.batch * heads * tiles;
  w.longest = std::max(height * t.last, t.before);
  w.block_dims = s.qk_dim + s.v_dim;
  add_bytes(w, kernel, c, s, s.batch * s.rows, s.batch * (s.cached + s.rows));
  return w;
}

PrefillWork prefill_work(const AttendPrefillShape& a, PrefillKernel kernel, const FormContext& c) {
  const auto q_heads = static_cast<double>(a.q_heads), tiles = static_cast<double>(a.tiles);
  const auto q_rows = static_cast<double>(a.q_rows), kv_rows = static_cast<double>(a.kv_rows);
  PrefillShape s;
  s.heads_q = q_heads;
  s.qk_dim = static_cast<double>(a.qk_dim);
  s.v_dim = static_cast<double>(a.v_dim);
  s.heads_kv = static_cast<double>(a.kv_heads);
  PrefillWork w;
  if (a.tiles <= 0 || a.q_rows <= 0) return w;
  // Tiles that are not full take as long as full ones.
  const double height = q_rows <= kHalf * tiles ? 0.5 : 1;
  const double fill = std::max(1.0, height * kBlock * tiles / q_rows);
  // Half a block of each tile is masked at the diagonal; at the edge of a window another half, and the block
  // before it where blocks are not counted from the window on.
  const double at_edge = kernel == PrefillKernel::packed ? 0.5 : 1.5;
  const double masked = 0.5 * tiles + at_edge * static_cast<double>(a.edges);
  const double blocks = static_cast<double>(a.pairs) * fill / (kBlock * kBlock) + height * masked;
  const double mean = blocks / tiles;
  w.blocks = blocks * q_heads;
  w.tiles = tiles * q_heads;
  // Tiles of a causal triangle grow up to twice their mean, those at a window's edge are alike.
  const double cut = static_cast<double>(a.edges) / tiles;
  const double longest = (2 - cut) * mean - (1 - cut) * height;
  w.longest = std::max(mean, std::min(longest, height * std::ceil(kv_rows / kBlock)));
  w.block_dims = s.qk_dim + s.v_dim;
  if (kernel == PrefillKernel::packed) {
    const double group = std::max(1.0, q_heads / s.heads_kv);
    const double rows = std::min(w.tiles, std::max(q_rows * q_heads / kBlock, w.tiles / group));
    w.blocks *= rows / w.tiles;
    w.tiles = rows;
  }
  add_bytes(w, kernel, c, s, q_rows, kv_rows);
  return w;
}

double prefill_seconds(const PrefillWork& w, const FormContext& c, std::span<const double> p) {
  const double mma = 2 * kBlock * kBlock * w.block_dims * c.sms / (p[1] * c.flops);
  const double exponentials = kBlock * kBlock * c.sms / (p[2] * c.exponentials);
  // Overlap of both, smooth where they are equal: a norm of order 4.
  const double m2 = mma * mma, e2 = exponentials * exponentials;
  const double block = std::sqrt(std::sqrt(m2 * m2 + e2 * e2));
  const double start = p[3] * 1e-6;
  const double mean = (w.tiles * start + w.blocks * block) / c.sms;
  const double alone = start + w.longest * block * p[4];
  const double t = p[0] * 1e-6 + std::max(mean, alone) + p[5] * std::min(mean, alone) +
                   w.tokens * p[8] * 1e-6 / c.sms +
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
