// An engine's own all-reduce inside one NVLink domain. hardware/README.md [H42].
#include <algorithm>
#include <cmath>
#include <string>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/nvls.hpp"

namespace shardline {

namespace {

constexpr const char* kNumbers[] = {"gpus", "message_bytes"};
constexpr const char* kWords[] = {"implementation", "dtype"};
constexpr FormParameter kParameters[] = {
    {"t0", "us", 0.5, 3, 30},             // launch, flags
    {"alpha", "us", 0.01, 0.3, 5},        // per doubling of the group
    {"e_one_shot", "1", 0.05, 0.6, 1.5},  // of the link, everyone reads everything
    {"switch", "MB", 0.02, 4, 256},       // read by a GPU, from which the library is called instead
    {"fill", "MB", 1e-4, 1, 100},         // library: bytes in flight while its pipeline fills
    {"e_two_shot", "1", 0.1, 0.85, 1.5},  // library: of the link
    {"nvls", "1", 0.5, 1, 1.5},           // library, in-switch sums: of the rate that NCCL expects of them
};
constexpr FormAxis kAxes[] = {{"gpus", 1}, {"message_bytes", 1}};

bool context(std::span<const std::string>, const System& system, FormContext& out) {
  out = form_context(system, Dtype::bf16);
  out.flops = 0;
  out.bandwidth = out.link;
  out.variant[0] = nvls_efficiency(system);
  return out.link > 0;
}
bool covers(std::span<const double> x) { return x[0] >= 2; }
double work(std::span<const double>, const FormContext&) { return 0; }
double share(std::span<const double> x) { return 2 * (x[0] - 1) / x[0]; }  // of the buffer, through the port
double traffic(std::span<const double> x, const FormContext&) { return share(x) * x[1]; }
enum : std::size_t { kLatency, kShare, kSwitchShare, kSwitchFill, kSwitchRate };
void derive(std::span<const double> x, const FormContext& c, std::span<const double> p, double* out) {
  out[kLatency] = p[0] + p[1] * std::log2(x[0]);
  out[kShare] = share(x);
  const NvlsShape nvls(x[0], c.link);
  out[kSwitchShare] = c.variant[0] > 0 ? nvls.share : 0;
  out[kSwitchFill] = nvls.fill;
  out[kSwitchRate] = p[6] * c.variant[0];
}
double of_message(std::span<const double> x, const FormContext& c, std::span<const double> p,
                  const double* derived) {
  constexpr double kSharp = 6;
  const double all = (x[0] - 1) * x[1];
  const double beyond = all / (p[3] * 1e6);
  const double quick = all / c.link * 1e6 / p[2] * (1 + beyond * beyond * beyond * beyond);
  const double wire = derived[kShare] * x[1] / c.link;
  const double fill = std::sqrt(wire * p[4] * 1e6 / c.link) * 1e6;
  double bulk = (wire * 1e6 + fill) / p[5];
  if (derived[kSwitchShare] > 0)
    bulk = std::min(bulk, nvls_microseconds(derived[kSwitchShare], derived[kSwitchFill], x[1], c.link,
                                            derived[kSwitchRate]));
  const double ratio = quick / bulk;
  const double least = ratio < 1 ? quick * std::pow(1 + std::pow(ratio, kSharp), -1 / kSharp)
                                 : bulk * std::pow(1 + std::pow(ratio, -kSharp), -1 / kSharp);
  return 1e-6 * (derived[kLatency] + least);
}
constexpr auto seconds = in_steps<derive, of_message>;
double coordinate(std::span<const double> x) { return std::log2(x[1]); }
void coordinates(std::span<const double> x, const FormContext&, double* out) {
  out[0] = std::log2(x[0]);
  out[1] = coordinate(x);
}
constexpr FormSteps kSteps{1, 1, derive, of_message, coordinate};

}  // namespace

const Form kAllreduceForm{"allreduce", "H42",   kNumbers, kWords,  kParameters, kAxes,  context,
                          covers,      seconds, work,     traffic, coordinates, &kSteps};

}  // namespace shardline
