#include <cmath>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/prefill_kernels.hpp"

namespace shardline {

namespace {

constexpr const char* kNumbers[] = {"batch",    "seq_q",    "kv_cached", "heads_q",
                                    "heads_kv", "head_dim", "window"};
constexpr const char* kWords[] = {"dtype_compute", "dtype_kv", "kernel"};
constexpr FormAxis kAxes[] = {{"keys", 2.5}, {"tiles", 1.6}, {"group", 2}, {"head_dim", 2}};

PrefillKernel kernel_of(const FormContext& c) { return static_cast<PrefillKernel>(c.variant[0]); }
TileSplit split_of(const FormContext& c) {
  return {static_cast<SplitRule>(c.variant[1]), static_cast<SplitRule>(c.variant[2])};
}

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
  const PrefillKernel kernel = prefill_kernel(words[2], system).value_or(PrefillKernel::with_rope);
  const TileSplit split = tile_split(words, system).value_or(TileSplit{});
  out.variant[0] = static_cast<double>(kernel);
  out.variant[1] = static_cast<double>(split.few);
  out.variant[2] = static_cast<double>(split.many);
  out.variant[3] = writes_by_token(words[2]) ? 1 : 0;
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
double attention_seconds(PrefillWork w, const PrefillShape& s, const FormContext& c,
                         std::span<const double> p, Merging merging = Merging::counted) {
  if (c.variant[3] > 0) w.token_share = write_share(s.heads_kv, s.qk_dim);
  share_keys(w, s, split_of(c), c.sms, merging);
  return prefill_seconds(w, c, p);
}
double seconds(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  const PrefillShape s = shape_of(x);
  return attention_seconds(prefill_work(s, kernel_of(c), c), s, c, p);
}
void coordinates(std::span<const double> x, const FormContext&, double* out) {
  const PrefillShape s = shape_of(x);
  prefill_coordinates(prefill_pairs(s), s.rows, s.batch * s.heads_q * std::ceil(s.rows / 128), out);
  out[2] = std::log2(s.heads_q / s.heads_kv);
  out[3] = std::log2(s.qk_dim);
}

}  // namespace

double attention_prefill_seconds(const AttendPrefillShape& a, const FormContext& c, std::span<const double> p,
                                 Merging merging) {
  return attention_seconds(prefill_work(a, kernel_of(c), c), mean_sequence(a), c, p, merging);
}

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
