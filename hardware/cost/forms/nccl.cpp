// NCCL collectives inside one NVLink domain. hardware/README.md [H41].
#include <algorithm>
#include <cmath>
#include <string>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/nvls.hpp"

namespace shardline {

namespace {

constexpr const char* kNumbers[] = {"gpus", "message_bytes"};
constexpr const char* kWords[] = {"op"};
constexpr FormParameter kParameters[] = {
    {"t0", "us", 1, 6, 60},          // launch, first flag
    {"alpha", "us", 0.02, 0.8, 10},  // per step
    {"fill", "MB", 1e-3, 4, 200},    // bytes through the port while chunks and channels grow with the message
    {"e_link", "1", 0.1, 0.8, 1.2},  // of the port's rate, huge messages
    {"own", "1", 1e-3, 0.4, 3},      // a byte that stays at home, copied there, over one through the port
    {"nvls", "1", 0.5, 1, 1.5},      // in-switch sums: of the rate that NCCL expects of them
};
constexpr FormAxis kAxes[] = {{"gpus", 1}, {"message_bytes", 1}};

// The variant's op as numbers.
double crossings(const FormContext& c) { return c.variant[0]; }  // of the port by each part of the buffer
double kept(const FormContext& c) { return c.variant[1]; }       // parts of the n that stay at home
double in_switch(const FormContext& c) {
  return c.variant[2];
}  // part of the port that sums there get, or zero

bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  out = form_context(system, Dtype::bf16);
  out.flops = 0;
  out.bandwidth = out.link;
  const std::string& op = words[0];
  out.variant[0] = op == "all_reduce" ? 2 : 1;
  out.variant[1] = op == "sendrecv" ? 0 : 1;
  out.variant[2] = op == "all_reduce" ? nvls_efficiency(system) : 0;
  return out.link > 0;
}
bool covers(std::span<const double> x) { return x[0] >= 2; }
double work(std::span<const double>, const FormContext&) { return 0; }
double share(std::span<const double> x, const FormContext& c) {  // of the buffer, through the port
  return crossings(c) * (x[0] - kept(c)) / x[0];
}
double traffic(std::span<const double> x, const FormContext& c) { return share(x, c) * x[1]; }
enum : std::size_t { kLatency, kShare, kSwitchShare, kSwitchFill, kSwitchRate };
void derive(std::span<const double> x, const FormContext& c, std::span<const double> p, double* out) {
  // A ring (all-to-all: a message to each). NCCL's tree is a chain inside a domain, with as many steps.
  const double steps = kept(c) > 0 ? crossings(c) * (x[0] - 1) : 1;
  out[kLatency] = p[0] + p[1] * steps;
  out[kShare] = share(x, c) + p[4] * kept(c) / x[0];
  const NvlsShape nvls(x[0], c.link);
  out[kSwitchShare] = in_switch(c) > 0 ? nvls.share : 0;
  out[kSwitchFill] = nvls.fill;
  out[kSwitchRate] = p[5] * in_switch(c);
}
double of_message(std::span<const double> x, const FormContext& c, std::span<const double> p,
                  const double* derived) {
  const double wire = derived[kShare] * x[1] / c.link;
  const double fill = std::sqrt(wire * p[2] * 1e6 / c.link) * 1e6;
  const double ring = derived[kLatency] + (wire * 1e6 + fill) / p[3];
  if (derived[kSwitchShare] == 0) return 1e-6 * ring;
  return 1e-6 * std::min(ring, nvls_microseconds(derived[kSwitchShare], derived[kSwitchFill], x[1], c.link,
                                                 derived[kSwitchRate]));
}
constexpr auto seconds = in_steps<derive, of_message>;
double coordinate(std::span<const double> x) { return std::log2(x[1]); }
void coordinates(std::span<const double> x, const FormContext&, double* out) {
  out[0] = std::log2(x[0]);
  out[1] = coordinate(x);
}
constexpr FormSteps kSteps{1, 1, derive, of_message, coordinate};

}  // namespace

const Form kNcclForm{"nccl", "H41",   kNumbers, kWords,  kParameters, kAxes,  context,
                     covers, seconds, work,     traffic, coordinates, &kSteps};

}  // namespace shardline
