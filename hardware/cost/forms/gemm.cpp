#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hardware/cost/forms/forms.hpp"

namespace shardline {

namespace {

constexpr const char* kNumbers[] = {"m", "n", "k"};
constexpr const char* kWords[] = {"dtype", "kernel"};

enum Parameter : std::size_t {
  kStart,
  kCompute,
  kMemory,
  kNorm,
  kStep,
  kTile,
  kSplit,
  kQuantise,
  kRound,
  kActivation,
  kPad,
};
constexpr FormParameter kParameters[] = {
    {"t0", "us", 0.1, 3, 100},           // launch, ramp and tail of all kernels of the layer
    {"e_compute", "1", 0.05, 0.8, 1.2},  // of the arithmetic's peak, inside a tile
    {"e_memory", "1", 0.05, 0.8, 1.2},   // of the HBM peak
    {"norm", "1", 1, 4, 30},             // overlap of arithmetic and memory: 1 none, large: the longer counts
    {"k_step", "ns", 0.001, 0.5, 10},    // of a block per element of k, whatever its tile
    {"tile_start", "us", 0.001, 0.5, 10},  // of a block: filling the pipeline, storing the tile
    {"split", "us", 0.01, 3, 100},         // more for a split along k; at 100: never split
    {"e_quantise", "1", 0.01, 0.5, 10},    // of the HBM peak, by the pass that narrows the activation
    {"round", "1", 0.001, 0.3, 1},         // of the last wave's idle blocks that is waited for
    {"activation", "1", 0.01, 1, 3},       // crossings of HBM by activation and result
    {"pad", "ps", 0.001, 1, 100},          // per element of k and empty row of a row block
};
constexpr FormAxis kAxes[] = {{"m", 1.5}, {"n", 2}, {"k", 2}};

constexpr double kHeights[] = {16, 64, 128, 256}, kWidths[] = {64, 128, 256};
struct Tile {
  std::size_t height, width;  // of kHeights and kWidths
};
// The smallest first, which blocks_seconds() relies on.
constexpr Tile kTiles[] = {{0, 0}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {1, 2}, {3, 0}, {2, 2}, {3, 1}};
constexpr std::size_t kTileShapes = std::size(kTiles);
constexpr double kMostSplits = 32;

// What does not depend on the rows. Per tile shape: its time along all of k; per width: columns of tiles.
enum Derived : std::size_t {
  kAlongK,
  kColumns = kAlongK + kTileShapes,
  kWeightBytes = kColumns + std::size(kWidths),
  kRowBytes,
  kDerived
};
static_assert(kDerived <= kMostDerived);

/// Height of the row blocks in which kernels take a narrowed activation; 0: they transpose the product.
double row_block(double m) { return m <= 24 ? 0 : m <= 64 ? 64 : m <= 128 ? 128 : 256; }
/// Width from which on empty rows cost their full price: 12 tiles of 128.
constexpr double kPadWidth = 1536;

bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  const std::string& type = words[0];
  // fp8: the scale of the activation is found inside; fp8_static: it is known.
  if (type != "bf16" && type != "fp8" && type != "fp8_static" && type != "fp8_block" && type != "nvfp4")
    return false;
  out = form_context(system, type == "bf16" ? Dtype::bf16 : type == "nvfp4" ? Dtype::fp4 : Dtype::fp8);
  out.a_bytes = out.b_bytes = fit_bytes(type);
  return out.flops > 0 && out.sms > 1;
}
bool covers(std::span<const double>) { return true; }
double work(std::span<const double> x, const FormContext&) { return 2 * x[0] * x[1] * x[2]; }
double traffic(std::span<const double> x, const FormContext& c) {
  return c.b_bytes * x[1] * x[2] + 2 * x[0] * (x[1] + x[2]);
}

/// std::ceil of something positive, inline.
double whole(double x) {
  const auto down = static_cast<double>(static_cast<std::int64_t>(x));
  return down < x ? down + 1 : down;
}

void derive(std::span<const double> x, const FormContext& c, std::span<const double> p, double* out) {
  const double n = x[1], k = x[2];
  const double per_area = 2 * c.sms / (p[kCompute] * c.flops), step = p[kStep] * 1e-9;
  for (std::size_t i = 0; i < kTileShapes; ++i) {
    const double arithmetic = per_area * kHeights[kTiles[i].height] * kWidths[kTiles[i].width];
    out[kAlongK + i] = k * std::sqrt(arithmetic * arithmetic + step * step);
  }
  for (std::size_t i = 0; i < std::size(kWidths); ++i) out[kColumns + i] = whole(n / kWidths[i]);
  out[kWeightBytes] = c.b_bytes * n * k;
  out[kRowBytes] = c.a_bytes * k + 2 * n;
}

/// Of the blocks, over the tile shapes and splits that a library would choose from.
double blocks_seconds(double m, double n, const FormContext& c, std::span<const double> p,
                      const double* derived) {
  const double start = p[kTile] * 1e-6;
  const double partials = 8 * m * n / (p[kMemory] * c.bandwidth);  // 4 bytes each, written and read
  const auto merge = [&](double parts) { return parts > 1 ? p[kSplit] * 1e-6 + parts * partials : 0; };
  double rows[std::size(kHeights)];
  for (std::size_t i = 0; i < std::size(kHeights); ++i) rows[i] = whole(m / kHeights[i]);
  double before[std::size(kWidths)] = {};  // load of the last tile of a width
  double best = HUGE_VAL, tried = 1;
  for (std::size_t i = 0; i < kTileShapes; ++i) {
    const auto [height, width] = kTiles[i];
    const double load = rows[height] * derived[kColumns + width] / c.sms;
    // As many blocks of a higher tile only take longer.
    if (load == before[width]) continue;
    before[width] = load;
    // Blocks of one wave take as long as one: with as many parts, no tile is faster than a smaller one.
    double parts = tried * load <= 1 ? tried : 1;
    double along_k = derived[kAlongK + i] / parts;
    for (; parts <= kMostSplits && parts * load <= 1; parts *= 2, along_k /= 2) {
      if (parts < tried) continue;
      best = std::min(best, start + along_k + merge(parts));
      tried = 2 * parts;
    }
    // Nor are several waves of blocks of which each alone takes longer.
    if (parts > kMostSplits || start + along_k >= best) continue;
    const double waves = parts * load + p[kRound] * (whole(parts * load) - parts * load);
    best = std::min(best, waves * (start + along_k) + merge(parts));
  }
  return best;
}

double padding_seconds(double m, double n, double k, std::span<const double> p) {
  const double height = row_block(m);
  if (height == 0) return 0;
  const double blocks = whole(m / height);
  return p[kPad] * 1e-12 * k * (height - m / blocks) * std::min(1.0, n * blocks / kPadWidth);
}

double of_rows(std::span<const double> x, const FormContext& c, std::span<const double> p,
               const double* derived) {
  const double m = x[0], n = x[1], k = x[2];
  const double bytes = derived[kWeightBytes] + p[kActivation] * m * derived[kRowBytes];
  const double memory = bytes / (p[kMemory] * c.bandwidth);
  // The layer gets a 16-bit activation.
  const bool narrowed = c.a_bytes < 2;
  const double blocks = blocks_seconds(m, n, c, p, derived) + (narrowed ? padding_seconds(m, n, k, p) : 0);
  const double more = std::max(blocks, memory), less = std::min(blocks, memory);
  const double both = more * std::pow(1 + std::pow(less / more, p[kNorm]), 1 / p[kNorm]);
  const double quantise = narrowed ? m * k * (2 + c.a_bytes) / (p[kQuantise] * c.bandwidth) : 0;
  return p[kStart] * 1e-6 + quantise + both;
}
constexpr auto seconds = in_steps<derive, of_rows>;

double coordinate(std::span<const double> x) { return std::log2(x[0]); }
void coordinates(std::span<const double> x, const FormContext&, double* out) {
  for (std::size_t i = 0; i < 3; ++i) out[i] = std::log2(x[i]);
}
constexpr FormSteps kSteps{0, 0, derive, of_rows, coordinate};

}  // namespace

const Form kGemmForm{"gemm", "H21",   kNumbers, kWords,  kParameters, kAxes,  context,
                     covers, seconds, work,     traffic, coordinates, &kSteps};

}  // namespace shardline
