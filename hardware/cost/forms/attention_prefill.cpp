#include <cmath>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/prefill_kernels.hpp"

namespace shardline {

namespace {

constexpr const char* kNumbers[] = {"batch",    "seq_q",    "kv_cached", "heads_q",
                                    "heads_kv", "head_dim", "window"};
constexpr const char* kWords[] = {"dtype_compute", "dtype_kv", "kernel"};
constexpr FormAxis kAxes[] = {{"keys", 2.5}, {"tiles", 1.6}, {"group", 2}, {"head_dim", 2}};

// A form without links keeps the kernel there.
PrefillKernel kernel_of(const FormContext& c) { return static_cast<PrefillKernel>(c.variant[0]); }

PrefillShape shape_of(std::span<const double> x) {
  PrefillShape s;
  s.batch = x[0];
  s.rows = x[1];
  s.cached = x[2];
  s.heads_q = x[3];
  s.heads_kv = x[4];
  s.qk_dim = s.v_dim = x[5];
  s.window = x[6];
  return s;
}

bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  // Kernels whose cache is FP8 compute in it too, whatever the table's dtype_compute says.
  const bool fp8 = words[0] == "fp8" || words[1] == "fp8";
  out = form_context(system, fp8 ? Dtype::fp8 : Dtype::bf16);
  out.a_bytes = fp8 ? 1 : 2;
  out.b_bytes = words[1] == "fp8" ? 1 : 2;
  out.variant[0] = static_cast<double>(prefill_kernel(words[2]).value_or(PrefillKernel::with_rope));
  return out.flops > 0;
}
// One new token is decode: another kernel.
bool covers(std::span<const double> x) { return x[1] > 1; }
double work(std::span<const double> x, const FormContext&) {
  return 4 * x[0] * x[3] * x[5] * prefill_pairs(shape_of(x));
}
double traffic(std::span<const double> x, const FormContext& c) {
  const double rows = x[0] * x[1], cache = x[0] * (x[1] + x[2]);
  return x[5] * (rows * x[3] * (c.a_bytes + 2) + 2 * cache * x[4] * c.b_bytes);
}
double seconds(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  return prefill_seconds(prefill_work(shape_of(x), kernel_of(c), c), c, p);
}
void coordinates(std::span<const double> x, const FormContext&, double* out) {
  const PrefillShape s = shape_of(x);
  prefill_coordinates(prefill_pairs(s), s.rows, s.batch * s.heads_q * std::ceil(s.rows / 128), out);
  out[2] = std::log2(s.heads_q / s.heads_kv);
  out[3] = std::log2(s.qk_dim);
}

}  // namespace

const Form kAttentionPrefillForm{"attention_prefill",
                                 "H31",
                                 kNumbers,
                                 kWords,
                                 kPrefillParameters,
                                 kAxes,
                                 context,
                                 covers,
                                 seconds,
                                 work,
                                 traffic,
                                 coordinates};

}  // namespace shardline
