// Linear attention (GDN, KDA) and Mamba-2: the short convolution, the scan of a prompt in chunks, and the
// update of the state by a new token or a few drafts. README.md [H69].
#include <algorithm>
#include <cmath>
#include <string_view>

#include "hardware/cost/forms/forms.hpp"

namespace shardline {

namespace {

enum : std::size_t { kBatch, kNew, kHeadsK, kHeadsV, kDim };
constexpr const char* kNumbers[] = {"batch", "seq_q", "heads_k", "heads_v", "head_dim"};
constexpr const char* kWords[] = {"phase", "kernel"};
constexpr const char* kMambaNumbers[] = {"batch", "seq_q", "heads", "head_dim", "state", "groups"};
enum : std::size_t { kT0, kCache, kMemory, kL2, kChain, kHead, kShare, kDrafts, kRequest };
constexpr FormParameter kParameters[] = {
    {"t0", "us", 0.05, 5, 1000},      // launches
    {"e_cache", "1", 0.02, 5, 50},    // of the HBM peak, bytes through the SMs
    {"e_memory", "1", 0.02, 0.7, 3},  // of it, bytes beyond L2: what they take more
    {"l2", "MB", 1, 40, 500},
    {"chain", "ns", 0.1, 50, 1e5},  // of a sequence for a chunk of 64 tokens; a convolution for a token
    {"head", "ps", 1, 5e3, 1e6},    // of the device for a token of a head of values
    {"share", "1", 1e-3, 0.5,
     20},  // of a multiprocessor that a head's chain takes; of the device, a sequence's convolution
    {"drafts", "1", 1e-3, 1, 2},      // states written for a draft beyond the first token
    {"request", "ns", 0.01, 1, 5e3},  // of a sequence that is convolved
};
constexpr FormAxis kAxes[] = {{"requests", 1.5}, {"tokens", 2}, {"heads", 1.5}};
constexpr FormAxis kMambaAxes[] = {{"requests", 1.5}, {"tokens", 2}, {"channels", 1.5}};

constexpr double kTaps = 4;    // of the convolution, in every model that has one
constexpr double kChunk = 64;  // tokens, of GDN's and KDA's scans
enum : int { kConvolution, kScan, kUpdate };

bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  out = form_context(system, Dtype::bf16);
  const bool convolution = std::string_view(words[1]).starts_with("causal_conv1d");
  out.variant[0] = convolution ? kConvolution : words[0] == "prefill" ? kScan : kUpdate;
  return out.bandwidth > 0;
}
bool mamba_context(std::span<const std::string> words, const System& system, FormContext& out) {
  return context(words, system, out) && static_cast<int>(out.variant[0]) == kConvolution;
}
bool covers(std::span<const double>) { return true; }
int part(const FormContext& c) { return static_cast<int>(c.variant[0]); }

double beyond_l2(double bytes, double l2) {
  const double larger = bytes / l2, fourth = larger * larger * larger * larger;
  return fourth / (1 + fourth);
}

// Channels of a token are read and written, the last taps - 1 of a request kept.
double convolved_bytes(double batch, double seq, double channels) {
  return channels * (2 * 2 * batch * seq + 2 * 2 * (kTaps - 1) * batch);
}
double convolution(double batch, double seq, double bytes, const FormContext& c, std::span<const double> p) {
  const double stream = bytes / c.bandwidth * (1 / p[kCache] + beyond_l2(bytes, p[kL2] * 1e6) / p[kMemory]);
  const double chain = p[kChain] * 1e-9 * seq * std::max(1.0, batch * p[kShare]);
  return p[kT0] * 1e-6 + p[kRequest] * 1e-9 * batch + std::hypot(stream, chain);
}

double channels_of(std::span<const double> x) { return (2 * x[kHeadsK] + x[kHeadsV]) * x[kDim]; }
double mamba_channels(std::span<const double> x) { return x[2] * x[3] + 2 * x[5] * x[4]; }

// Queries, keys, values and outputs of BF16; the state in float.
double state_bytes(std::span<const double> x) { return 4 * x[kBatch] * x[kHeadsV] * x[kDim] * x[kDim]; }
double row_bytes(std::span<const double> x) {
  return 2 * x[kBatch] * x[kNew] * x[kDim] * (2 * x[kHeadsK] + 2 * x[kHeadsV]);
}

// Chunks of all sequences at once, then one after the other through the state.
double scan(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  const double tokens = x[kBatch] * x[kNew];
  const double wide = tokens * x[kHeadsV] * p[kHead] * 1e-12 + row_bytes(x) / (p[kCache] * c.bandwidth);
  const double chain = std::ceil(x[kNew] / kChunk) * p[kChain] * 1e-9 *
                       std::max(1.0, x[kBatch] * x[kHeadsV] * p[kShare] / c.sms);
  return p[kT0] * 1e-6 + std::hypot(wide, chain) + 2 * state_bytes(x) / (p[kMemory] * c.bandwidth);
}

// States that lie in L2 from the turn before are read and written there, larger ones in memory, at its peak
// at most.
double update(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  const double read = state_bytes(x), written = read * (1 + p[kDrafts] * (x[kNew] - 1));
  const double beyond = beyond_l2(written, p[kL2] * 1e6);
  const double memory =
      (read + written) / c.bandwidth * std::max(beyond, 1 / p[kCache] + beyond / p[kMemory]);
  const double chain = p[kChain] * 1e-9 * (x[kNew] - 1);
  return p[kT0] * 1e-6 + std::cbrt(memory * memory * memory + chain * chain * chain);
}

double seconds(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  switch (part(c)) {
    case kConvolution:
      return convolution(x[kBatch], x[kNew], convolved_bytes(x[kBatch], x[kNew], channels_of(x)), c, p);
    case kScan:
      return scan(x, c, p);
    default:
      return update(x, c, p);
  }
}
double work(std::span<const double> x, const FormContext& c) {
  const double tokens = x[kBatch] * x[kNew];
  if (part(c) == kConvolution) return 2 * kTaps * tokens * channels_of(x);
  const double chunk = part(c) == kScan ? 4 * kChunk : 0;
  return tokens * x[kHeadsV] * x[kDim] * (8 * x[kDim] + chunk);
}
double traffic(std::span<const double> x, const FormContext& c) {
  if (part(c) == kConvolution) return convolved_bytes(x[kBatch], x[kNew], channels_of(x));
  return 2 * state_bytes(x) + row_bytes(x);
}
void coordinates(std::span<const double> x, const FormContext&, double* out) {
  out[0] = std::log2(x[kBatch]);
  out[1] = std::log2(x[kNew]);
  out[2] = std::log2(x[kHeadsV]);
}

double mamba_seconds(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  return convolution(x[kBatch], x[kNew], convolved_bytes(x[kBatch], x[kNew], mamba_channels(x)), c, p);
}
double mamba_work(std::span<const double> x, const FormContext&) {
  return 2 * kTaps * x[kBatch] * x[kNew] * mamba_channels(x);
}
double mamba_traffic(std::span<const double> x, const FormContext&) {
  return convolved_bytes(x[kBatch], x[kNew], mamba_channels(x));
}
void mamba_coordinates(std::span<const double> x, const FormContext&, double* out) {
  out[0] = std::log2(x[kBatch]);
  out[1] = std::log2(x[kNew]);
  out[2] = std::log2(mamba_channels(x));
}

}  // namespace

const Form kLinearAttentionForm{
    "linear_attention", "H69", kNumbers, kWords, kParameters, kAxes, context, covers, seconds, work, traffic,
    coordinates};
const Form kMambaForm{"mamba2",      "H69",  kMambaNumbers, kWords,     kParameters,   kMambaAxes,
                      mamba_context, covers, mamba_seconds, mamba_work, mamba_traffic, mamba_coordinates};

}  // namespace shardline
