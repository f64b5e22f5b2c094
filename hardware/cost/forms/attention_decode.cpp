// Decode attention with grouped or multi-head key/value heads: one new token per sequence. hardware/README.md
// [H23].
#include <algorithm>
#include <cmath>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/split_rules.hpp"

namespace shardline {

namespace {

enum : std::size_t { kBatch, kKvLen, kHeadsQ, kHeadsKv, kHeadDim, kWindow };
constexpr const char* kNumbers[] = {"batch", "kv_len", "heads_q", "heads_kv", "head_dim", "window"};
constexpr const char* kWords[] = {"dtype_compute", "dtype_kv", "kernel"};

// Once for groups of query heads, once for one query head per key/value head: another kernel.
enum : std::size_t { kT0, kStart, kToken, kChunk, kReduce, kSerial, kCompute, kPerKernel };
static_assert(kPerKernel == kDecodeOfOneHead);
enum : std::size_t { kMemory, kL2, kFew, kGroup, kWide, kSkip, kRepack, kCold, kPiece, kSearch, kIdle };
constexpr FormParameter kParameters[] = {
    {"t0", "us", 0.5, 7, 50},         // launch
    {"start", "us", 0.1, 2, 30},      // of a thread block
    {"token", "ns", 0.1, 8, 300},     // of one token in one thread block
    {"chunk", "1", 4, 800, 1e6},      // tokens from which on a sequence is split, where no rule says it
    {"reduce", "us", 1e-4, 0.1, 20},  // of merging its parts, where a rule does
    {"serial", "us", 0.1, 10, 60},    // until an SM's loads overlap
    {"compute", "ns", 0.05, 5, 200},  // of one token on one SM, up to 8 query heads
    {"t0_mha", "us", 0.5, 7, 50},
    {"start_mha", "us", 0.1, 2, 30},
    {"token_mha", "ns", 0.1, 8, 300},
    {"chunk_mha", "1", 4, 800, 1e6},
    {"reduce_mha", "us", 1e-4, 0.1, 20},
    {"serial_mha", "us", 0.1, 10, 60},
    {"compute_mha", "ns", 0.05, 5, 200},
    {"e_memory", "1", 0.3, 0.9, kDecodeMemoryShare},  // of the HBM peak
    {"l2", "MB", 2, 30, 300},                         // of cache that is still there from the call before
    {"few", "1", 20, 500, 10000},                     // tokens of an SM at which half of `serial` is reached
    {"group", "1", 0.1, 4, 100},      // rows of query heads beyond 8 that double a start, in eights
    {"wide", "1", 0.01, 0.5, 100},    // part of start and token that goes with the head's width
    {"skip", "us", 0.02, 0.3, 100},   // thread blocks that find their tokens before the window
    {"repack", "us", 0.02, 0.3, 30},  // query heads reordered where there are several sequences and groups
    {"cold", "1", 0.01, 0.3, 10},     // of a token's time, more where a thread block waits for memory, not L2
    // Of a kernel that starts parts whatever keys there are:
    {"piece", "us", 0.1, 8, 30},      // of a part's thread block, with keys or without
    {"search", "us", 0.001, 0.3, 5},  // in which a thread block looks through 31 sequences for its own
    {"idle", "ns", 0.001, 0.5, 20},   // of a thread block of the merging kernel, most of which find nothing
};
constexpr FormAxis kAxes[] = {{"ctas", 2.5, 1}, {"tokens", 2.5, 1}, {"group", 3}, {"head_dim", 2}};
constexpr double kMostGroup = 32;  // beyond it another kernel, 10 to 40 times slower
constexpr double kTileRows = 8, kSkipTokens = 1024;

double square(double v) { return v * v; }
double tokens(std::span<const double> x) {
  return x[kWindow] > 0 ? std::min(x[kKvLen], x[kWindow]) : x[kKvLen];
}

// FormContext::variant: a SplitRule each, and whether thread blocks wait for memory.
enum : std::size_t { kOfGroups, kOfSingle, kWaits };

bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  out = form_context(system, Dtype::bf16);
  out.b_bytes = words[1] == "fp8" ? 1 : 2;
  const SplitRules rules = split_rules("attention_decode", words, system).value_or(SplitRules{});
  out.variant[kOfGroups] = static_cast<double>(rules.groups);
  out.variant[kOfSingle] = static_cast<double>(rules.single);
  out.variant[kWaits] = rules.waits ? 1 : 0;
  return out.flops > 0 && words[0] == "bf16" && (words[1] == "bf16" || words[1] == "fp8");
}
bool covers(std::span<const double> x) { return x[kHeadsQ] <= kMostGroup * x[kHeadsKv]; }
double work(std::span<const double> x, const FormContext&) {
  return 4 * x[kBatch] * x[kHeadsQ] * x[kHeadDim] * tokens(x);
}
double bytes_of_width(std::span<const double> x, const FormContext& c) {  // of one sequence
  return x[kHeadsKv] * tokens(x) * c.b_bytes + x[kHeadsQ] * c.a_bytes;
}
double traffic(std::span<const double> x, const FormContext& c) {
  return 2 * x[kBatch] * x[kHeadDim] * bytes_of_width(x, c);
}
bool mha_kernel(std::span<const double> x) { return x[kHeadsQ] == x[kHeadsKv]; }
std::span<const double> own_parameters(std::span<const double> x, std::span<const double> p) {
  return p.subspan(mha_kernel(x) ? kPerKernel : kT0, kPerKernel);
}
SplitRule rule_of(std::span<const double> x, const FormContext& c) {
  return static_cast<SplitRule>(c.variant[mha_kernel(x) ? kOfSingle : kOfGroups]);
}
enum : std::size_t { kDim, kRows, kStartTime, kChain, kWidthBytes };
void derive(std::span<const double> x, const FormContext& c, std::span<const double> p, double* out) {
  const double group = x[kHeadsQ] / x[kHeadsKv], n = tokens(x);
  const auto own = own_parameters(x, p), all = p.subspan(2 * kPerKernel);
  const double dim = out[kDim] = x[kHeadDim] / 128;
  const double wide = (1 + all[kWide] * dim) / (1 + all[kWide]);
  const double rows = out[kRows] = std::sqrt(square(kTileRows) + square(group)) / kTileRows;
  out[kStartTime] = own[kStart] * wide * (1 + (rows - 1) / all[kGroup]);
  const double whole = own[kToken] * 1e-3 * wide * n;
  out[kChain] = rule_of(x, c) == SplitRule::saturating ? whole / (1 + n / own[kChunk]) : whole;
  out[kWidthBytes] = bytes_of_width(x, c);
}
// FlashAttention-4's merging kernel: a grid of 8 rows of all sequences by 128 columns, once for each
// sequence, which has no more rows than its own (vllm-project/flash-attention 617264c1c,
// flash_fwd_combine.py).
double merging_blocks(std::span<const double> x) {
  constexpr double kRowsOfBlock = 8, kColumnsOfBlock = 128;
  return x[kBatch] * std::ceil(x[kBatch] * x[kHeadsQ] / kRowsOfBlock) *
         std::ceil(x[kHeadDim] / kColumnsOfBlock);
}
// What starting thread blocks takes, in microseconds: once, and of those behind the first.
struct Starts {
  double once = 0, later = 0;
};
Starts starts_of(std::span<const double> x, double start, double waves, SplitRule rule,
                 std::span<const double> all) {
  const double of_rows = std::sqrt(1 + square(waves));
  Starts out{start, start * (of_rows - 1)};
  if (rule != SplitRule::flash_attention_4_graph) return out;
  // Each block finds its sequence by looking through those before it, 31 at a time (the same,
  // tile_scheduler.py, _varlen_coord_map): half of the batch in the mean.
  constexpr double kLookedThrough = 31;
  const double started = started_parts(rule, x[kBatch]), of_parts = std::sqrt(1 + square(waves * started));
  const double search = all[kSearch] * x[kBatch] / (2 * kLookedThrough);
  out.once += search;
  out.later += search * (of_parts - 1);
  if (started <= 1) return out;
  out.once += all[kIdle] * 1e-3 * merging_blocks(x);
  out.later += all[kPiece] * (of_parts - of_rows);
  return out;
}
double of_batch(std::span<const double> x, const FormContext& c, std::span<const double> p,
                const double* derived) {
  const bool mha = mha_kernel(x);
  const auto own = own_parameters(x, p), all = p.subspan(2 * kPerKernel);
  const double n = tokens(x), ctas = x[kBatch] * x[kHeadsKv], waves = ctas / c.sms, per_sm = waves * n;
  const double rows = derived[kRows], dim = derived[kDim];
  const SplitRule rule = rule_of(x, c);
  const Starts starts = starts_of(x, derived[kStartTime], waves, rule, all);
  const double bytes = 2 * x[kBatch] * x[kHeadDim] * derived[kWidthBytes];
  const double beyond = square(square(bytes / (all[kL2] * 1e6))), cold = beyond / (1 + beyond);
  const double memory = bytes * beyond / (1 + beyond) / (all[kMemory] * c.bandwidth) * 1e6;
  const double compute = own[kCompute] * 1e-3 * per_sm * rows * dim;
  const double serial = own[kSerial] * square(per_sm) / (square(per_sm) + square(all[kFew]));
  const double outside = ctas * (x[kKvLen] - n) / (c.sms * kSkipTokens);
  const double repack = !mha && x[kBatch] > 1 && x[kHeadsKv] > 1 ? all[kRepack] : 0;
  const double once = own[kT0] + starts.once + repack + all[kSkip] * outside / (1 + outside);
  const double tokens_time = derived[kChain] * (c.variant[kWaits] > 0 ? 1 + all[kCold] * cold : 1);
  if (rule == SplitRule::saturating) {
    const double stream = std::sqrt(std::hypot(square(memory), square(compute))) + serial;
    return 1e-6 * (once + std::sqrt(square(starts.later) + square(stream) + square(tokens_time)));
  }
  const double parts = key_split(rule, c.sms).parts(n, ctas, x[kBatch]);
  const double chain = tokens_time * std::max(1 / parts, waves);
  const double stream =
      std::sqrt(std::sqrt(square(square(memory)) + square(square(compute)) + square(square(chain)))) + serial;
  return 1e-6 * (once + own[kReduce] * merging(parts) + std::hypot(starts.later, stream));
}
constexpr auto seconds = in_steps<derive, of_batch>;
double coordinate(std::span<const double> x) { return std::log2(x[kBatch] * x[kHeadsKv]); }
void coordinates(std::span<const double> x, const FormContext&, double* out) {
  out[0] = coordinate(x);
  out[1] = std::log2(tokens(x));
  // Apart from groups, so that the correction of one kernel does not lean on the other.
  out[2] = x[kHeadsQ] == x[kHeadsKv] ? -2 : std::log2(x[kHeadsQ] / x[kHeadsKv]);
  out[3] = std::log2(x[kHeadDim]);
}
constexpr FormSteps kSteps{kBatch, 0, derive, of_batch, coordinate};

}  // namespace

const Form kAttentionDecodeForm{
    "attention_decode", "H23",  kNumbers, kWords, kParameters, kAxes, context, covers, seconds, work, traffic,
    coordinates,        &kSteps};

}  // namespace shardline
