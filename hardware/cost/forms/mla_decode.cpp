// Decode attention over the latent cache of multi-head latent attention (MLA), alone or with its projections.
// hardware/README.md [H25].
#include <algorithm>
#include <cmath>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/split_rules.hpp"

namespace shardline {

namespace {

enum : std::size_t { kBatch, kKvLen, kHeads };
constexpr const char* kNumbers[] = {"batch", "kv_len", "heads_local"};
constexpr const char* kWords[] = {"scope", "dtype_compute", "dtype_kv", "dtype_gemm", "kernel"};
enum : std::size_t { kT0, kStart, kGroup, kToken, kChunk, kReduce, kSerial, kFew, kMemory, kCompute, kL2 };
enum : std::size_t { kProject = kL2 + 1, kGemm };
constexpr FormParameter kParameters[] = {
    {"t0", "us", 0.5, 8, 500},        // launch; with projections those of all their kernels
    {"start", "us", 0.1, 4, 60},      // of a thread block
    {"group", "1", 0.02, 1, 50},      // share of a tile's heads at which its start costs twice
    {"token", "ns", 0.1, 10, 500},    // of one token in one thread block
    {"chunk", "1", 16, 300, 1e6},     // tokens from which on a sequence is split, where no rule says it
    {"reduce", "us", 1e-4, 0.1, 20},  // of merging its parts, where a rule does
    {"serial", "us", 0.05, 5, 100},   // until an SM's loads overlap
    {"few", "1", 5, 300, 10000},      // tokens of an SM at which half of `serial` is reached
    {"e_memory", "1", 0.3, 0.9, kDecodeMemoryShare},  // of the HBM peak
    {"e_compute", "1", 0.02, 0.7, 2.4},               // of the BF16 peak
    {"l2", "MB", 2, 30, 300},                         // of cache that is still there from the call before
    {"e_project", "1", 0.2, 0.8, 1},                  // of the HBM peak, weights of the projections
    {"e_gemm", "1", 0.05, 0.6, 4},                    // of the BF16 peak, projections
};
constexpr FormAxis kAxes[] = {{"batch", 1.5}, {"kv_len", 2}, {"heads", 1.5}};

// Of DeepSeek-V3.
constexpr double kRank = 512, kRope = 64, kNope = 128, kValue = 128, kHidden = 7168, kQueryRank = 1536;
constexpr double kTile = 64;  // heads of a thread block

double weights(double heads) {
  return kHidden * (kQueryRank + kRank + kRope) +
         heads * (kQueryRank * (kNope + kRope) + kRank * (kNope + kValue) + kValue * kHidden);
}
/// a_bytes: of a projection's weight, 0 without projections. variant[0]: a SplitRule.
bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  out = form_context(system, Dtype::bf16);
  out.b_bytes = words[2] == "fp8" ? 1 : 2;
  const bool wide = words[0] == "module_wideep";  // its rows name the type of the projections twice
  out.a_bytes = !wide && words[0] != "module" ? 0 : fit_bytes(words[3]);
  const SplitRules rules = split_rules("mla_decode", words, system).value_or(SplitRules{});
  out.variant[0] = static_cast<double>(rules.groups);
  return out.flops > 0 && (words[1] == "bf16" || wide);
}
bool covers(std::span<const double>) { return true; }
double attention_traffic(std::span<const double> x, const FormContext& c) {
  return x[kBatch] * (x[kKvLen] * (kRank + kRope) * c.b_bytes + 2 * x[kHeads] * (2 * kRank + kRope));
}
double attention_work(std::span<const double> x) {
  return 2 * x[kBatch] * x[kKvLen] * x[kHeads] * (2 * kRank + kRope);
}
double project_traffic(std::span<const double> x, const FormContext& c) {
  const double moved = kHidden + kQueryRank + x[kHeads] * (kRank + kNope + kRope + kValue);
  return c.a_bytes > 0 ? weights(x[kHeads]) * c.a_bytes + 4 * x[kBatch] * moved : 0;
}
double project_work(std::span<const double> x, const FormContext& c) {
  return c.a_bytes > 0 ? 2 * x[kBatch] * weights(x[kHeads]) : 0;
}
double work(std::span<const double> x, const FormContext& c) {
  return attention_work(x) + project_work(x, c);
}
double traffic(std::span<const double> x, const FormContext& c) {
  return attention_traffic(x, c) + project_traffic(x, c);
}
double square(double v) { return v * v; }
enum : std::size_t { kTiles, kStartTime, kChain };
SplitRule rule_of(const FormContext& c) { return static_cast<SplitRule>(c.variant[0]); }
void derive(std::span<const double> x, const FormContext& c, std::span<const double> p, double* out) {
  const double tiles = out[kTiles] = std::ceil(x[kHeads] / kTile);
  const double filled = x[kHeads] / (tiles * kTile), n = x[kKvLen];
  out[kStartTime] = p[kStart] * (1 + filled / p[kGroup]);
  const double whole = p[kToken] * 1e-3 * n;
  out[kChain] = rule_of(c) == SplitRule::saturating ? whole / (1 + n / p[kChunk]) : whole;
}
double of_batch(std::span<const double> x, const FormContext& c, std::span<const double> p,
                const double* derived) {
  const double ctas = x[kBatch] * derived[kTiles], w = ctas / c.sms, n = x[kKvLen], q = w * n;
  const double start = derived[kStartTime];
  const double more = start * (std::sqrt(1 + w * w) - 1);
  const double bytes = attention_traffic(x, c), beyond = square(square(bytes / (p[kL2] * 1e6)));
  const double memory = bytes * beyond / (1 + beyond) / (p[kMemory] * c.bandwidth) * 1e6;
  const double compute = 2 * ctas * kTile * n * (2 * kRank + kRope) / (p[kCompute] * c.flops) * 1e6;
  const double serial = p[kSerial] * q * q / (q * q + p[kFew] * p[kFew]);
  double us = p[kT0] + start;
  if (const SplitRule rule = rule_of(c); rule == SplitRule::saturating) {
    const double stream = std::sqrt(std::hypot(square(memory), square(compute))) + serial;
    us += std::sqrt(square(more) + square(stream) + square(derived[kChain]));
  } else {
    const double parts = key_split(rule, c.sms).parts(n, ctas, x[kBatch]);
    const double chain = derived[kChain] * std::max(1 / parts, w);
    const double stream =
        std::sqrt(std::sqrt(square(square(memory)) + square(square(compute)) + square(square(chain)))) +
        serial;
    us += p[kReduce] * merging(parts) + std::hypot(more, stream);
  }
  if (c.a_bytes > 0)
    us += 1e6 * std::sqrt(square(project_traffic(x, c) / (p[kProject] * c.bandwidth)) +
                          square(project_work(x, c) / (p[kGemm] * c.flops)));
  return us * 1e-6;
}
constexpr auto seconds = in_steps<derive, of_batch>;
double coordinate(std::span<const double> x) { return std::log2(x[kBatch]); }
void coordinates(std::span<const double> x, const FormContext&, double* out) {
  out[0] = coordinate(x);
  out[1] = std::log2(x[kKvLen]);
  out[2] = std::log2(x[kHeads]);
}
constexpr FormSteps kSteps{kBatch, 0, derive, of_batch, coordinate};

}  // namespace

const Form kMlaDecodeForm{"mla_decode", "H25",   kNumbers, kWords,  kParameters, kAxes,  context,
                          covers,       seconds, work,     traffic, coordinates, &kSteps};

}  // namespace shardline
