#include "hardware/cost/price_interval.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "hardware/cost/calibrated_cost.hpp"
#include "hardware/cost/forms/forms.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr float kRangeRounding = 1e-3F;   // doublings: files hold six digits
constexpr double kFarGrowth = 0.5;        // per distance that was withheld, beyond the first
constexpr double kRareSlowTactic = 0.05;  // of rows: what a nominal 90 % band leaves out above
constexpr double kOutside = 1.5, kIndirect = 1.5, kAltered = 2;
// Of another machine, found by H200's rows priced by H100's fits and the reverse, of three frameworks'
// kernels, which disagree in work more than in moving bytes; most in short convolutions, of which H200's
// memory, 1.43 times as fast, makes 1.15 times as fast what the fit takes for bytes.
struct Borrowed {
  double factor, shift;
};
constexpr Borrowed kProducts{1.3, 0.05}, kExperts{1.3, 0.045}, kWork{1.3, 0.03}, kBytes{1, 0.02};
constexpr Borrowed kCaches{1.3, 0.005}, kSelected{1, 0.015}, kBlocks{1.3, 0.01}, kAlike{1, 0.005};
constexpr Borrowed kStates{1.3, 0.07}, kConvolutions{1, 0.09}, kConvolutionsOfStates{1.3, 0.23};
// Of a price all of which are times taken over from another processor, and of one all of which goes with the
// rates of another architecture: on each side. Found by rows of H100, A100 and GB200 priced by fits of each
// other.
constexpr double kFixedTimes = 0.4, kStrangersRates = 0.2;

ErrorBand times(const ErrorBand& b, double factor) { return {b.low * factor, b.high * factor}; }

ErrorBand borrowed(const ErrorBand& band, const Borrowed& by, MachineKin machine, double fixed) {
  if (machine == MachineKin::own) return band;
  const ErrorBand wide = band.widened(by.factor);
  double shift = by.shift;
  if (machine >= MachineKin::architecture) shift += kFixedTimes * fixed;
  if (machine == MachineKin::stranger) shift += kStrangersRates * (1 - fixed);
  return {wide.low - shift, wide.high + shift};
}

Borrowed borrowed_of(const KernelFit& f) {
  const std::string_view family = f.form->family;
  if (family == kLinearAttentionForm.family && f.words.size() > 1 && f.words[1].starts_with("causal_conv1d"))
    return kConvolutionsOfStates;
  constexpr std::pair<std::string_view, Borrowed> kOf[] = {
      {"gemm", kProducts},
      {"quantize", kBytes},
      {"attention_prefill", kWork},
      {"mla_prefill", kAlike},
      {"attention_decode", kCaches},
      {"mla_decode", kBytes},
      {"mla_bmm", kWork},
      {"moe", kExperts},
      {"nccl", kAlike},
      {"allreduce", kAlike},
      {"alltoall", kBytes},
      {"sparse_kernel", kSelected},
      {"linear_attention", kStates},
      {"mamba2", kConvolutions},
      {"mhc", kBlocks},
      {"sparse_decode", kBlocks},
      {"sparse_prefill", kSelected},
  };
  const auto* of =
      std::find_if(std::begin(kOf), std::end(kOf), [&](const auto& o) { return o.first == family; });
  SL_CHECK(of != std::end(kOf), "every form says what it is borrowed as");
  return of->second;
}

double per_kv_head(const auto& a) { return static_cast<double>(a.q_heads) / static_cast<double>(a.kv_heads); }

using Families = std::vector<std::vector<double>>;

bool among(const Families& all, const std::vector<double>& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// A rank has a part of the experts and of their width; how many a token goes to, an op does not say.
bool experts_among(const Families& all, const GroupedGemmShape& g) {
  return std::any_of(all.begin(), all.end(), [&](const std::vector<double>& f) {
    return f.size() == 4 && f[0] == static_cast<double>(g.hidden) &&
           std::fmod(f[1], static_cast<double>(g.inner)) == 0 &&
           std::fmod(f[3], static_cast<double>(g.held)) == 0;
  });
}

// Of a part of a block of sparse attention, which is one of the model with so many.
Count indexed_heads(const PricedOp& op) {
  const auto of = [](const auto& s) {
    if constexpr (requires { s.measured(); })
      return s.measured().q_heads;
    else
      return Count{0};
  };
  return std::visit(of, op.shape);
}

bool of_another_model(const PricedOp& op, const Families& measured) {
  switch (op.kind) {
    case OpKind::grouped_gemm:
      return !experts_among(measured, shape<GroupedGemmShape>(op));
    case OpKind::batched_gemm: {
      const BatchedGemmShape& g = shape<BatchedGemmShape>(op);
      return !among(measured, {static_cast<double>(g.matrices) / static_cast<double>(g.parts)});
    }
    case OpKind::attend_prefill: {
      const AttendPrefillShape& a = shape<AttendPrefillShape>(op);
      if (a.family == AttentionFamily::mla) return !among(measured, {static_cast<double>(a.q_heads)});
      return !among(measured, {static_cast<double>(a.qk_dim), per_kv_head(a)});
    }
    case OpKind::attend_decode: {
      const AttendDecodeShape& a = shape<AttendDecodeShape>(op);
      if (a.cache == CacheRows::latent) return !among(measured, {static_cast<double>(a.q_heads)});
      return !among(measured, {static_cast<double>(a.qk_dim), per_kv_head(a)});
    }
    case OpKind::index_logits:
    case OpKind::top_k:
    case OpKind::attend_sparse:
    case OpKind::module_rest:
      return !among(measured, {static_cast<double>(indexed_heads(op))});
    case OpKind::mix_streams:
      return !among(measured, {static_cast<double>(shape<MixShape>(op).hidden)});
    case OpKind::convolve:
    case OpKind::recur: {
      const RecurrentShape& s = shape<RecurrentShape>(op);
      return !among(measured, {static_cast<double>(s.key_heads), static_cast<double>(s.value_heads)});
    }
    default:
      SL_CHECK(false, "an op that a fit with model families prices says of which model it is");
  }
}

}  // namespace

bool of_measured_model(const KernelFit& f, const PricedOp& op) {
  return f.intervals.family && !of_another_model(op, f.intervals.family->families);
}

FormContext faster(FormContext c, double times) {
  for (double* rate : {&c.flops, &c.bandwidth, &c.exponentials, &c.link, &c.network}) *rate *= times;
  return c;
}

double of_fixed_times(double time, double on_faster) {
  if (!(time > 0)) return 0;
  return std::clamp(1 - (1 - on_faster / time) * kFaster / (kFaster - 1), 0.0, 1.0);
}

FitDistance distance_of(const KernelFit& f, MachineKin machine, bool outside,
                        std::span<const double> coordinates) {
  FitDistance d;
  d.machine = machine;
  d.outside = outside;
  const std::size_t axis = f.intervals.beyond ? f.intervals.beyond->axis : f.far_axis;
  if (axis < coordinates.size()) d.beyond = static_cast<float>(coordinates[axis] - f.range_high[axis]);
  return d;
}

ErrorBand band_of_price(const KernelFit& f, const FitDistance& r) {
  const FitIntervals& known = f.intervals;
  ErrorBand near = known.inside.band;
  if (r.other_model && known.family) near = near.hull(known.family->band);
  // Whether a shape gets a slow kernel is up to the library's tuner: where that is not rare it may happen
  // here.
  if (known.slow && known.slow->share() > kRareSlowTactic)
    near.high = std::max(near.high, std::log(known.slow->median));
  const bool far = r.beyond > kRangeRounding && known.beyond;
  // Where nothing was withheld, each doubling beyond the rows counts as the first.
  const double outside = kOutside * std::max(1.0, static_cast<double>(r.beyond));
  const double factor =
      (r.outside && !far ? outside : 1) * (r.indirect ? kIndirect : 1) * (r.altered ? kAltered : 1);
  ErrorBand out = near;
  if (far) {
    const double distances = static_cast<double>(r.beyond) / (known.beyond->to - known.beyond->from);
    out = out.hull(times(known.beyond->band, 1 + kFarGrowth * std::max(0.0, distances - 1)));
  }
  // What is not the measured kernel widens by as much far from the rows as among them: how wide the band of
  // the distance is, which may be one-sided, says nothing of it.
  const ErrorBand wide = near.widened(factor);
  out = {out.low - (near.low - wide.low), out.high + (wide.high - near.high)};
  return borrowed(out, borrowed_of(f), r.machine, static_cast<double>(r.fixed));
}

PriceInterval CalibratedCost::interval(const PricedOp& op, const FittedPrice& p) {
  if (!p.fit) {
    const auto fixed = static_cast<double>(p.distance.fixed);
    return {borrowed(kElementwiseBand, kWork, p.distance.machine, fixed), ErrorSource::elementwise, nullptr};
  }
  FitDistance distance = p.distance;
  const auto& family = p.fit->intervals.family;
  distance.other_model = family && of_another_model(op, family->families);
  return {band_of_price(*p.fit, distance), ErrorSource::fit, p.fit};
}

}  // namespace shardline
