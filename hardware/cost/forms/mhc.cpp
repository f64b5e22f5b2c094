// Manifold-constrained hyper-connections (DeepSeek-V4): several residual streams, mixed before a block and
// after it. README.md [H70].
#include <algorithm>
#include <cmath>

#include "hardware/cost/forms/forms.hpp"

namespace shardline {

namespace {

enum : std::size_t { kTokens, kHidden, kStreams, kSites };
constexpr const char* kNumbers[] = {"tokens", "hidden", "streams", "sites"};
constexpr const char* kWords[] = {"op", "kernel"};
enum : std::size_t { kT0, kWidth, kSpread, kFew, kCache, kMemory, kL2 };
constexpr FormParameter kParameters[] = {
    {"t0", "us", 0.05, 4, 100},       // launches of one site
    {"width", "ns", 1e-3, 0.2, 20},   // of a token's thread block for an element of the hidden state
    {"spread", "us", 0.001, 1, 100},  // more once every SM has tokens
    {"few", "1", 1, 100, 1e5},        // tokens at which half of `spread` is reached
    {"e_cache", "1", 0.02, 2, 50},    // of the HBM peak, bytes through the SMs
    {"e_memory", "1", 0.02, 0.8, 3},  // of it, bytes beyond L2: what they take more
    {"l2", "MB", 1, 40, 500},
};
constexpr FormAxis kAxes[] = {{"tokens", 1.5}, {"hidden", 1}};

bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  out = form_context(system, Dtype::bf16);
  out.variant[0] = words[0] == "pre" ? 1 : 0;
  return out.bandwidth > 0 && (words[0] == "pre" || words[0] == "post");
}
bool covers(std::span<const double> x) { return x[kStreams] > 0; }
// Before: all streams are read and mixed to one. After: the block's output and all streams are read, all are
// written.
double traffic(std::span<const double> x, const FormContext& c) {
  const double rows = c.variant[0] == 1 ? x[kStreams] + 1 : 2 * x[kStreams] + 1;
  return 2 * x[kSites] * x[kTokens] * x[kHidden] * rows;
}
// Before: the weights of all mixtures come from a product of streams x hidden by (streams + 2) streams.
double work(std::span<const double> x, const FormContext& c) {
  const double outputs = c.variant[0] == 1 ? x[kStreams] * (x[kStreams] + 2) : x[kStreams];
  return 2 * x[kSites] * x[kTokens] * x[kStreams] * x[kHidden] * outputs;
}
double seconds(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  const double bytes = traffic(x, c) / x[kSites], larger = bytes / (p[kL2] * 1e6);
  const double fourth = larger * larger * larger * larger;
  const double stream = bytes / c.bandwidth * (1 / p[kCache] + fourth / (1 + fourth) / p[kMemory]);
  const double filled = x[kTokens] / p[kFew];
  return x[kSites] * ((p[kT0] + p[kSpread] * filled / (1 + filled)) * 1e-6 +
                      std::hypot(p[kWidth] * 1e-9 * x[kHidden], stream));
}
void coordinates(std::span<const double> x, const FormContext&, double* out) {
  out[0] = std::log2(x[kTokens]);
  out[1] = std::log2(x[kHidden]);
}

}  // namespace

const Form kHyperConnectionForm{"mhc",   "H70",  kNumbers, kWords, kParameters, kAxes,
                                context, covers, seconds,  work,   traffic,     coordinates};

}  // namespace shardline
