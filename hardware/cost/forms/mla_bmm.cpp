// The two batched products that absorb the key and value expansion of MLA into query and output, in decode.
// hardware/README.md [H26].
#include <cmath>

#include "hardware/cost/forms/forms.hpp"

namespace shardline {

namespace {

enum : std::size_t { kTokens, kHeads };
constexpr const char* kNumbers[] = {"tokens", "heads_local"};
constexpr const char* kWords[] = {"op", "dtype", "kernel"};
enum : std::size_t { kT0, kHead, kL2, kMemory, kCompute };
constexpr FormParameter kParameters[] = {
    {"t0", "us", 0.5, 4, 50},       // launch
    {"head", "ns", 0.05, 5, 1000},  // of a head's thread blocks
    {"l2", "MB", 1, 30, 300},      {"e_memory", "1", 0.1, 0.9, 1}, {"e_compute", "1", 0.05, 0.6, 1.2},
};
constexpr FormAxis kAxes[] = {{"tokens", 1}, {"heads", 1.5}};

// Of DeepSeek-V3.
constexpr double kRank = 512, kWidth = 128;

bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  const bool fp8 = words[1] == "fp8";
  out = form_context(system, fp8 ? Dtype::fp8 : Dtype::bf16);
  out.b_bytes = fp8 ? 1 : 2;
  return out.flops > 0;
}
bool covers(std::span<const double>) { return true; }
double work(std::span<const double> x, const FormContext&) {
  return 2 * x[kTokens] * x[kHeads] * kRank * kWidth;
}
double traffic(std::span<const double> x, const FormContext& c) {
  return x[kHeads] * (kRank * kWidth * c.b_bytes + x[kTokens] * (kRank + kWidth) * c.a_bytes);
}
double square(double v) { return v * v; }
// Nothing that is worth keeping for other tokens.
void derive(std::span<const double>, const FormContext&, std::span<const double>, double*) {}
double of_tokens(std::span<const double> x, const FormContext& c, std::span<const double> p, const double*) {
  const double bytes = traffic(x, c), beyond = square(square(bytes / (p[kL2] * 1e6)));
  const double memory = bytes * beyond / (1 + beyond) / (p[kMemory] * c.bandwidth);
  const double compute = work(x, c) / (p[kCompute] * c.flops);
  return p[kT0] * 1e-6 + p[kHead] * 1e-9 * x[kHeads] + std::sqrt(memory * memory + compute * compute);
}
constexpr auto seconds = in_steps<derive, of_tokens>;
double coordinate(std::span<const double> x) { return std::log2(x[kTokens]); }
void coordinates(std::span<const double> x, const FormContext&, double* out) {
  out[0] = coordinate(x);
  out[1] = std::log2(x[kHeads]);
}
constexpr FormSteps kSteps{kTokens, 0, derive, of_tokens, coordinate};

}  // namespace

const Form kMlaBmmForm{"mla_bmm", "H26",   kNumbers, kWords,  kParameters, kAxes,  context,
                       covers,    seconds, work,     traffic, coordinates, &kSteps};

}  // namespace shardline
