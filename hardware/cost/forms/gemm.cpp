#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/gemm_tiles.hpp"

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
  kRow,
  kEmpty,
  kFeed,
  kUneven,
  kStall,
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
    {"pad", "ps", 0.001, 1, 100},          // per element of k and empty row of a row block: tiles unknown
    {"row", "ns", 0.001, 0.5, 100},        // of the pass that narrows: per row, or thread block of it
    // What follows is asked only of kernels whose tiles are known.
    {"empty", "ps", 0.001, 0.2, 100},  // per element of k, column of tiles and row that is empty in it
    {"feed", "ps", 0.001, 0.2, 20},    // per element of k and row or column of a tile: operands out of L2
    {"uneven", "1", 0.5, 1.1, 3},      // times what a tile that does not divide a block of scales takes
    {"stall", "1", 1, 3, 10},          // times what DeepGEMM's largest tiles take in a single wave
};
constexpr FormAxis kAxes[] = {{"m", 1.5, 0.75, 0.95, true}, {"n", 2, 1, 0.15}, {"k", 2, 1, 0.15}};

constexpr double kHeights[] = {16, 64, 128, 256}, kWidths[] = {64, 128, 256};
struct Tile {
  std::size_t height, width;  // of kHeights and kWidths
};
// The smallest first, which blocks_seconds() relies on.
constexpr Tile kTiles[] = {{0, 0}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {1, 2}, {3, 0}, {2, 2}, {3, 1}};
constexpr std::size_t kTileShapes = std::size(kTiles);
constexpr double kMostSplits = 32;

// What does not depend on the rows. Per tile shape: its time along all of k; per width: columns of tiles. A
// rule has other widths, and no times.
enum Derived : std::size_t {
  kWeightBytes,
  kRowBytes,
  kAlongK,
  kColumns = kAlongK + kTileShapes,
  kDerived = kColumns + std::size(kWidths),
  kRuleColumns = kAlongK,
};
static_assert(kDerived <= kMostDerived && kRuleColumns + kMostGemmWidths <= kMostDerived);

GemmRule rule_of(const FormContext& c) { return static_cast<GemmRule>(static_cast<int>(c.variant[0])); }

/// Height of the row blocks in which kernels of unknown tiles take a narrowed activation; 0: they transpose
/// the product.
double row_block(double m) { return m <= 24 ? 0 : m <= 64 ? 64 : m <= 128 ? 128 : 256; }
/// Width from which on empty rows cost them their full price: 12 tiles of 128.
constexpr double kPadWidth = 1536;
/// DeepGEMM's largest tiles: 128 x 192 and 256 x 128.
constexpr double kLargestTile = 128 * 192;
/// Elements of k under one scale.
constexpr double kScaleBlock = 128;

bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  const std::string& type = words[0];
  // fp8: the scale of the activation is found inside; fp8_static: it is known.
  if (type != "bf16" && type != "fp8" && type != "fp8_static" && type != "fp8_block" && type != "nvfp4")
    return false;
  out = form_context(system, type == "bf16" ? Dtype::bf16 : type == "nvfp4" ? Dtype::fp4 : Dtype::fp8);
  out.a_bytes = out.b_bytes = fit_bytes(type);
  const bool fp4 = system.device.peak[static_cast<std::size_t>(Dtype::fp4)].value > 0;
  out.variant[0] = static_cast<double>(gemm_rule(type, words[1], fp4));
  return out.flops > 0 && out.sms > 1;
}
bool covers(std::span<const double>) { return true; }
double work(std::span<const double> x, const FormContext&) { return 2 * x[0] * x[1] * x[2]; }
double traffic(std::span<const double> x, const FormContext& c) {
  return c.b_bytes * x[1] * x[2] + 2 * x[0] * (x[1] + x[2]);
}

void derive(std::span<const double> x, const FormContext& c, std::span<const double> p, double* out) {
  const double n = x[1], k = x[2];
  out[kWeightBytes] = c.b_bytes * n * k;
  out[kRowBytes] = c.a_bytes * k + 2 * n;
  if (const GemmRule rule = rule_of(c); rule != GemmRule::any) {
    double* columns = out + kRuleColumns;
    for (const double width : gemm_widths(rule)) *columns++ = whole(n / width);
    return;
  }
  const double per_area = 2 * c.sms / (p[kCompute] * c.flops), step = p[kStep] * 1e-9;
  for (std::size_t i = 0; i < kTileShapes; ++i) {
    const double arithmetic = per_area * kHeights[kTiles[i].height] * kWidths[kTiles[i].width];
    out[kAlongK + i] = k * std::sqrt(arithmetic * arithmetic + step * step);
  }
  for (std::size_t i = 0; i < std::size(kWidths); ++i) out[kColumns + i] = whole(n / kWidths[i]);
}

/// Of the blocks, over the tile shapes and splits that a library would choose from.
double free_seconds(double m, double n, const FormContext& c, std::span<const double> p,
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

double grid_seconds(const GemmGrid& g, double k, const FormContext& c, std::span<const double> p) {
  const double area = 2 * c.sms / (p[kCompute] * c.flops) * g.mma_height * g.width;
  double work = area + p[kFeed] * 1e-12 * (g.height + g.width);
  // The width that divides a block of scales needs one of them at a time.
  if (const double fits = kScaleBlock / g.width; fits != whole(fits)) work *= p[kUneven];
  const double step = p[kStep] * 1e-9;
  const double block = p[kTile] * 1e-6 + k * std::sqrt(work * work + step * step);
  const double load = g.blocks() / c.sms;
  return load <= 1 ? block : block * (load + p[kRound] * (whole(load) - load));
}

/// Of the blocks of a library whose rule is known. Its choice is not the one that is fastest here, and may be
/// slower than the one for more rows. Rows beyond the last are read all the same, as zeros, at a fixed rate
/// of the whole device. Without `empty` the time is to rise with the rows [H57]: then the fastest of all that
/// the rule takes for this or more rows counts.
double ruled_seconds(GemmRule rule, double m, double n, double k, const FormContext& c,
                     std::span<const double> p, const double* derived) {
  const TiledGemm shape{m, n, k, derived + kRuleColumns, c.sms};
  if (p[kEmpty] == 0) {
    GemmGrid grids[kMostGemmGrids];
    double best = HUGE_VAL;
    for (const GemmGrid& g : std::span(grids, gemm_grids(rule, shape, grids)))
      best = std::min(best, grid_seconds(g, k, c, p));
    return best;
  }
  const GemmGrid g = gemm_grid(rule, shape);
  const bool stalls =
      rule == GemmRule::deepgemm_hopper && g.height * g.width >= kLargestTile && g.blocks() <= c.sms;
  const double empty = p[kEmpty] * 1e-12 * k * g.empty_rows(m) * g.columns;
  return grid_seconds(g, k, c, p) * (stalls ? p[kStall] : 1) + empty;
}

/// How many thread blocks narrow m rows, in units of `row`. SGLang's kernel with a scale per 128 elements
/// (sgl-kernel/csrc/gemm/per_token_group_quant_8bit.cu) gives a thread block 16, 8, 4, 2 or 1 of all groups
/// of 128, whatever divides their number.
double narrowing_blocks(GemmRule rule, double m, double k, bool rising) {
  if (rule != GemmRule::deepgemm_hopper) return m;
  const double groups = m * whole(k / kScaleBlock);
  double together = 16;
  if (!rising) {
    const auto count = static_cast<std::uint64_t>(whole(groups));
    together = static_cast<double>(std::min<std::uint64_t>(16, count & (~count + 1)));
  }
  return groups / together;
}

double of_rows(std::span<const double> x, const FormContext& c, std::span<const double> p,
               const double* derived) {
  const double m = x[0], n = x[1], k = x[2];
  const double bytes = derived[kWeightBytes] + p[kActivation] * m * derived[kRowBytes];
  const double memory = bytes / (p[kMemory] * c.bandwidth);
  // The layer gets a 16-bit activation.
  const bool narrowed = c.a_bytes < 2;
  const GemmRule rule = rule_of(c);
  const double blocks = rule != GemmRule::any ? ruled_seconds(rule, m, n, k, c, p, derived)
                                              : free_seconds(m, n, c, p, derived) +
                                                    (narrowed ? padding_seconds(m, n, k, p) : 0);
  const double more = std::max(blocks, memory), less = std::min(blocks, memory);
  const double both = more * std::pow(1 + std::pow(less / more, p[kNorm]), 1 / p[kNorm]);
  if (!narrowed) return p[kStart] * 1e-6 + both;
  const double quantise = m * k * (2 + c.a_bytes) / (p[kQuantise] * c.bandwidth) +
                          p[kRow] * 1e-9 * narrowing_blocks(rule, m, k, p[kEmpty] == 0);
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
