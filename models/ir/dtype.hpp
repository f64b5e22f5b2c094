// Types of stored numbers and of arithmetic, and the bytes that each takes. The one place that says so: what
// fits into memory, what crosses HBM and links, and what kernels are priced with all follow from it
// (models/README.md, "Bytes of a type").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardline {

/// fp4: NVFP4, E2M1 with an FP8 scale per 16 elements. mxfp4: E2M1 with a scale of one byte (E8M0) per 32
/// (OCP Microscaling Formats 1.0). int4: integers of 4 bits with a BF16 scale per 128 along k; int4_group32:
/// per 32. fp8: E4M3 with a scale per tensor; as weights, of products whose activations have a scale that the
/// checkpoint holds (static). fp8_dynamic: weights stored alike, but the scales of activations are found
/// while serving. fp8_block: E4M3 with a float32 scale per 128 x 128 elements. Of these fp4, fp8, bf16 and
/// fp32 are arithmetic too; the others are of stored weights only. fp4_unscaled: fp4 in the accounting of
/// papers that leave the scales out; nothing is stored so.
enum class Dtype : std::uint8_t {
  fp4,
  fp8,
  bf16,
  fp32,
  fp8_block,
  fp4_unscaled,
  fp8_dynamic,
  mxfp4,
  int4,
  int4_group32
};
inline constexpr std::size_t kDtypes = 10;
std::string_view to_string(Dtype dtype);

/// Bytes of one stored element, with its share of the scales of its block. Recomputations of papers that
/// leave scales out (arXiv 2507.07120, Appendix A) say so: by fp4_unscaled, or by bytes of their own
/// (Figure1). Ignores: blocks that an edge of the tensor cuts, and one float32 per tensor (NVFP4 has one
/// too).
constexpr double bytes_per_element(Dtype d) {
  switch (d) {
    case Dtype::fp4:
      return 0.5 + 1.0 / 16;
    case Dtype::fp8:
    case Dtype::fp8_dynamic:
      return 1;
    case Dtype::bf16:
      return 2;
    case Dtype::fp32:
      return 4;
    case Dtype::fp8_block:
      return 1 + 4.0 / (128 * 128);
    case Dtype::fp4_unscaled:
      return 0.5;
    case Dtype::mxfp4:
      return 0.5 + 1.0 / 32;
    case Dtype::int4:
      return 0.5 + 2.0 / 128;
    case Dtype::int4_group32:
      return 0.5 + 2.0 / 32;
  }
  return 0;
}

/// The arithmetic of products whose matrix is stored so, where nothing else is said. MXFP4 and INT4 are
/// formats of weights alone: their files say nothing of activations, which stay BF16.
constexpr Dtype arithmetic_of(Dtype stored) {
  switch (stored) {
    case Dtype::fp4:
    case Dtype::fp4_unscaled:
      return Dtype::fp4;
    case Dtype::fp8:
    case Dtype::fp8_block:
    case Dtype::fp8_dynamic:
      return Dtype::fp8;
    case Dtype::bf16:
    case Dtype::mxfp4:
    case Dtype::int4:
    case Dtype::int4_group32:
      return Dtype::bf16;
    case Dtype::fp32:
      return Dtype::fp32;
  }
  return stored;
}

/// Bits of a stored element, its scales apart: kernels that read as many are most alike.
constexpr int element_bits(Dtype d) {
  switch (d) {
    case Dtype::fp4:
    case Dtype::fp4_unscaled:
    case Dtype::mxfp4:
    case Dtype::int4:
    case Dtype::int4_group32:
      return 4;
    case Dtype::fp8:
    case Dtype::fp8_block:
    case Dtype::fp8_dynamic:
      return 8;
    case Dtype::bf16:
      return 16;
    case Dtype::fp32:
      return 32;
  }
  return 0;
}

/// The type of the kernels that read it: they read the scales, whatever an accounting counts.
constexpr Dtype kernel_type(Dtype d) { return d == Dtype::fp4_unscaled ? Dtype::fp4 : d; }

/// Bytes of one element of a token that is sent to its experts. Rows in FP8 carry a float32 scale per 128
/// elements (DeepEP); other types are sent as they are stored.
constexpr double bytes_per_dispatched_element(Dtype d) {
  return d == Dtype::fp8 ? 1 + 4.0 / 128 : bytes_per_element(d);
}

}  // namespace shardline
