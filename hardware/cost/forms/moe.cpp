// Grouped expert GEMMs of one rank, with the permutation of their tokens. hardware/README.md [H44].
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/moe.hpp"

namespace shardline {

namespace {

// Rows that an expert's tokens are padded to. Not fitted: few tokens cost the same per expert whether weights
// or padded rows limit them, so no measurement of one device tells tile from achieved bandwidth.
constexpr double kTile = 64;

enum : std::size_t { kTokens, kHidden, kInter, kTopk, kExperts, kTp, kEp };
constexpr const char* kNumbers[] = {"tokens", "hidden", "inter", "topk", "experts", "tp", "ep"};
constexpr const char* kWords[] = {"kernel", "dtype", "routing"};
constexpr FormParameter kParameters[] = {
    {"t0", "us", 2, 20, 200},          // launches of the whole chain
    {"e_compute", "1", 0.05, 0.6, 1},  // of the tensor peak
    {"e_memory", "1", 0.05, 0.7, 1},   // of HBM, reading weights
    {"e_rows", "1", 0.02, 0.4, 1},     // of HBM, moving the rank's rows to their experts and back
    {"e_tokens", "1", 0.01, 0.4, 1},   // of HBM, passing over all tokens of the group
    {"step", "ns", 0.01, 5, 300},      // per 64 elements of the inner dimension, one tile after the other
    {"expert", "ns", 0.1, 20, 2000},   // per expert of the rank
    {"uneven", "1", 0.01, 0.5, 5},     // how much of the imbalance of random loads arises
    {"e_pairs", "1", 0.01, 0.6, 20},   // of HBM, passing over the pairs of all ranks; at 20: it does not
};
constexpr FormAxis kAxes[] = {{"rows_per_expert", 2}, {"width", 2}, {"experts", 2}};

// What the variant's words say.
double matrices(const FormContext& c) { return c.variant[0]; }  // 3: gated, 2: not
bool skewed(const FormContext& c) { return c.variant[1] > 0; }  // experts' loads follow a power law

// Experts behind DeepEP get the tokens that its dispatch sends them: the low-latency one sorted by expert, as
// the masked layout of DeepGEMM wants them, the normal one as they came.
// MXFP8 kernels of TensorRT-LLM, FlashInfer's included, choose their tiles by the pairs of the whole group.
MoeTokens tokens_of_kernel(std::string_view kernel, const ExpertTypes& types) {
  const bool generated =
      kernel.find("trtllm") != std::string_view::npos || kernel.find("torch_flow") != std::string_view::npos;
  if (generated && types.stored == Dtype::mxfp4 && types.math == Dtype::fp8) return MoeTokens::group_tiles;
  return kernel == "deepepmoe"          ? MoeTokens::received
         : kernel == "deepepmoe_masked" ? MoeTokens::none
                                        : MoeTokens::group;
}

bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  const ExpertTypes* types = expert_types(words[1]);
  if (types == nullptr) return false;
  out = form_context(system, types->math);
  out.b_bytes = types->stored == Dtype::fp8_block ? fit_bytes("fp8_block") : bytes_per_element(types->stored);
  out.a_bytes = bytes_per_element(types->math);
  out.variant[0] = words[0].find("nongated") != std::string::npos ? 2 : 3;
  out.variant[1] = words[2].starts_with("power_law") ? 1 : 0;
  out.variant[2] = static_cast<double>(tokens_of_kernel(words[0], *types));
  return out.flops > 0;
}
bool covers(std::span<const double> x) { return x[kEp] <= x[kExperts] && x[kTopk] <= x[kExperts]; }

double width(std::span<const double> x) { return x[kInter] / x[kTp]; }
MoeLoad load(std::span<const double> x, const FormContext& c, double uneven) {
  MoeLoad l;
  // A table's buffer of received tokens holds all of the group's: the collector has no exchange.
  l.tokens = tokens_of(c) == MoeTokens::none ? 0 : x[kTokens];
  l.hidden = x[kHidden];
  l.width = width(x);
  l.held = std::max(1.0, x[kExperts] / x[kEp]);
  const double pairs = x[kTokens] * x[kTopk], mean = pairs / x[kEp];
  l.passed = of_group(tokens_of(c)) ? pairs : 0;
  l.rows = mean;
  if (skewed(c)) {
    // Loads uniform in their logarithm between 1 and a share: their variance, and the largest of ep sums.
    const double span = std::log(2 + x[kTokens]);
    const double spread = std::sqrt((0.5 * span + 0.3) / l.held);
    l.rows *= 1 + uneven * spread * std::sqrt(2 * std::log(x[kEp]));
  }
  l.rows = std::clamp(l.rows, std::min(1.0, pairs), x[kTokens] * std::min(x[kTopk], l.held));
  const double per = l.rows / l.held;
  // Balanced routing deals them out in turn, else they fall where they fall.
  const double share = skewed(c) ? -std::expm1(-per) : std::min(1.0, per);
  l.active = std::clamp(l.held * share, std::min(1.0, l.rows), std::min(l.held, std::max(1.0, l.rows)));
  return l;
}
double work(std::span<const double> x, const FormContext& c) {
  return 2 * matrices(c) * load(x, c, 0).rows * x[kHidden] * width(x);
}
double traffic(std::span<const double> x, const FormContext& c) {
  const MoeLoad l = load(x, c, 0);
  return matrices(c) * l.active * x[kHidden] * width(x) * c.b_bytes +
         2 * l.rows * x[kHidden] * (c.a_bytes + 2);
}
double seconds(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  return moe_seconds(load(x, c, p[7]), c, p);
}
void coordinates(std::span<const double> x, const FormContext& c, double* out) {
  moe_coordinates(load(x, c, 0), out);
}

}  // namespace

const ExpertTypes* expert_types(std::string_view measured) {
  static constexpr ExpertTypes kTypes[] = {
      {"bf16", Dtype::bf16, Dtype::bf16},
      {"fp8", Dtype::fp8, Dtype::fp8},
      {"fp8_block", Dtype::fp8_block, Dtype::fp8},
      {"nvfp4", Dtype::fp4, Dtype::fp4},
      {"w4a16_nvfp4", Dtype::fp4, Dtype::bf16},
      {"w4a16_mxfp4", Dtype::mxfp4, Dtype::bf16},
      {"w4a8_mxfp4_mxfp8", Dtype::mxfp4, Dtype::fp8},
      {"int4_wo", Dtype::int4, Dtype::bf16},
      {"w4afp8", Dtype::int4, Dtype::fp8},
  };
  for (const ExpertTypes& t : kTypes) {
    if (measured == t.name) return &t;
  }
  return nullptr;
}

MoeTokens tokens_of(const FormContext& c) { return static_cast<MoeTokens>(static_cast<int>(c.variant[2])); }

double tile_by_group(const MoeLoad& l) {
  constexpr double kLeast = 8, kMost = 256;
  return std::clamp(std::exp2(std::ceil(std::log2(std::max(1.0, l.passed / l.held)))), kLeast, kMost);
}

double moe_seconds(const MoeLoad& l, const FormContext& c, std::span<const double> p) {
  const double per = l.rows / l.active;
  double filled = per;
  if (tokens_of(c) == MoeTokens::group_tiles) {
    // Uneven loads leave half of an expert's last tile empty; 1e-9: rows that fill tiles in theory do.
    const double tile = tile_by_group(l);
    filled = tile * std::max(1.0, skewed(c) ? per / tile + 0.5 : std::ceil(per / tile - 1e-9));
  }
  const double padded = l.active * std::sqrt(filled * filled + kTile * kTile);
  const double matrix = l.hidden * l.width;
  const double compute = 2 * matrices(c) * padded * matrix / (p[1] * c.flops);
  const double weights = matrices(c) * l.active * matrix * c.b_bytes / (p[2] * c.bandwidth);
  const double rows = l.rows * l.hidden * (2 * c.a_bytes + 4) / (p[3] * c.bandwidth);
  const double tokens = l.tokens * l.hidden * 4 / (p[4] * c.bandwidth);
  // Activations of gate and up are read and their product written, results are written and added up.
  const double passed = l.passed * (6 * l.width + 4 * l.hidden) / (p[8] * c.bandwidth);
  const double chain = p[5] * 1e-9 * (l.hidden + l.width) / 64;
  const double c2 = compute * compute, w2 = weights * weights;
  const double gemms = std::sqrt(std::sqrt(c2 * c2 + w2 * w2));
  return p[0] * 1e-6 + p[6] * 1e-9 * l.held + chain + gemms + rows + tokens + passed;
}

void moe_coordinates(const MoeLoad& l, double* out) {
  out[0] = std::log2(l.rows / l.held);
  out[1] = std::log2(l.width);
  out[2] = std::log2(l.held);
}

const Form kMoeForm{"moe",   "H44",  kNumbers, kWords, kParameters, kAxes,
                    context, covers, seconds,  work,   traffic,     coordinates};

}  // namespace shardline
