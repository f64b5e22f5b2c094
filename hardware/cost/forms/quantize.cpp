// Narrowing a BF16 activation for a narrower product: finding its scale, and applying one. hardware/README.md
// [H45].
#include <cmath>

#include "hardware/cost/forms/forms.hpp"

namespace shardline {

namespace {

enum : std::size_t { kRows, kColumns };
constexpr const char* kNumbers[] = {"m", "k"};
constexpr const char* kWords[] = {"engine", "op", "dtype"};
enum : std::size_t { kT0, kSpread, kFew, kChain, kCache, kMemory, kL2 };
constexpr FormParameter kParameters[] = {
    {"t0", "us", 0.05, 3, 50},         // launches
    {"spread", "us", 0.0001, 0.3, 5},  // more once every SM has thread blocks
    {"few", "K", 1, 50, 1e5},          // elements at which half of `spread` is reached
    {"chain", "ns", 1e-5, 0.001, 1},   // of a row's thread block per element of the row
    {"e_cache", "1", 0.05, 1, 20},     // of the HBM peak, bytes through the SMs
    {"e_memory", "1", 0.02, 0.7, 3},   // of the HBM peak, bytes beyond L2: what they take more
    {"l2", "MB", 4, 40, 400},          // of the activation that is still in L2 when it is read
};
constexpr FormAxis kAxes[] = {{"m", 1.5}, {"k", 2}};

bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  const bool scale = words[1] == "compute_scale";  // reads alone
  out = form_context(system, Dtype::bf16);
  out.b_bytes = scale ? 0 : fit_bytes(words[2]);
  return out.bandwidth > 0 && (scale || words[1] == "scale_matrix") && words[2] != "bf16";
}
bool covers(std::span<const double>) { return true; }
double work(std::span<const double> x, const FormContext&) { return 2 * x[kRows] * x[kColumns]; }
double traffic(std::span<const double> x, const FormContext& c) {
  return x[kRows] * x[kColumns] * (c.a_bytes + c.b_bytes);
}
double seconds(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  const double bytes = traffic(x, c), larger = bytes / (p[kL2] * 1e6),
               beyond = larger * larger * larger * larger;
  const double stream = bytes / c.bandwidth * (1 / p[kCache] + beyond / (1 + beyond) / p[kMemory]);
  const double filled = x[kRows] * x[kColumns] / (p[kFew] * 1e3);
  return (p[kT0] + p[kSpread] * filled / (1 + filled)) * 1e-6 +
         std::hypot(p[kChain] * 1e-9 * x[kColumns], stream);
}
void coordinates(std::span<const double> x, const FormContext&, double* out) {
  out[0] = std::log2(x[kRows]);
  out[1] = std::log2(x[kColumns]);
}

}  // namespace

const Form kQuantizeForm{"quantize", "H45",  kNumbers, kWords, kParameters, kAxes,
                         context,    covers, seconds,  work,   traffic,     coordinates};

}  // namespace shardline
