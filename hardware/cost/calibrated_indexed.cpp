// Prices of sparse attention (DSA, MSA, CSA, HCA) by the parts of the block that was measured whole, and of
// the hyper-connections around it. hardware/README.md [H73], [H79].
#include <algorithm>
#include <array>
#include <cmath>

#include "hardware/cost/calibrated_cost.hpp"
#include "hardware/cost/forms/sparse_module.hpp"

namespace shardline {

namespace {

// As the tables name models and layers, the nearest first: of an index of so many heads, or of a layer that
// takes the choice of an earlier one.
struct MeasuredBlock {
  const char *model, *layer;
  bool own;  // it is the layer, not another kind or model in its place
};
// Of DeepSeek-V4, of the model as wide first. A layer with a window alone is one of HCA without its rows.
std::vector<MeasuredBlock> compressed_blocks(const IndexedBlock& b) {
  constexpr double kPro = 7168, kFlash = 4096;
  constexpr Count kSparse = 4, kHeavy = 128;
  const bool sparse = b.index_heads > 0;
  const char* const layer = sparse ? "csa" : "hca";
  const auto hidden = static_cast<double>(b.hidden);
  const bool ratio = b.ratio == (sparse ? kSparse : kHeavy), wide = hidden * hidden > kPro * kFlash;
  const MeasuredBlock pro{"deepseek-v4-pro", layer, ratio && hidden == kPro},
      flash{"deepseek-v4-flash", layer, ratio && hidden == kFlash};
  return wide ? std::vector{pro, flash} : std::vector{flash, pro};
}

std::vector<MeasuredBlock> measured_blocks(const IndexedBlock& b) {
  if (b.ratio > 0) return compressed_blocks(b);
  constexpr Count kOfDeepSeek = 64, kOfGlm = 32, kOfMiniMax = 128;
  if (b.block > 1) return {{"MiniMax-M3", "msa", b.block == kOfMiniMax}};
  const bool glm = b.index_heads == kOfGlm, deepseek = b.index_heads == kOfDeepSeek;
  std::vector<MeasuredBlock> out;
  if (b.shared) out.push_back({"glm-5.2", "skip_indexer", glm});
  if (!deepseek) {
    out.push_back({"glm-5.2", "indexer", glm && !b.shared});
    out.push_back({"glm-5", "indexer", glm && !b.shared});
  }
  out.push_back({"deepseek-v3.2", "indexer", deepseek && !b.shared});
  if (deepseek) out.push_back({"glm-5", "indexer", false});
  return out;
}

// As tables name the type of a block's products; others run a kernel like that of the nearest.
std::array<std::string_view, 3> products_in(Dtype type) {
  switch (arithmetic_of(type)) {
    case Dtype::bf16:
      return {"bf16", "fp8_block", "nvfp4"};
    case Dtype::fp4:
      return {"nvfp4", "fp8_block", "bf16"};
    default:
      return {"fp8_block", "bf16", "nvfp4"};
  }
}
Dtype type_named(std::string_view word) {
  return word == "bf16" ? Dtype::bf16 : word == "nvfp4" ? Dtype::fp4 : Dtype::fp8_block;
}

bool alike(IndexedBlock a, IndexedBlock b) {
  a.q_heads = b.q_heads = 0;
  return a == b;
}

struct Rows {
  double rows = 0, requests = 0, pairs = 0;
};

// [H71] and [H72] are of requests of one length: those that have as many rows and pairs.
std::array<double, 4> numbers_of(const IndexedBlock& b, const Rows& r) {
  const auto heads = static_cast<double>(b.q_heads);
  if (!b.prompts) return {r.rows, std::max(1.0, r.pairs / r.rows), heads, 0};
  const double fresh = r.rows / r.requests;
  return {r.requests, fresh, std::max(0.0, r.pairs / r.rows - (fresh + 1) / 2), heads};
}
std::span<const double> used(const IndexedBlock& b, const std::array<double, 4>& x) {
  return std::span(x).first(b.prompts ? 4 : 3);
}

template <class F>
auto of_shape(const PricedOp& op, F f) {
  switch (op.kind) {
    case OpKind::index_logits:
      return f(shape<IndexLogitsShape>(op));
    case OpKind::top_k:
      return f(shape<TopKShape>(op));
    case OpKind::attend_sparse:
      return f(shape<AttendSparseShape>(op));
    default:
      return f(shape<ModuleRestShape>(op));
  }
}

/// Tokens that a row of the cache stands for.
double tokens_of_row(Count ratio) { return static_cast<double>(std::max<Count>(1, ratio)); }

/// Scores that a row has of each key, or block.
double choices(const TopKShape& s) { return s.block > 1 ? static_cast<double>(s.index_heads) : 1; }

Rows rows_of(const IndexLogitsShape& s) {
  return {static_cast<double>(s.q_rows), static_cast<double>(s.requests),
          static_cast<double>(s.pairs) * tokens_of_row(s.ratio)};
}
// Of rows that choose; those that do not are over before them. The measured choice among blocks is that of
// all the rank's heads, by tokens.
Rows rows_of(const TopKShape& s) {
  const auto choosing = static_cast<double>(s.choosing);
  const double tokens =
      static_cast<double>(s.scores) * static_cast<double>(s.block) * tokens_of_row(s.ratio) / choices(s);
  return {choosing, std::min(static_cast<double>(s.requests), choosing), tokens};
}
Rows rows_of(const AttendSparseShape& s) {
  return {static_cast<double>(s.q_rows), static_cast<double>(s.requests), static_cast<double>(s.candidates)};
}
Rows rows_of(const ModuleRestShape& s) {
  return {static_cast<double>(s.rows), static_cast<double>(s.requests), static_cast<double>(s.candidates)};
}

double part_of(const IndexLogitsShape&, const SparseParts& p) { return p.index; }
double part_of(const TopKShape&, const SparseParts& p) { return p.top_k; }
double part_of(const AttendSparseShape&, const SparseParts& p) { return p.attend; }
double part_of(const ModuleRestShape&, const SparseParts& p) { return p.rest + p.projections; }

}  // namespace

// Those of the question's own framework first, by its list; of other frameworks the first that was measured.
CalibratedCost::IndexedUse CalibratedCost::indexed_use(const IndexedBlock& block, bool fp8_cache) const {
  IndexedUse out{block, fp8_cache, false, {}};
  const std::string& framework = system_->kernels.framework;
  for (const bool own : {true, false}) {
    for (const bool same_cache : {true, false}) {
      for (const MeasuredBlock& m : measured_blocks(block)) {
        for (const std::string_view type : products_in(block.projections)) {
          const KernelFit* first = nullptr;
          const auto is = [&](const KernelFit& f) {
            if ((f.framework.empty() || f.framework == framework) != own) return false;
            if (first == nullptr) first = &f;
            return own || first == &f;
          };
          out.all = uses(block.prompts ? "sparse_prefill" : "sparse_decode",
                         {m.model, m.layer, fp8_cache == same_cache ? "fp8" : "bf16", type, "*"}, is);
          out.other_layer =
              !same_cache || !m.own || kernel_type(block.projections) != kernel_type(type_named(type));
          if (!out.all.empty()) return out;
        }
      }
    }
  }
  return out;
}

namespace {

// Doublings between a shape and the ranges that a kernel was measured in; 0 inside of all.
double beyond_ranges(const KernelFit& fit, std::span<const double> at) {
  double out = 0;
  for (std::size_t axis = 0; axis < at.size(); ++axis)
    out += std::max({0.0, fit.range_low[axis] - at[axis], at[axis] - fit.range_high[axis]});
  return out;
}

}  // namespace

// Of several kernels of one rule the first that was measured at the shape, else the first whose ranges are
// nearest: kernels of few and of many heads have ranges side by side, and a longer cache changes neither.
CalibratedCost::Use* CalibratedCost::indexed_use(const IndexedBlock& block, bool fp8_cache,
                                                 std::span<const double> x, bool* other) {
  auto found = std::find_if(indexed_.begin(), indexed_.end(), [&](const IndexedUse& u) {
    return alike(u.block, block) && u.fp8_cache == fp8_cache;
  });
  if (found == indexed_.end()) {
    indexed_.push_back(indexed_use(block, fp8_cache));
    found = std::prev(indexed_.end());
  }
  *other = found->other_layer;
  double at[kMostAxes];
  Use* nearest = nullptr;
  double least = HUGE_VAL;
  for (Use& u : found->all) {
    u.fit->form->coordinates(x, u.context, at);
    const auto place = std::span<const double>(at).first(u.fit->form->axes.size());
    if (!u.fit->outside(place)) return &u;
    const double beyond = beyond_ranges(*u.fit, place);
    if (beyond < least) {
      least = beyond;
      nearest = &u;
    }
  }
  return nearest;
}

// The products of the block by fits of their own, in the types that it was measured in.
double CalibratedCost::products_of(const ModuleRestShape& s, const Use& u) {
  if (s.ratio > 0) return compressed_products_of(s, u);
  PricedOp op;
  op.dtype = type_named(u.fit->words[3]);
  op.math = arithmetic_of(op.dtype);
  double sum = 0;
  const auto add = [&](OpKind kind, const Shape& shape) {
    op.kind = kind;
    op.shape = shape;
    const std::optional<FittedPrice> p = kind == OpKind::gemm ? gemm(op) : batched_gemm(op);
    if (p) sum += p->time.value;
  };
  const auto product = [&](Count k, Count n) { add(OpKind::gemm, GemmShape{s.rows, k, n}); };
  if (s.block > 1) {  // keys, values and an index head of each KV head beside the queries, and one index key
    const Count kv = s.index_heads * (s.nope + s.v_dim), index = (s.index_heads + 1) * s.index_dim;
    product(s.hidden, s.q_heads * s.nope + kv + index);
    product(s.q_heads * s.v_dim, s.hidden);
    return sum;
  }
  product(s.hidden, s.q_rank + s.rank + s.rope);
  product(s.q_rank, s.q_heads * (s.nope + s.rope));
  if (!s.shared) {
    product(s.q_rank, s.index_heads * s.index_dim);
    product(s.hidden, s.index_dim + s.index_heads);
  }
  product(s.q_heads * s.v_dim, s.hidden);
  add(OpKind::batched_gemm,
      BatchedGemmShape{LatentProduct::absorb_query, s.rows, s.nope, s.rank, s.q_heads, 1});
  add(OpKind::batched_gemm,
      BatchedGemmShape{LatentProduct::expand_values, s.rows, s.rank, s.v_dim, s.q_heads, 1});
  return sum;
}

// Compressors are in BF16 whatever the block's type. Of a layer with a window alone those of the block that
// it was taken for.
double CalibratedCost::compressed_products_of(const ModuleRestShape& s, const Use& u) {
  double sum = 0;
  const auto product = [&](Dtype type, Count k, Count n) {
    PricedOp op;
    op.dtype = type;
    op.math = arithmetic_of(type);
    op.shape = GemmShape{s.rows, k, n};
    if (const std::optional<FittedPrice> p = gemm(op)) sum += p->time.value;
  };
  const Dtype type = type_named(u.fit->words[3]);
  const bool index = s.index_heads > 0;
  product(type, s.hidden, s.q_rank + s.v_dim);
  product(type, s.q_rank, s.q_heads * s.v_dim);
  product(Dtype::bf16, s.hidden, 2 * (index ? 2 : 1) * (s.v_dim + (index ? s.index_dim : 0)));
  if (index) {
    product(type, s.q_rank, s.index_heads * s.index_dim);
    product(type, s.hidden, s.index_heads);
  }
  const Count groups = std::max<Count>(1, s.groups);
  product(type, s.q_heads * s.v_dim / groups, groups * s.rank);
  product(type, groups * s.rank, s.hidden);
  return sum;
}

// [H79] One of the two sites of a layer, of which tables have the time of both.
std::optional<FittedPrice> CalibratedCost::mixed(const PricedOp& op) {
  const MixShape& m = shape<MixShape>(op);
  if (m.rows == 0) return FittedPrice{Seconds(0), Basis::none};
  std::vector<Use>& all = mixed_[m.before ? 1 : 0];
  if (all.empty()) all = uses("mhc", {m.before ? "pre" : "post", "*"});
  if (all.empty()) return std::nullopt;
  const std::array<double, 4> x{static_cast<double>(m.rows), static_cast<double>(m.hidden),
                                static_cast<double>(m.streams), 1};
  double at[kMostAxes];
  const Use* use = nullptr;
  bool outside = true;
  for (const Use& u : all) {
    if (u.rule != all.front().rule || !outside) continue;
    use = &u;
    u.fit->form->coordinates(x, u.context, at);
    outside = u.fit->outside(std::span(at).first(u.fit->form->axes.size()));
  }
  if (outside) {
    use = &all.front();
    use->fit->form->coordinates(x, use->context, at);
  }
  const std::span<const double> axes = std::span<const double>(at).first(use->fit->form->axes.size());
  const double seconds =
      use->fit->form->seconds(x, use->context, use->parameters) * std::exp(use->correction.at(axes));
  constexpr Count kMeasuredStreams = 4;
  FittedPrice p = at_place(Seconds(std::max(seconds, least(op, use->context))), *use, outside, axes);
  if (m.streams != kMeasuredStreams) p.alter();
  return p;
}

// What the arithmetic of scores, or of attention, takes at the peak of the narrowest type that a kernel may
// compute in, beyond what the block's other parts have: how a fit divides a block among them may be wrong,
// and far beyond its table their sum, which has to hold it. Floors have the bytes alone.
double CalibratedCost::arithmetic_beside(const PricedOp& op, double others) const {
  return pricing_ == Pricing::floor ? 0 : flops(op).value / narrow_peak() - others;
}

double CalibratedCost::narrow_peak() const {
  const auto peak = [&](Dtype type) { return system_->device.peak[at(type)].value * rates_; };
  return std::max(peak(Dtype::bf16), peak(Dtype::fp8));
}

std::optional<FittedPrice> CalibratedCost::indexed_alike(const PricedOp& op) {
  const IndexedBlock block = of_shape(op, [](const auto& s) { return s.measured(); });
  const Rows r = of_shape(op, [](const auto& s) { return rows_of(s); });
  if (!(r.rows > 0 && r.pairs > 0)) return FittedPrice{Seconds(0), Basis::none};
  const std::array<double, 4> numbers = numbers_of(block, r);
  const std::span<const double> x = used(block, numbers);
  bool other = false;
  Use* const u = indexed_use(block, arithmetic_of(op.dtype) == Dtype::fp8, x, &other);
  if (u == nullptr) return std::nullopt;
  SparseShard shard;
  if (op.kind == OpKind::attend_sparse)
    shard.attended = static_cast<double>(shape<AttendSparseShape>(op).pairs) / r.rows;
  const SparseParts parts = block.prompts ? sparse_prefill_parts(x, u->context, u->parameters, shard)
                                          : sparse_decode_parts(x, u->context, u->parameters, shard);
  double where[kMostAxes];
  u->fit->form->coordinates(x, u->context, where);
  const std::span<const double> axes = std::span(where).first(u->fit->form->axes.size());
  const double correction = std::exp(u->correction.at(axes));
  double part = of_shape(op, [&](const auto& s) { return part_of(s, parts); }) * correction;
  if (op.kind == OpKind::index_logits) part *= part_of_passes(shape<IndexLogitsShape>(op));
  double seconds = part;
  if (op.kind == OpKind::index_logits && block.ratio > 0 && !block.prompts)
    seconds = pricing_ == Pricing::floor ? 0 : decoding_scores(*u, shape<IndexLogitsShape>(op), x);
  if (op.kind == OpKind::attend_sparse && block.ratio > 0 && !block.prompts)
    seconds = longer_rows(*u, shard.attended, x).value_or(part);
  // Never less than a launch, which is all that a floor counts: what products take beside it need not rise.
  if (op.kind == OpKind::module_rest)
    seconds = pricing_ == Pricing::floor
                  ? kernel_.value
                  : std::max(kernel_.value, seconds - products_of(shape<ModuleRestShape>(op), *u));
  else
    seconds =
        std::max({seconds, kv_bytes(op).value / (u->context.bandwidth), longer_prompts(*u, op, x),
                  arithmetic_beside(op, (parts.index + parts.top_k + parts.attend) * correction - part)});
  FittedPrice p = at_place(Seconds(seconds), *u, u->fit->outside(axes), axes);
  // The block was measured whole: its parts follow from how they grow.
  p.basis = worse(p.basis, Basis::fitted);
  p.distance.indirect = true;
  if (other || (op.kind == OpKind::attend_sparse && shape<AttendSparseShape>(op).spread)) p.alter();
  return p;
}

// A kernel ends with its longest request, whose keys no other shares out.
std::optional<FittedPrice> CalibratedCost::indexed(const PricedOp& op) {
  const std::optional<FittedPrice> all = indexed_alike(op);
  PricedOp alone = op;
  if (op.kind == OpKind::index_logits) {
    auto& s = std::get<IndexLogitsShape>(alone.shape);
    if (s.prompts || s.longest * s.q_rows <= s.pairs) return all;
    s.q_rows = s.requests = 1;
    s.pairs = s.keys = s.longest;
  } else if (op.kind == OpKind::top_k) {
    auto& s = std::get<TopKShape>(alone.shape);
    const Count each = s.block > 1 ? s.index_heads : 1;
    if (s.prompts || s.longest * s.choosing * each <= s.scores) return all;
    s.rows = s.choosing = s.requests = 1;
    s.scores = s.longest * each;
  } else {
    return all;
  }
  const std::optional<FittedPrice> last = indexed_alike(alone);
  return all && last && last->time > all->time ? last : all;
}

}  // namespace shardline
