// Which thread block tile a GEMM library with a known rule takes. [H21]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace shardline {

/// Libraries whose choice of tile was read in their source. `any`: unknown, or tuned shape by shape.
enum class GemmRule : std::uint8_t {
  any,
  cutlass_hopper,            // vLLM's and SGLang's FP8 GEMM
  cutlass_blackwell_vllm,    // the same on Blackwell
  cutlass_blackwell_sglang,  // the same on Blackwell
  deepgemm_hopper,           // DeepGEMM, as SGLang calls it
  tensorrt_hopper,           // TensorRT-LLM's fork of DeepGEMM
};

/// std::ceil of something positive, inline.
inline double whole(double x) {
  const auto down = static_cast<double>(static_cast<std::int64_t>(x));
  return down < x ? down + 1 : down;
}

/// Of a variant as measurements name it. `fp4`: whether the device has FP4 units, which tells Blackwell from
/// Hopper.
GemmRule gemm_rule(std::string_view dtype, std::string_view kernel, bool fp4);

/// How a grid of thread blocks covers m rows and n columns.
struct GemmGrid {
  double height = 0, width = 0;  // of a tile, in rows and columns
  double mma_height = 0;         // rows of tile that are computed: at least those of one instruction
  double rows = 0, columns = 0;  // tiles along m and n, whole clusters

  double blocks() const { return rows * columns; }
  double empty_rows(double m) const { return rows * height - m; }
};

inline constexpr std::size_t kMostGemmWidths = 15;

/// Widths of the tiles that a rule chooses from; columns of tiles are counted for each once per n.
std::span<const double> gemm_widths(GemmRule rule);

/// A shape, with ceil(n / width) for every gemm_widths() in `columns`.
struct TiledGemm {
  double m, n, k;
  const double* columns;
  double sms;
};

/// What the rule takes. Not of `any`.
GemmGrid gemm_grid(GemmRule rule, const TiledGemm& shape);

inline constexpr std::size_t kMostGemmGrids = 64;
/// All that the rule may take for this or more rows, so that the fastest of them is no slower for fewer rows:
/// written to `out`, of kMostGemmGrids; returns how many. Not of `any`.
std::size_t gemm_grids(GemmRule rule, const TiledGemm& shape, GemmGrid* out);

}  // namespace shardline
