#include "hardware/cost/calibrated_cost.hpp"

#include <algorithm>
#include <cmath>

#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/prefill.hpp"

namespace shardline {

namespace {

// Work of MLA's attention relative to that of the widths that kernels were measured with: the larger of
// arithmetic and bytes [H62].
double mla_decode_widths(const AttendDecodeShape& a) {
  const double rows = kMlaMeasured.rank + kMlaMeasured.rotary;
  const auto qk = static_cast<double>(a.qk_dim), v = static_cast<double>(a.v_dim);
  return std::max((qk + v) / (rows + kMlaMeasured.rank), qk / rows);
}
bool measured_widths(const AttendPrefillShape& a) {
  const double v = a.cache == CacheRows::latent ? kMlaMeasured.rank : kMlaMeasured.head;
  return static_cast<double>(a.qk_dim) == v + kMlaMeasured.rotary && static_cast<double>(a.v_dim) == v;
}

bool rotates(const KernelFit& f) { return f.words[2].starts_with("torch_flow"); }

}  // namespace

std::string_view to_string(Basis b) {
  constexpr std::array<std::string_view, kBases> names{"none", "measured", "fitted", "extrapolated",
                                                       "assumed"};
  return names[static_cast<std::size_t>(b)];
}

// Among messages of which no engine's list says which kernel carries them: one whose measurements cover the
// shape comes before one whose do not, then the fastest. A floor is below whatever is taken.
bool CalibratedCost::better(const FittedPrice& one, const std::optional<FittedPrice>& other) const {
  if (!other) return true;
  if (pricing_ == Pricing::floor || one.basis == other->basis) return one.time < other->time;
  return one.basis < other->basis;
}

// Which kernel an engine takes may follow from what a model's layers are: each was measured with those that
// it runs.
CalibratedCost::Use* CalibratedCost::measured_with(Alternatives& of, const std::array<double, 4>& model,
                                                   const PricedOp& op) {
  if (of.all.empty()) return nullptr;
  if (of.all.size() > 1 && model != of.asked) {
    of.asked = model;
    of.taken = 0;
    for (std::size_t i = 0; i < of.all.size() && of.taken == 0; ++i) {
      if (!of_measured_model(*of.all[i].fit, op)) continue;
      of.taken = i;
      break;
    }
  }
  return &of.all[of.taken];
}

double CalibratedCost::parameter(const Use& u, std::string_view name) {
  const auto named = [&](const FormParameter& p) { return p.name == name; };
  const auto all = u.fit->form->parameters;
  return u.parameters[static_cast<std::size_t>(std::find_if(all.begin(), all.end(), named) - all.begin())];
}

Basis CalibratedCost::basis(const Use& u, bool measured) {
  if (!measured || u.altered || u.machine != MachineKin::own) return Basis::extrapolated;
  return u.borrowed ? Basis::fitted : Basis::measured;
}

FittedPrice CalibratedCost::at_place(Seconds time, const Use& u, bool outside, std::span<const double> at) {
  FittedPrice p{time, Basis::measured, u.fit, distance_of(*u.fit, u.machine, outside, at)};
  p.distance.altered = u.altered;
  p.distance.indirect = u.borrowed;
  p.basis = basis(u, p.distance.measured());
  if (!u.fit->derived.empty()) p.basis = worse(p.basis, Basis::fitted);
  return p;
}

FittedPrice CalibratedCost::of(Use& u, std::span<const double> x) {
  const UsedKernel kernel{*u.fit, u.context, u.parameters, u.correction};
  ShapeLine& line = u.lines.through(kernel, x);
  const double at = line.coordinate(kernel, x);
  return at_place(Seconds(line.seconds(kernel, x, at)), u, line.outside(kernel, at), line.where(kernel, at));
}

// No kernel is faster than the peaks of the device, whatever a form says far from its measurements, or with
// operands that stayed in L2.
double CalibratedCost::least(const PricedOp& op, const FormContext& c) const {
  double peak = c.flops;
  // Forms of attention count with the BF16 peak where kernels over a narrow cache may compute in FP8.
  if (is_attention(op.kind) && op.dtype != Dtype::bf16)
    peak = std::max(peak, system_->device.peak[at(Dtype::fp8)].value * rates_);
  const double share = op.kind == OpKind::attend_decode ? kDecodeMemoryShare : 1;
  return std::max(flops(op).value / peak, (kv_bytes(op) + weight_bytes(op)).value / (c.bandwidth * share));
}

// Without its launch, of t0 us, where another op has paid it.
FittedPrice CalibratedCost::of(Use& u, std::span<const double> x, const PricedOp& op, double launches,
                               double t0) {
  FittedPrice p = of(u, x);
  p.time = Seconds(std::max(p.time.value + (launches - 1) * t0 * 1e-6, least(op, u.context)));
  return p;
}

std::optional<FittedPrice> CalibratedCost::price(const PricedOp& op, const GroupFabric* group) {
  switch (op.kind) {
    case OpKind::gemm:
      return gemm(op);
    case OpKind::batched_gemm:
      return batched_gemm(op);
    case OpKind::grouped_gemm:
      return experts(op);
    case OpKind::attend_prefill:
      return prefill(op);
    case OpKind::attend_decode:
      return decode(op);
    case OpKind::launch:
      return std::nullopt;
    case OpKind::index_logits:
    case OpKind::top_k:
    case OpKind::attend_sparse:
    case OpKind::module_rest:
      return indexed(op);
    case OpKind::convolve:
    case OpKind::recur:
      return recurrent(op);
    case OpKind::mix_streams:
      return mixed(op);
    case OpKind::merge:
    case OpKind::elementwise:
    case OpKind::compress:
      return elementwise(op);
    case OpKind::dispatch:
    case OpKind::combine:
      return exchange(op, *group);
    case OpKind::send_recv:
    case OpKind::all_reduce:
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::all_to_all:
      return group->whole.one_node ? collective(op, *group) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<FittedPrice> CalibratedCost::gemm(const PricedOp& op) {
  const GemmShape& g = shape<GemmShape>(op);
  return product(op, static_cast<double>(g.rows), static_cast<double>(g.n), static_cast<double>(g.k));
}

std::optional<FittedPrice> CalibratedCost::product(const PricedOp& op, double rows, double n, double k) {
  // Rows and columns of nothing are not launched.
  if (!(rows > 0 && n > 0 && k > 0)) return FittedPrice{Seconds(0), Basis::none};
  Use& u = gemm_[at(op.math)][at(kernel_type(op.dtype))];
  if (!u) return std::nullopt;
  const double x[] = {rows, n, k};
  if (op.launches > 0) return of(u, x, op, op.launches, u.parameters[0]);
  // Part of another kernel, whose pipeline it fills further: work and bytes at the fit's rates.
  const double compute = flops(op).value / (u.context.flops * std::min(1.0, parameter(u, "e_compute")));
  const double memory =
      weight_bytes(op).value / (u.context.bandwidth * std::min(1.0, parameter(u, "e_memory")));
  return FittedPrice{Seconds(std::max(compute, memory)),
                     worse(Basis::fitted, basis(u, true)),
                     u.fit,
                     {u.machine, u.altered, true}};
}

// MLA's absorbed products, each by measurements of its own, whatever its widths: a latent may be narrower
// than a head. Kernels were measured with DeepSeek's; of others the part above the launch grows as the work
// does [H62].
std::optional<FittedPrice> CalibratedCost::batched_gemm(const PricedOp& op) {
  const BatchedGemmShape& g = shape<BatchedGemmShape>(op);
  if (!(g.rows > 0 && g.n > 0 && g.k > 0)) return FittedPrice{Seconds(0), Basis::none};
  const bool absorbs = g.product == LatentProduct::absorb_query;
  Use& u = (absorbs ? absorb_ : expand_)[at(op.math)][at(kernel_type(op.dtype))];
  const double rows = static_cast<double>(g.rows * g.parts);
  const double matrices = static_cast<double>(g.matrices) / static_cast<double>(g.parts);
  // Several matrices side by side do the work, and read the bytes, of one as wide as all of them.
  if (!u) return product(op, rows, static_cast<double>(g.n) * matrices, static_cast<double>(g.k));
  const double x[] = {rows, matrices};
  const auto head = static_cast<double>(absorbs ? g.k : g.n), rank = static_cast<double>(absorbs ? g.n : g.k);
  const double widths = head * rank / (kMlaMeasured.rank * kMlaMeasured.head);
  FittedPrice p = of(u, x);
  const double t0 = u.parameters[0] * 1e-6;
  if (head != kMlaMeasured.head || rank != kMlaMeasured.rank) p.alter();
  const double work = widths == 1 ? p.time.value - t0 : std::max(0.0, p.time.value - t0) * widths;
  p.time = Seconds(std::max(work + op.launches * t0, least(op, u.context)));
  return p;
}

// Forms are of requests of one length, the mean here. A kernel ends with its last request, so a step is never
// faster than its longest one alone: on GB200 two requests of 131K tokens take what one does.
std::optional<FittedPrice> CalibratedCost::decode(const PricedOp& op) {
  const AttendDecodeShape& a = shape<AttendDecodeShape>(op);
  const std::optional<FittedPrice> all = decode_alike(op);
  if (!all || a.longest * a.q_rows <= a.pairs) return all;
  PricedOp alone = op;
  auto& one = std::get<AttendDecodeShape>(alone.shape);
  one.q_rows = a.fresh;
  one.kernel_parts = 1;
  one.kernel_rows = 0;
  one.pairs = a.longest * a.fresh;
  one.kv_rows = a.longest;
  one.skipped = a.skipped * a.fresh / a.q_rows;
  std::optional<FittedPrice> last = decode_alike(alone);
  if (!last) return all;
  if (a.kernel_parts > 1) {  // the longest is of the whole kernel, whose launch is the first part's
    const Seconds launched = last->time;
    alone.launches = 0;
    const Seconds work = decode_alike(alone)->time;
    last->time = work / static_cast<double>(a.kernel_parts) + (launched - work);
  }
  return last->time > all->time ? last : all;
}

// Measured kernels of many heads may be faster than those of few: no reason to read a cache for more rows.
std::optional<FittedPrice> CalibratedCost::decode_alike(const PricedOp& op) {
  std::optional<FittedPrice> all = decode_rows(op);
  const Count fresh = shape<AttendDecodeShape>(op).fresh;
  if (!all || fresh <= 1) return all;
  PricedOp one = op;
  auto& a = std::get<AttendDecodeShape>(one.shape);
  for (Count* const rows : {&a.q_rows, &a.pairs, &a.kernel_rows}) *rows /= fresh;  // others are of requests
  a.fresh = 1;
  if (const auto least = decode_rows(one); least && least->time > all->time) all->time = least->time;
  return all;
}

std::optional<FittedPrice> CalibratedCost::decode_rows(const PricedOp& op) {
  const AttendDecodeShape& a = shape<AttendDecodeShape>(op);
  if (!(a.q_rows > 0 && a.pairs > 0)) return FittedPrice{Seconds(0), Basis::none};
  // [H74] Kernels lay the queries of a request side by side as they do the heads that share a key, in one
  // read of the cache: so many more query heads of as many requests.
  const double fresh = static_cast<double>(a.fresh), parts = static_cast<double>(a.kernel_parts);
  const double q_rows = static_cast<double>(a.q_rows) / fresh;
  const double length = static_cast<double>(a.pairs) / static_cast<double>(a.q_rows);
  const double skipped = static_cast<double>(a.skipped) / q_rows;
  const bool is_part = a.kernel_parts > 1;
  const double rows = is_part ? static_cast<double>(std::max(a.kernel_rows, a.q_rows)) / fresh : q_rows;
  const double q_heads = static_cast<double>(a.q_heads) * fresh;
  const auto heads_kv = static_cast<double>(a.kv_heads);
  const bool latent = a.cache == CacheRows::latent;
  const std::size_t stored = at(kernel_type(op.dtype));
  const std::array model{static_cast<double>(a.qk_dim), static_cast<double>(a.q_heads), heads_kv, 1.0};
  Use* const taken = latent ? &mla_decode_[stored] : measured_with(decode_[stored], model, op);
  if (taken == nullptr) return std::nullopt;
  Use& u = *taken;
  const double gqa[] = {
      rows, length + skipped, q_heads, heads_kv, static_cast<double>(a.qk_dim), skipped > 0 ? length : 0};
  const double of_latents[] = {rows, length, q_heads};
  const auto x = latent ? std::span<const double>(of_latents) : std::span<const double>(gqa);
  // Which kernel takes them is a matter of the heads of one row: rows beyond its tile are further tiles.
  const double of_one[] = {rows, length + skipped, q_heads / fresh, heads_kv, static_cast<double>(a.qk_dim),
                           0};
  const auto one = latent ? x : std::span<const double>(of_one);
  // Keys wider than their values (MiMo-V2: 192 and 128) are the kernel's of that width, as in prompts: the
  // rows of a width that such models alone have are theirs.
  if (!u || (!latent && a.qk_dim < a.v_dim) || !u.fit->form->covers(one)) return std::nullopt;
  FittedPrice p = of(u, x);
  const bool stands_in =
      latent && a.partial && is_one_of(architecture_of(system_->device), system_->kernels.other_partial_mla);
  if (a.fresh > 1 || stands_in || (!latent && a.qk_dim != a.v_dim)) p.alter();
  if (skipped > 0) {  // what lies before a window costs the kernel a look, known as far as full caches are
    const double full[] = {rows, length + skipped, q_heads, heads_kv, static_cast<double>(a.qk_dim), 0};
    const FittedPrice looked = of(u, std::span(full).first(x.size()));
    p.basis = worse(p.basis, looked.basis);
    p.distance.outside = p.distance.outside || looked.distance.outside;
  }
  // The measured kernel merges its splits too: no second launch.
  const double launches = std::min(1.0, op.launches);
  const double t0 = u.parameters[!latent && q_heads == heads_kv ? kDecodeOfOneHead : 0] * 1e-6;
  if (const double widths = latent ? mla_decode_widths(a) : 1; widths != 1) {
    p.alter();
    p.time = Seconds(t0 + std::max(0.0, p.time.value - t0) * widths);
  }
  const double work = p.time.value - t0, peak = least(op, u.context);
  if (pricing_ == Pricing::floor && is_part) {
    // Chunks that are a row longer come first, so the first k of n never take less than k/n of the kernel:
    // all that a path through the schedule, which enters at the first, can contain. Of a chunk's own rows
    // nothing may count, or the longer ones together with n-k equal parts were more than the kernel.
    const double whole = peak * rows / q_rows;
    p.time =
        Seconds(std::max(work, whole) / parts + launches * std::max(0.0, t0 - std::max(0.0, whole - work)));
    return p;
  }
  p.time = Seconds(std::max(work * (q_rows / rows) + launches * t0, peak));
  return p;
}

std::optional<FittedPrice> CalibratedCost::prefill(const PricedOp& op) {
  const AttendPrefillShape& a = shape<AttendPrefillShape>(op);
  if (a.all_pairs) return std::nullopt;
  if (!(a.q_rows > 0 && a.pairs > 0)) return FittedPrice{Seconds(0), Basis::none};
  const bool mla = a.family == AttentionFamily::mla, latent = a.cache == CacheRows::latent;
  const std::size_t math = at(op.math), stored = at(kernel_type(op.dtype));
  const std::array model{static_cast<double>(a.qk_dim), static_cast<double>(a.q_heads),
                         static_cast<double>(a.kv_heads), 1.0};
  const Use* const taken = latent ? &mla_absorbed_[stored]
                           : mla  ? &mla_prefill_[math][stored]
                                  : measured_with(prefill_[math][stored], model, op);
  if (taken == nullptr || !*taken) return std::nullopt;
  const Use& u = *taken;
  double where[kMostAxes];
  prefill_coordinates(static_cast<double>(a.pairs), static_cast<double>(a.q_rows),
                      static_cast<double>(a.tiles * a.q_heads), where);
  double seconds = 0;
  if (mla) {
    where[2] = std::log2(static_cast<double>(a.q_heads));
    seconds = mla_prefill_seconds(a, u.context, u.parameters);
  } else {
    const double per_kv = static_cast<double>(a.q_heads) / static_cast<double>(a.kv_heads);
    where[2] = std::log2(std::max(1.0, per_kv));
    where[3] = std::log2(static_cast<double>(a.qk_dim));
    const bool floor = pricing_ == Pricing::floor;
    seconds =
        attention_prefill_seconds(a, u.context, u.parameters, floor ? Merging::left_out : Merging::counted);
  }
  const std::span axes(where, u.fit->form->axes.size());
  seconds *= std::exp(u.correction.at(axes));
  seconds = std::max(seconds + (op.launches - 1) * u.parameters[0] * 1e-6, least(op, u.context));
  FittedPrice p = at_place(Seconds(seconds), u, u.fit->outside(axes), axes);
  // No cached prefix and no block of a ring was measured.
  if (!a.whole) {
    p.basis = worse(p.basis, Basis::fitted);
    p.distance.indirect = true;
  }
  // Nor were other widths of MLA, or heads of GQA whose keys are wider than their values.
  if (mla ? !measured_widths(a) : a.qk_dim != a.v_dim) p.alter();
  return p;
}

bool CalibratedCost::absorbed(Within within) const {
  const auto any = [](const auto& uses, auto holds) {
    return std::any_of(uses.begin(), uses.end(), [&](const auto& u) {
      if constexpr (requires { u.all; }) {
        return !u.all.empty() && holds(*u.all.front().fit);
      } else {
        return u && holds(*u.fit);
      }
    });
  };
  const auto yes = [](const KernelFit&) { return true; };
  switch (within) {
    case Within::own:
      return false;
    case Within::gemm:
      return any(gemm_[at(Dtype::fp8)], yes) || any(gemm_[at(Dtype::fp4)], yes);
    case Within::prefill_attention:
      return any(prefill_[at(Dtype::bf16)], rotates);
    case Within::decode_attention:
      return any(decode_, rotates);
    case Within::decode_merge:
      return any(decode_, yes);
    case Within::experts:
      return any(gated_experts_[at(Dtype::bf16)], yes);
  }
  return false;
}

std::optional<FittedPrice> CalibratedCost::elementwise(const PricedOp& op) const {
  if (op.drive != Drive::graph && op.drive != Drive::eager) return std::nullopt;
  if (absorbed(op.within)) return FittedPrice{Seconds(0), Basis::none};
  if (kernel_ <= Seconds(0)) return std::nullopt;
  const Seconds time = kernel_ * op.launches + shape<ElementwiseShape>(op).bytes / memory_;
  if (!(time > Seconds(0))) return FittedPrice{time, Basis::none};
  return FittedPrice{
      time, machine_ == MachineKin::own ? Basis::fitted : Basis::extrapolated, nullptr, {machine_}};
}

}  // namespace shardline
