#include <algorithm>

#include "calibrate/validate/accuracy.hpp"
#include "sim/base/error.hpp"

namespace shardline::cli {

namespace {

constexpr AccuracyGoal kGoals[] = {
    {"gemm", "GEMM", 0.03, 0.10},
    {"quantize", "quantisation", 0.05, 0.15},
    {"attention_prefill", "prefill attention", 0.035, 0.12},
    {"attention_decode", "decode attention", 0.035, 0.12},
    {"mla_prefill", "MLA prefill", 0.05, 0.18},
    {"mla_decode", "MLA decode", 0.05, 0.18},
    {"mla_bmm", "MLA absorb products", 0.05, 0.18},
    {"moe", "MoE experts", 0.08, 0.35},
    {"sparse_kernel", "sparse attention's kernels", 0.06, 0.20},
    {"sparse_decode", "sparse attention, decode", 0.06, 0.20},
    {"sparse_prefill", "sparse attention, prefill", 0.06, 0.20},
    {"linear_attention", "linear attention", 0.06, 0.20},
    {"mamba2", "Mamba-2's convolution", 0.06, 0.20},
    {"mhc", "hyper-connections", 0.06, 0.20},
    {"nccl", "NCCL collectives", 0.05, 0.18, true},
    {"allreduce", "engine's all-reduce", 0.06, 0.20, true},
    {"alltoall", "all-to-all", 0.06, 0.20, true},
};

constexpr const char* kNarrowGemms[] = {"fp8", "fp8_static", "fp8_block", "nvfp4"};
constexpr const char* kDsaKernels[] = {"index_logits", "topk_flat", "topk_top_last", "sparse_mla"};
constexpr const char* kDsaModels[] = {"deepseek-v3.2", "glm-5", "glm-5.2", "MiniMax-M3"};
constexpr AccuracyGoal kNarrower[] = {
    {"gemm", "GEMM of fp8, fp8_static, fp8_block, nvfp4", 0.025, 0.08, false, kNarrowGemms},
    {"sparse_kernel", "kernels of DSA", 0.04, 0.20, false, kDsaKernels},
    {"sparse_decode", "DSA and MSA, decode", 0.04, 0.20, false, kDsaModels},
    {"sparse_prefill", "DSA and MSA, prefill", 0.04, 0.20, false, kDsaModels},
};

struct AxisMeaning {
  const char* family;
  const char* axis;
  const char* meaning;
};
constexpr AxisMeaning kAxisMeanings[] = {
    {"gemm", "m", "rows (tokens)"},
    {"gemm", "n", "columns"},
    {"gemm", "k", "inner dimension"},
    {"quantize", "m", "rows (tokens)"},
    {"quantize", "k", "columns of the activation"},
    {"attention_prefill", "keys", "length of a causal prompt with as many keys per query"},
    {"attention_prefill", "tiles", "tiles of 128 query rows, over sequences and heads"},
    {"attention_prefill", "group", "query heads per KV head"},
    {"attention_prefill", "head_dim", "width of a head"},
    {"attention_decode", "ctas", "sequences times KV heads"},
    {"attention_decode", "tokens", "cached tokens that a sequence reads (at most its window)"},
    {"attention_decode", "group", "query heads per KV head (1 is another kernel)"},
    {"attention_decode", "head_dim", "width of a head"},
    {"mla_prefill", "keys", "length of a causal prompt with as many keys per query"},
    {"mla_prefill", "tiles", "tiles of 128 query rows, over sequences and heads"},
    {"mla_prefill", "heads", "heads of the rank"},
    {"mla_decode", "batch", "sequences"},
    {"mla_decode", "kv_len", "cached tokens per sequence"},
    {"mla_decode", "heads", "heads of the rank"},
    {"mla_bmm", "tokens", "tokens"},
    {"mla_bmm", "heads", "heads of the rank"},
    {"moe", "rows_per_expert", "token rows per expert on the busiest rank"},
    {"moe", "width", "width of an expert on the rank"},
    {"moe", "experts", "experts of the rank"},
    {"sparse_kernel", "rows", "query rows, over all requests"},
    {"sparse_kernel", "keys", "rows of the cache before the mean query"},
    {"sparse_kernel", "requests", "sequences"},
    {"sparse_decode", "requests", "sequences"},
    {"sparse_decode", "keys", "tokens per sequence"},
    {"sparse_decode", "heads", "query heads of the rank"},
    {"sparse_prefill", "rows", "new tokens, over all requests"},
    {"sparse_prefill", "keys", "tokens per sequence, cached and new"},
    {"sparse_prefill", "heads", "query heads of the rank"},
    {"linear_attention", "requests", "sequences"},
    {"linear_attention", "tokens", "new tokens per sequence"},
    {"linear_attention", "heads", "heads of values, of the rank"},
    {"mamba2", "requests", "sequences"},
    {"mamba2", "tokens", "new tokens per sequence"},
    {"mamba2", "channels", "channels of the convolution"},
    {"mhc", "tokens", "tokens"},
    {"mhc", "hidden", "width of a stream"},
    {"nccl", "gpus", "GPUs"},
    {"nccl", "message_bytes", "the larger of send and receive buffer"},
    {"allreduce", "gpus", "GPUs"},
    {"allreduce", "message_bytes", "buffer"},
    {"alltoall", "tokens_per_rank", "tokens of a rank"},
    {"alltoall", "bytes_per_token", "bytes that a rank makes of one token, over all its copies"},
    {"alltoall", "senders", "SMs or thread blocks that send (1: not limited)"},
    {"alltoall", "gpus", "GPUs"},
};

// How far the error is from the goal: above 1 it is missed.
double distance(const KernelFit& f) {
  const FitError& e = reported_error(f);
  const AccuracyGoal& g = accuracy_goal(f);
  return std::max(e.median / g.median, e.p90 / g.p90);
}

// Sums of a pool until finish().
struct Pool {
  PooledBand sum;
  std::size_t tried = 0;
  double covered = 0;

  void add(const HeldOutBand& b) {
    const auto rows = static_cast<double>(b.rows);
    ++sum.variants;
    sum.rows += b.rows;
    sum.band.low += rows * b.band.low;
    sum.band.high += rows * b.band.high;
    if (b.covered < 0) return;
    tried += b.rows;
    covered += rows * b.covered;
  }
  PooledBand finish() const {
    PooledBand out = sum;
    if (out.rows > 0) out.band.low /= static_cast<double>(out.rows);
    if (out.rows > 0) out.band.high /= static_cast<double>(out.rows);
    if (tried > 0) out.covered = covered / static_cast<double>(tried);
    return out;
  }
};

}  // namespace

FamilyIntervals pooled_intervals(const FamilyAccuracy& a) {
  Pool inside, family, beyond;
  for (const KernelFit* f : a.fits) {
    if (f->intervals.derived || f->intervals.inside.rows == 0) continue;
    inside.add(f->intervals.inside);
    if (f->intervals.family) family.add(*f->intervals.family);
    if (f->intervals.beyond) beyond.add(*f->intervals.beyond);
  }
  return {inside.finish(), family.finish(), beyond.finish()};
}

std::span<const AccuracyGoal> accuracy_goals() { return kGoals; }
std::span<const AccuracyGoal> narrower_goals() { return kNarrower; }

const AccuracyGoal& accuracy_goal(std::string_view family) {
  const auto* const found =
      std::find_if(std::begin(kGoals), std::end(kGoals), [&](const auto& g) { return family == g.family; });
  SL_CHECK(found != std::end(kGoals), "every family with a form has a goal");
  return *found;
}

const AccuracyGoal& accuracy_goal(const KernelFit& f) {
  for (const AccuracyGoal& g : kNarrower) {
    const auto is = [&](const char* type) { return f.words[0] == type; };
    if (f.form->family == std::string_view(g.family) && std::any_of(g.types.begin(), g.types.end(), is))
      return g;
  }
  return accuracy_goal(f.form->family);
}

std::string_view axis_meaning(const Form& form, std::size_t axis) {
  const std::string_view name = form.axes[axis].name;
  const auto* const found = std::find_if(
      std::begin(kAxisMeanings), std::end(kAxisMeanings),
      [&](const AxisMeaning& a) { return std::string_view(form.family) == a.family && name == a.axis; });
  SL_CHECK(found != std::end(kAxisMeanings), "every axis of a form is explained");
  return found->meaning;
}

const FitError& reported_error(const KernelFit& f) {
  const bool experts = f.form->family == std::string_view("moe");
  const auto& family = f.intervals.family;
  return experts && family && family->error.rows > 0 ? family->error : f.corrected;
}

Verdict verdict(const FitError& e, const AccuracyGoal& g) {
  if (e.rows == 0) return Verdict::unknown;
  return e.median <= g.median && e.p90 <= g.p90 ? Verdict::met : Verdict::missed;
}

std::vector<FamilyAccuracy> accuracy_by_family(const Calibration& c) {
  for (const KernelFit& f : c.fits) accuracy_goal(f.form->family);
  std::vector<FamilyAccuracy> out;
  for (const AccuracyGoal& goal : kGoals) {
    FamilyAccuracy a;
    a.goal = &goal;
    for (const KernelFit& f : c.fits) {
      if (f.form->family != std::string_view(goal.family)) continue;
      a.fits.push_back(&f);
      const Verdict v = verdict(reported_error(f), accuracy_goal(f));
      if (v == Verdict::unknown) continue;
      a.missed += v == Verdict::missed ? 1 : 0;
      const double far = distance(f);
      if (a.best == nullptr || far < distance(*a.best)) a.best = &f;
      if (a.worst == nullptr || far > distance(*a.worst)) a.worst = &f;
    }
    if (!a.fits.empty()) out.push_back(std::move(a));
  }
  return out;
}

}  // namespace shardline::cli
