#include <cmath>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/prefill.hpp"

namespace shardline {

namespace {

constexpr const char* kNumbers[] = {"batch", "seq_q", "heads_local"};
constexpr const char* kWords[] = {"scope", "dtype_compute", "dtype_kv", "dtype_gemm", "kernel"};
constexpr FormParameter kParameters[] = {
    {"t0", "us", 0.1, 10, 200},
    {"e_attend", "1", 0.05, 0.6, 2},  // achieved fraction of tensor and exponential peaks
    {"t_cta", "us", 0.01, 2, 50},
    {"pace", "1", 0.1, 1, 10},
    {"tail", "1", 0.001, 0.5, 2},
    {"throttle", "1", 0.001, 0.1, 1},
    // Of a kernel alone: achieved fraction of HBM peak, queries, keys, values and outputs. Indistinguishable
    // from e_heads in a module, which counts these bytes at the peak.
    {"e_bytes", "1", 0.02, 0.6, 5},
    // Of a module alone.
    {"e_down", "1", 0.02, 0.4, 1.5},   // achieved fraction of the projections' peak, to the latent ranks
    {"e_heads", "1", 0.02, 0.6, 1.5},  // ... from there to heads, and the output
    {"e_weight", "1", 0.05, 0.6, 3},   // achieved fraction of HBM peak, weights
};
constexpr FormAxis kAxes[] = {{"keys", 2}, {"tiles", 1.6}, {"heads", 2.4}};

// DeepSeek-V3: hidden 7168, query rank 1536, latent 512, rotary part 64, heads of 128.
constexpr double kHidden = 7168, kQueryRank = 1536, kLatent = 512, kRotary = 64, kHead = 128;

// A form without links keeps the projections' peak there (0: a kernel alone); a_bytes is of attention,
// b_bytes of the cache and network of the weights.
double projections(const FormContext& c) { return c.variant[0]; }
double weight_bytes(const FormContext& c) { return c.variant[1]; }

/// Whether attention is absorbed: all heads share rows of latents, which are keys and values.
bool absorbed(const FormContext& c) { return c.variant[2] > 0; }
/// FlashAttention-3 alone was measured so, where the heads of a token share its tiles.
PrefillKernel kernel_of(const FormContext& c) {
  return absorbed(c) ? PrefillKernel::flash_attention_3 : PrefillKernel::plain;
}

PrefillShape shape_of(std::span<const double> x, const FormContext& c) {
  PrefillShape s;
  s.batch = x[0];
  s.rows = x[1];
  s.heads_q = x[2];
  s.heads_kv = absorbed(c) ? 1 : x[2];
  s.qk_dim = (absorbed(c) ? kLatent : kHead) + kRotary;
  s.v_dim = absorbed(c) ? kLatent : kHead;
  return s;
}

/// Elements of the matrices from hidden to the latent ranks, and of those of each head.
constexpr double kDown = kHidden * (kQueryRank + kLatent + kRotary);
constexpr double kPerHead = kQueryRank * (kHead + kRotary) + kLatent * 2 * kHead + kHead * kHidden;
double weights(double heads) { return kDown + heads * kPerHead; }

bool context(std::span<const std::string> words, const System& system, FormContext& out) {
  const bool module = words[0] == "module" || words[0] == "module_wideep";
  // A cache in FP8 becomes BF16 before it is absorbed, as long as the same in BF16.
  const bool latent = words[0] == "absorbed";
  const bool fp8 =
      !latent && words[2] == "fp8" && system.device.peak[static_cast<std::size_t>(Dtype::fp8)].value > 0;
  out = form_context(system, fp8 ? Dtype::fp8 : Dtype::bf16);
  out.a_bytes = fp8 ? 1 : 2;
  out.b_bytes = words[2] == "fp8" ? 1 : 2;
  if (module) {
    const Dtype math = words[3] == "nvfp4" ? Dtype::fp4 : words[3] == "fp8_block" ? Dtype::fp8 : Dtype::bf16;
    out.variant[0] = form_context(system, math).flops;
    out.variant[1] = fit_bytes(words[3]);
    if (out.variant[0] <= 0) return false;
  }
  out.variant[2] = latent ? 1 : 0;
  return out.flops > 0 && (module || latent || words[0] == "kernel");
}
bool covers(std::span<const double>) { return true; }
double work(std::span<const double> x, const FormContext& c) {
  const PrefillShape s = shape_of(x, c);
  const double module = projections(c) > 0 ? 2 * s.batch * s.rows * weights(s.heads_q) : 0;
  return 2 * s.batch * s.heads_q * (s.qk_dim + s.v_dim) * prefill_pairs(s) + module;
}
double traffic(std::span<const double> x, const FormContext& c) {
  const double rows = x[0] * x[1];
  if (absorbed(c))
    return rows * x[2] * (2 * kLatent + kRotary) * c.a_bytes + rows * (kLatent + kRotary) * c.b_bytes;
  return rows * x[2] * (2 * (kHead + kRotary) + 2 * kHead) * c.a_bytes +
         rows * (kLatent + kRotary) * c.b_bytes + (projections(c) > 0 ? weights(x[2]) * weight_bytes(c) : 0);
}
/// Without the projections; `keys` of all sequences, `qk` and `v` elements of a head.
double attention_seconds(PrefillWork w, double heads, double keys, double qk, double v, const FormContext& c,
                         std::span<const double> p) {
  w.prefix_bytes = 0;  // expanded just before, with the new tokens' own
  w.query_bytes = w.tokens * heads * (qk * c.a_bytes + v * 2);
  w.cache_bytes = keys * heads * (qk + v) * c.a_bytes + w.tokens * (kLatent + kRotary) * c.b_bytes;
  // Absorbed all heads read the same rows; in FP8 they are read, written and read again.
  if (absorbed(c)) w.cache_bytes = keys * (kLatent + kRotary) * (c.b_bytes < 2 ? c.b_bytes + 4 : c.b_bytes);
  // FP8: queries, keys and values are read and written once more for their conversion.
  if (c.a_bytes < 2) w.cache_bytes += (w.tokens * qk + keys * (qk + v)) * heads * (2 + c.a_bytes);
  const double bytes = projections(c) > 0 ? 1 : p[6];
  const double own[] = {p[0], p[1], p[1], p[2], p[3], p[4], bytes, bytes, 0, p[5]};
  return prefill_seconds(w, c, own);
}
double seconds(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  const PrefillShape s = shape_of(x, c);
  const double rows = s.batch * s.rows;
  double t = attention_seconds(prefill_work(s, kernel_of(c), c), s.heads_q, rows, s.qk_dim, s.v_dim, c, p);
  if (projections(c) > 0) {
    t += 2 * rows * (kDown / p[7] + s.heads_q * kPerHead / p[8]) / projections(c) +
         weights(s.heads_q) * weight_bytes(c) / (p[9] * c.bandwidth);
  }
  return t;
}
void coordinates(std::span<const double> x, const FormContext& c, double* out) {
  const PrefillShape s = shape_of(x, c);
  prefill_coordinates(prefill_pairs(s), s.rows, s.batch * s.heads_q * std::ceil(s.rows / 128), out);
  out[2] = std::log2(s.heads_q);
}

}  // namespace

double mla_prefill_seconds(const AttendPrefillShape& a, const FormContext& c, std::span<const double> p) {
  return attention_seconds(prefill_work(a, kernel_of(c), c), static_cast<double>(a.q_heads),
                           static_cast<double>(a.kv_rows), static_cast<double>(a.qk_dim),
                           static_cast<double>(a.v_dim), c, p);
}

const Form kMlaPrefillForm{"mla_prefill", "H32",  kNumbers, kWords, kParameters, kAxes,
                           context,       covers, seconds,  work,   traffic,     coordinates};

}  // namespace shardline
