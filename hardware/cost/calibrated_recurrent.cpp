// Prices of layers that keep a state (the delta rule, Mamba-2): the short convolution, the scan of prompts,
// the update of states by decoding requests. hardware/README.md [H76].
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "hardware/cost/calibrated_cost.hpp"

namespace shardline {

namespace {

constexpr std::string_view kPrefill = "prefill", kDecode = "decode", kVerify = "verify";
constexpr Count kMeasuredTaps = 4, kMeasuredBytes = 4;  // of all rows [H69]: taps, and a float32 state

bool convolves(const KernelFit& f) { return f.words[1].starts_with("causal_conv1d"); }

// The convolution and the state in one, beside which no convolution may be counted: Kimi-K3's (vllm
// fused_kda_decode; sgl-project/sglang kernels/ops/kimi_k3/kda_decode_mtp.py, fused_kda_decode_mtp_dspark,
// whose arguments are the rows before the convolution, its weights and its kept rows).
bool does_both(const KernelFit& f) { return f.words[1].starts_with("fused_kda_decode"); }

// Engines have kernels of their own for Kimi Delta Attention: for its decay by channel, and for its queries,
// keys and values, which it convolves one by one. Of drafts its rows alone were measured, SGLang's of the
// kernel that both rules run (fla/fused_sigmoid_gating_recurrent.py, is_kda).
bool of_kimi(const KernelFit& f) {
  return f.words[0] == kVerify || f.words[1].find("kda") != std::string::npos ||
         f.words[1].ends_with("_qkv3");
}

// Channels as Kimi's rows have them, whose queries, keys and values are as wide as each other.
std::array<double, 6> as_kimi(double requests, double tokens, double channels) {
  constexpr double kParts = 3, kWidth = 128;
  const double heads = channels / (kParts * kWidth);
  return {requests, tokens, heads, heads, kWidth, 0};
}

}  // namespace

// By the framework's list; where none of its kernels was measured with this decay, one of the other; where
// none was measured with drafts, those of one token.
CalibratedCost::RecurrentUse& CalibratedCost::recurrent_use(bool convolution, StateDecay decay,
                                                            std::string_view phase) {
  for (RecurrentUse& u : recurrent_) {
    if (u.convolves == convolution && u.decay == decay && u.phase == phase) return u;
  }
  RecurrentUse out{decay, convolution, phase, false, false, {}};
  // Of Mamba-2 the convolution alone was measured; its state is priced as gated DeltaNet's of as many bytes.
  const bool added = decay == StateDecay::added, per_channel = decay == StateDecay::per_channel;
  const auto find = [&](std::string_view measured) {
    if (added && convolution) {
      out.all = uses("mamba2", {measured, "*"}, [](const KernelFit&) { return true; });
      if (!out.all.empty()) return;
    }
    for (const bool own : {true, false}) {
      const auto is = [&](const KernelFit& f) {
        return shardline::convolves(f) == convolution && !does_both(f) && (of_kimi(f) == per_channel) == own;
      };
      out.all = uses("linear_attention", {measured, "*"}, is);
      out.other_rule = !own || added;
      if (!out.all.empty()) return;
    }
  };
  find(phase);
  out.drafts = phase == kVerify && !out.all.empty();
  if (phase == kVerify && out.all.empty()) {
    find(kDecode);
    out.other_rule = true;
  }
  return recurrent_.emplace_back(std::move(out));
}

// Of several kernels of one rule the first that was measured at the shape. Requests that each bring as many
// tokens.
std::optional<FittedPrice> CalibratedCost::recurrent_alike(const PricedOp& op, double requests,
                                                           double tokens) {
  const RecurrentShape& s = shape<RecurrentShape>(op);
  const bool convolution = op.kind == OpKind::convolve;
  RecurrentUse& found = recurrent_use(convolution, s.decay,
                                      s.prompts      ? kPrefill
                                      : s.states > 1 ? kVerify
                                                     : kDecode);
  if (found.all.empty()) return std::nullopt;
  const double dim = std::sqrt(static_cast<double>(s.key_dim) * static_cast<double>(s.value_dim));
  const auto groups = static_cast<double>(s.key_heads), heads = static_cast<double>(s.value_heads);
  std::array<double, 6> x{requests, tokens, groups, heads, dim, 0};
  const bool own_mamba = found.all.front().fit->form->family == std::string_view("mamba2");
  if (convolution && found.drafts && found.other_rule)
    x = as_kimi(requests, tokens, static_cast<double>(s.channels()));
  if (own_mamba)
    x = {requests, tokens, heads, static_cast<double>(s.value_dim), static_cast<double>(s.key_dim), groups};
  const std::span<const double> numbers = std::span<const double>(x).first(own_mamba ? 6 : 5);
  Use* use = nullptr;
  double at[kMostAxes];
  std::span<const double> axes;
  bool outside = true;
  const auto take = [&](Use& u) {
    use = &u;
    u.fit->form->coordinates(numbers, u.context, at);
    axes = std::span<const double>(at).first(u.fit->form->axes.size());
    outside = u.fit->outside(axes);
  };
  for (Use& u : found.all) {
    if (u.rule == found.all.front().rule && outside) take(u);
  }
  if (outside) take(found.all.front());
  const double seconds =
      use->fit->form->seconds(numbers, use->context, use->parameters) * std::exp(use->correction.at(axes));
  FittedPrice p = at_place(Seconds(std::max(seconds, least(op, use->context))), *use, outside, axes);
  if (found.other_rule || (!own_mamba && s.key_dim != s.value_dim) || s.taps != kMeasuredTaps ||
      (!convolution && s.number_bytes != kMeasuredBytes))
    p.alter();
  return p;
}

// A kernel ends with its longest prompt, whose chain of chunks no other shares.
std::optional<FittedPrice> CalibratedCost::recurrent(const PricedOp& op) {
  const RecurrentShape& s = shape<RecurrentShape>(op);
  if (s.rows == 0) return FittedPrice{Seconds(0), Basis::none};
  const auto rows = static_cast<double>(s.rows), requests = static_cast<double>(s.requests);
  const std::optional<FittedPrice> all = recurrent_alike(op, requests, rows / requests);
  if (!all || s.longest * s.requests <= s.rows) return all;
  const std::optional<FittedPrice> last = recurrent_alike(op, 1, static_cast<double>(s.longest));
  return last && last->time > all->time ? last : all;
}

}  // namespace shardline
