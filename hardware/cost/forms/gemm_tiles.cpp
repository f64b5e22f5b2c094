#include "hardware/cost/forms/gemm_tiles.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr double kCutlassWidths[] = {64, 128};
// Multiples of 16 to 192 that a kernel with one scale per 128 columns takes: above 128 only those whose rest
// divides 128 or themselves.
constexpr double kDeepgemmWidths[] = {16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192};
constexpr double kTensorrtWidths[] = {16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128};
static_assert(std::size(kTensorrtWidths) <= kMostGemmWidths);
constexpr std::size_t kTensorrt64 = 6, kTensorrt128 = 14;  // of kTensorrtWidths

// `cluster` blocks along m share what they read of the weights, and are launched together.
GemmGrid grid(const TiledGemm& s, double height, double width, double columns, double cluster = 1) {
  return {height, width, height, cluster * whole(s.m / (height * cluster)), columns};
}

// vLLM, csrc/quantization/w8a8/cutlass/c3x/scaled_mm_sm90_fp8_dispatch.cuh (commit 68f442ebb), which SGLang
// took over in sgl-kernel/csrc/cutlass_extensions/gemm/fp8_gemm_sm90_dispatch.cuh (812a916ad, pull request
// 25532). Up to 64 rows operands are swapped.
GemmGrid cutlass_hopper(const TiledGemm& s) {
  const bool narrow = s.n <= 1280;
  if (s.m <= 16) return grid(s, 16, 64, s.columns[0], narrow ? 2 : 1);
  if (s.m <= 64) return narrow ? grid(s, 16, 64, s.columns[0], 4) : grid(s, 64, 64, s.columns[0]);
  if (s.m <= 128) return grid(s, 64, 128, s.columns[1], 2);
  return grid(s, 128, 128, s.columns[1], 2);
}

// vLLM, scaled_mm_sm100_fp8_dispatch.cuh of the same folder (487e7b0e3). From 65 rows on two SMs share a
// tile: half of it is one's. At exactly 64 rows and k < 4096 the library takes 64 x 64, which is left out.
GemmGrid cutlass_blackwell_vllm(const TiledGemm& s) {
  if (s.m <= 16) return grid(s, 32, 128, s.columns[1]);
  if (s.m <= 64) return grid(s, 64, 128, s.columns[1]);
  return grid(s, s.m <= 256 ? 64 : 128, 128, s.columns[1], 2);
}

// SGLang, sgl-kernel/csrc/gemm/fp8_gemm_kernel.cu, sm100_fp8_dispatch_bias (04ec0bc24). Halves as above.
GemmGrid cutlass_blackwell_sglang(const TiledGemm& s) {
  if (s.m <= 64) return grid(s, 64, 64, s.columns[0]);
  return grid(s, s.m <= 256 ? 64 : 128, 128, s.columns[1], 2);
}

// Fewer rows than one instruction has are computed with it all the same.
constexpr double kHopperMma = 64;

GemmGrid deepgemm(const TiledGemm& s, double height, std::size_t width) {
  GemmGrid out = grid(s, height, kDeepgemmWidths[width], s.columns[width]);
  out.mma_height = std::max(height, kHopperMma);
  return out;
}

template <class F>
void deepgemm_tiles(double m, const F& f) {
  constexpr double kHeights[] = {64, 128, 16, 32, 256};
  for (const double height : kHeights) {
    if (height < kHopperMma && m > height) continue;
    for (std::size_t w = 0; w < std::size(kDeepgemmWidths); ++w) {
      // Registers: one side is at most 128.
      if (height <= 128 || kDeepgemmWidths[w] <= 128) f(height, w);
    }
  }
}

// DeepGEMM, csrc/jit_kernels/heuristics/sm90.hpp (10747d477), get_layout_candidates and get_layout_info: the
// fewest cycles of L2 and L1 traffic. In more than one wave two blocks may share what they read of the
// weights or of the activation. Of as many cycles, blocks that share nothing come first, then those that
// share weights.
GemmGrid deepgemm_hopper(const TiledGemm& s) {
  const double l2 = std::floor(std::min(64 * s.sms, 8e6 / 1.3e3)), l1 = 128 * s.sms;  // bytes a cycle
  const double per_sm = 1 / s.sms;
  double best = HUGE_VAL, best_height = 0;
  std::size_t best_width = 0;
  int best_order = 0;
  deepgemm_tiles(s.m, [&](double height, std::size_t w) {
    const double width = kDeepgemmWidths[w], tile = 2 * height * width;  // bytes of the result
    // Half a block less: the product with 1 / sms must not exceed a whole number that it is.
    const double waves = whole((whole(s.m / height) * s.columns[w] - 0.5) * per_sm);
    // Cycles times l1 l2: whole numbers, so that equal ones are.
    const double from_l1 = l2 * (s.k * (height + std::max(height, kHopperMma) + 2 * width) + 2 * tile);
    if (waves * from_l1 > best) return;
    double from_l2 = l1 * (s.k * (height + width) + tile);
    int order = 0;
    if (waves > 1 && from_l2 > from_l1) {
      const double weights = std::max(from_l1, from_l2 - l1 * s.k * height / 2);
      const double rows = std::max(from_l1, from_l2 - l1 * s.k * width / 2);
      order = weights <= rows ? 1 : 2;
      from_l2 = std::min(weights, rows);
    }
    const double cycles = waves * std::max(from_l2, from_l1);
    if (cycles > best || (cycles == best && order >= best_order)) return;
    best = cycles;
    best_order = order;
    best_height = height;
    best_width = w;
  });
  return deepgemm(s, best_height, best_width);
}

// Operands are swapped below this many rows: tiles of the weight are 64 or 128 high, as below.
constexpr double kTensorrtSwap = 32;

GemmGrid tensorrt_swapped(const TiledGemm& s, std::size_t width) {
  const std::size_t side = s.n <= 64 ? kTensorrt64 : kTensorrt128;
  return grid(s, kTensorrtWidths[width], kTensorrtWidths[side], s.columns[side]);
}
GemmGrid tensorrt_plain(const TiledGemm& s, std::size_t width) {
  return grid(s, s.m <= 64 ? 64 : 128, kTensorrtWidths[width], s.columns[width]);
}

// TensorRT-LLM's fork of DeepGEMM, get_best_gemm_config and gemm_dispatch_sm90, read in a later adaptation of
// it; its tables show the same threshold of 32 rows. The fewest waves, then the fullest last one, then the
// narrowest tile.
GemmGrid tensorrt_hopper(const TiledGemm& s) {
  GemmGrid best;
  double best_waves = HUGE_VAL, best_last = 0;
  for (std::size_t w = 0; w < std::size(kTensorrtWidths); ++w) {
    const GemmGrid g = s.m < kTensorrtSwap ? tensorrt_swapped(s, w) : tensorrt_plain(s, w);
    const double waves = whole(g.blocks() / s.sms), last = g.blocks() - (waves - 1) * s.sms;
    if (waves > best_waves || (waves == best_waves && last <= best_last)) continue;
    best = g;
    best_waves = waves;
    best_last = last;
  }
  return best;
}

}  // namespace

GemmRule gemm_rule(std::string_view dtype, std::string_view kernel, bool fp4) {
  if (dtype == "fp8" && kernel == "CutlassFP8")
    return fp4 ? GemmRule::cutlass_blackwell_vllm : GemmRule::cutlass_hopper;
  if (dtype == "fp8" && kernel == "sgl_kernel_fp8_scaled_mm")
    return fp4 ? GemmRule::cutlass_blackwell_sglang : GemmRule::cutlass_hopper;
  if (dtype != "fp8_block" || fp4) return GemmRule::any;
  if (kernel == "torch_flow") return GemmRule::tensorrt_hopper;
  return kernel == "deepgemm_gemm_nt_f8f8bf16" ? GemmRule::deepgemm_hopper : GemmRule::any;
}

std::span<const double> gemm_widths(GemmRule rule) {
  switch (rule) {
    case GemmRule::any:
      return {};
    case GemmRule::cutlass_hopper:
    case GemmRule::cutlass_blackwell_vllm:
    case GemmRule::cutlass_blackwell_sglang:
      return kCutlassWidths;
    case GemmRule::deepgemm_hopper:
      return kDeepgemmWidths;
    case GemmRule::tensorrt_hopper:
      return kTensorrtWidths;
  }
  SL_CHECK(false, "a rule of GemmRule");
}

GemmGrid gemm_grid(GemmRule rule, const TiledGemm& shape) {
  switch (rule) {
    case GemmRule::any:
      break;
    case GemmRule::cutlass_hopper:
      return cutlass_hopper(shape);
    case GemmRule::cutlass_blackwell_vllm:
      return cutlass_blackwell_vllm(shape);
    case GemmRule::cutlass_blackwell_sglang:
      return cutlass_blackwell_sglang(shape);
    case GemmRule::deepgemm_hopper:
      return deepgemm_hopper(shape);
    case GemmRule::tensorrt_hopper:
      return tensorrt_hopper(shape);
  }
  SL_CHECK(false, "a rule that names its tiles");
}

std::size_t gemm_grids(GemmRule rule, const TiledGemm& s, GemmGrid* out) {
  std::size_t count = 0;
  const auto add = [&](const GemmGrid& g) { out[count++] = g; };
  switch (rule) {
    case GemmRule::any:
      break;
    case GemmRule::cutlass_hopper:
    case GemmRule::cutlass_blackwell_vllm:
    case GemmRule::cutlass_blackwell_sglang:
      // Every step of these rules is to a tile that takes longer.
      add(gemm_grid(rule, s));
      return count;
    case GemmRule::deepgemm_hopper:
      deepgemm_tiles(s.m, [&](double height, std::size_t w) { add(deepgemm(s, height, w)); });
      return count;
    case GemmRule::tensorrt_hopper:
      for (std::size_t w = 0; w < std::size(kTensorrtWidths); ++w) {
        if (s.m < kTensorrtSwap) add(tensorrt_swapped(s, w));
        add(tensorrt_plain(s, w));
      }
      return count;
  }
  SL_CHECK(false, "a rule that names its tiles");
}

}  // namespace shardline
