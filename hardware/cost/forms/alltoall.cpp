// Dispatch and combine of tokens between the ranks of an expert-parallel group. hardware/README.md [H43].
#include <algorithm>
#include <cmath>
#include <string>

#include "hardware/cost/forms/forms.hpp"

namespace shardline {

namespace {

enum : std::size_t { kGpus, kNodes, kTokens, kHidden, kTopk, kExperts, kSms };
constexpr const char* kNumbers[] = {"gpus", "nodes", "tokens_per_rank", "hidden", "topk", "experts", "sms"};
constexpr const char* kWords[] = {"implementation", "phase", "dtype"};
// A variant without rows between nodes keeps the starts of alpha and e_network: low-latency DeepEP has those.
constexpr FormParameter kParameters[] = {
    {"t0", "us", 1, 12, 200},         // launch, first flag
    {"alpha", "us", 0.01, 5, 100},    // per doubling of what has to be waited for: nodes, or GPUs of a domain
    {"flag", "ns", 0.01, 5, 200},     // per expert, where each has its own counter
    {"row", "us/KB", 1e-3, 0.1, 10},  // one row through one sender, where they are set apart
    {"token", "ns", 0.01, 2, 500},    // per token: its experts are looked up, its place found
    {"sender", "GB/s", 0.3, 15, 500},   // of one SM
    {"e_link", "1", 0.05, 0.7, 1},      // of NVLink
    {"e_network", "1", 0.05, 0.95, 1},  // of the network port
    {"spread", "1", 1e-3, 0.03, 0.5},   // NVLink's time grows by this for each 8 GPUs beyond 8
};
constexpr FormAxis kAxes[] = {{"tokens_per_rank", 1}, {"bytes_per_token", 1}, {"senders", 1}, {"gpus", 1}};

enum class Copies { none, per_rank, per_expert };
Copies copies(const FormContext& c) {
  return c.b_bytes > 1 ? Copies::per_expert : c.b_bytes > 0 ? Copies::per_rank : Copies::none;
}

// The variant as numbers.
double dealt(const FormContext& c) { return c.variant[0]; }  // experts of a token lie on as many ranks
double stays(const FormContext& c) { return c.variant[1]; }  // a kernel that has no way out of its domain
double queues(const FormContext& c) {
  return c.variant[2];
}  // one per pair, a thread block polls few of them

bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  out = form_context(system, Dtype::bf16);
  out.flops = 0;
  out.bandwidth = out.link;
  const bool quantised = words[1] == "dispatch" || words[1] == "combine_low_precision";
  if (words[1] == "prepare") {
    out.b_bytes = 0;
  } else {
    out.b_bytes = words[0].ends_with("_ll") ? 2 : 1;
    // With the scales of its blocks.
    if (quantised && words[2] == "fp8") out.a_bytes = bytes_per_dispatched_element(Dtype::fp8);
    if (quantised && words[2] == "nvfp4") out.a_bytes = bytes_per_dispatched_element(Dtype::fp4);
  }
  const bool nvlink = words[0].find("nvlink") != std::string::npos;
  // Nodes of a group that stays in one NVLink domain are no boundary.
  if (nvlink) out.network = 0;
  // Its tables deal experts out; for all else there is deal_at_random().
  out.variant[0] = out.variant[1] = nvlink ? 1 : 0;
  out.variant[2] = nvlink && words[0].ends_with("two_sided") && words[1] != "prepare" ? 1 : 0;
  return out.link > 0;
}
bool covers(std::span<const double> x) { return x[kGpus] >= 2 && x[kTopk] <= x[kExperts]; }

/// Number of `parts` equal parts of the experts that a token's choice of distinct ones touches: expected of
/// a choice at random, the most there can be of experts that are dealt out.
double touched(double parts, std::span<const double> x, const FormContext& c) {
  if (dealt(c) > 0) return std::min(parts, x[kTopk]);
  const double mine = x[kExperts] / parts;
  double missed = 1;
  for (double left = x[kExperts]; left > x[kExperts] - x[kTopk] && missed > 0; --left)
    missed *= std::max(0.0, 1 - mine / left);
  return parts * (1 - missed);
}

/// Copies of a token: made in all, through the own domain's links, through the network port.
struct Sent {
  double made, near, far;
};
Sent sent(std::span<const double> x, const FormContext& c) {
  const double gpus = x[kGpus], nodes = c.network > 0 ? x[kNodes] : 1;
  const double made = copies(c) == Copies::per_expert ? x[kTopk] : touched(gpus, x, c);
  const double beyond = (nodes - 1) / nodes;
  if (copies(c) == Copies::per_expert) return {made, made * (1 / nodes - 1 / gpus), made * beyond};
  // One per node across, handed on to the node's GPUs by the one that received it.
  return {made, made * (1 - nodes / gpus), touched(nodes, x, c) * beyond};
}
double row_bytes(std::span<const double> x, const FormContext& c) {
  return copies(c) == Copies::none ? 8 * x[kTopk] : c.a_bytes * x[kHidden];
}
/// SMs that send; zero: not told, no limit by them.
double senders(std::span<const double> x, const FormContext& c) {
  if (x[kSms] > 0) return x[kSms];
  constexpr double kMost = 128;
  return copies(c) == Copies::per_expert ? std::min(x[kExperts], kMost) : 0;
}

double work(std::span<const double>, const FormContext&) { return 0; }
double traffic(std::span<const double> x, const FormContext& c) {
  const Sent s = sent(x, c);
  return x[kTokens] * row_bytes(x, c) * (s.near + (s.far > 0 ? s.far * c.link / c.network : 0));
}
enum : std::size_t { kLatency, kRow, kSenders, kMade, kNear, kFar };
void derive(std::span<const double> x, const FormContext& c, std::span<const double> p, double* out) {
  const Sent s = sent(x, c);
  out[kRow] = row_bytes(x, c);
  const double lanes = out[kSenders] = senders(x, c);
  constexpr double kFew = 8;  // GPUs: what one thread block serves
  const double peers = queues(c) > 0 ? std::min(x[kGpus], kFew) : x[kGpus];
  const double members = lanes > 0 ? (c.network > 0 ? x[kNodes] : 1) : peers;
  out[kLatency] = p[0] + p[1] * std::log2(members);
  out[kMade] = s.made;
  const double spread = stays(c) > 0 ? p[8] * std::max(0.0, x[kGpus] - kFew) / kFew : 0;
  out[kNear] = s.near * (1 + spread);
  out[kFar] = s.far;
}
double of_tokens(std::span<const double> x, const FormContext& c, std::span<const double> p,
                 const double* derived) {
  const double row = derived[kRow], bytes = x[kTokens] * row;
  const double lanes = derived[kSenders], far_copies = derived[kFar];
  double latency = derived[kLatency] + p[4] * 1e-3 * x[kTokens];
  if (copies(c) == Copies::none) return 1e-6 * latency;
  if (copies(c) == Copies::per_expert) latency += p[2] * 1e-3 * x[kExperts];
  if (x[kSms] > 0) latency += p[3] * 1e-3 * row;
  const double out = lanes > 0 ? bytes * derived[kMade] / (p[5] * 1e3 * lanes) : 0;
  const double near = bytes * derived[kNear] / (p[6] * c.link) * 1e6;
  const double far = far_copies > 0 ? bytes * far_copies / (p[7] * c.network) * 1e6 : 0;
  // Pipelined with each other: the slowest, and a little of the others (norm of order 4).
  const double out2 = out * out, near2 = near * near, far2 = far * far;
  const double drain = std::sqrt(std::sqrt(out2 * out2 + near2 * near2 + far2 * far2));
  return 1e-6 * (latency + drain);
}
constexpr auto seconds = in_steps<derive, of_tokens>;
double coordinate(std::span<const double> x) { return std::log2(x[kTokens]); }
void coordinates(std::span<const double> x, const FormContext& c, double* out) {
  out[0] = coordinate(x);
  out[1] = std::log2(row_bytes(x, c) * sent(x, c).made);
  out[2] = std::log2(std::max(1.0, senders(x, c)));
  out[3] = std::log2(x[kGpus]);
}
constexpr FormSteps kSteps{kTokens, 0, derive, of_tokens, coordinate};

}  // namespace

void deal_at_random(FormContext& c) { c.variant[0] = 0; }

const Form kAlltoallForm{"alltoall", "H43",   kNumbers, kWords,  kParameters, kAxes,  context,
                         covers,     seconds, work,     traffic, coordinates, &kSteps};

}  // namespace shardline
