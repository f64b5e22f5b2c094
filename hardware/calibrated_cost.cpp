#include "hardware/calibrated_cost.hpp"

#include <algorithm>
#include <cmath>

#include "hardware/forms/forms.hpp"
#include "hardware/forms/moe.hpp"

namespace shardline {

namespace {

constexpr std::size_t kDtypes = 4;
constexpr double kShortestMessage = 256;  // bytes: shorter ones were not measured and cost as much
constexpr double kColdCache = 2;          // MB: a layer's cache is not in L2 when its turn comes
constexpr double kExchangeSms = 24;       // that an engine sets apart for dispatch and combine

std::size_t at(Dtype t) { return static_cast<std::size_t>(t); }

// With the scales of its blocks, as the fits count FP4.
double stored_bytes(Dtype t) { return t == Dtype::fp4 ? 0.5 + 1.0 / 16 : bytes_per_element(t); }

// No kernel is faster than the peaks of the device, whatever a form says far from its measurements, or with
// operands that stayed in L2.
double least(const Op& op, const FormContext& c) {
  const Bytes read = op.kind == OpKind::gemm ? weight_bytes(op) : kv_bytes(op);
  // Attention over a narrow cache may compute at twice the rate that its form counts with.
  const double faster = op.kind == OpKind::attend && op.dtype != Dtype::bf16 ? 2 : 1;
  return std::max(flops(op).value / (faster * c.flops), read.value / c.bandwidth);
}

bool rotates(const KernelFit& f) { return f.words[2].starts_with("torch_flow"); }

// Axes of a form that grow with the tokens of an op.
std::vector<std::size_t> growing_axes(std::string_view family) {
  if (family == "nccl" || family == "allreduce") return {1};
  if (family == "alltoall") return {0, 1};
  return {0};
}

// Each knot becomes the least of those from it on along the axes: what lies between two knots is then below
// all that follows, too.
void lower(Correction& c, const std::vector<std::size_t>& axes) {
  if (c.empty()) return;
  for (const std::size_t axis : axes) {
    std::size_t stride = 1;
    for (std::size_t a = axis + 1; a < c.knots.size(); ++a) stride *= static_cast<std::size_t>(c.knots[a]);
    const auto knots = static_cast<std::size_t>(c.knots[axis]);
    for (std::size_t i = c.values.size(); i-- > 0;) {
      if (i / stride % knots + 1 < knots) c.values[i] = std::min(c.values[i], c.values[i + stride]);
    }
  }
}

Basis worse(Basis a, Basis b) { return std::max(a, b); }

}  // namespace

std::string_view to_string(Basis b) {
  constexpr std::array<std::string_view, kBases> names{"none", "measured", "fitted", "extrapolated",
                                                       "assumed"};
  return names[static_cast<std::size_t>(b)];
}

// Of several kernels the one with most measured shapes; '*' stands for any word.
CalibratedCost::Use CalibratedCost::use(const char* family,
                                        std::initializer_list<std::string_view> words) const {
  Use best;
  for (const KernelFit& f : system_->calibration.fits) {
    if (f.form->family != std::string_view(family)) continue;
    bool same = true;
    std::size_t i = 0;
    for (const std::string_view w : words) {
      same = same && (w == "*" || f.words[i] == w);
      ++i;
    }
    if (!same || (best && best.fit->alone.rows >= f.alone.rows)) continue;
    Use u;
    if (!f.form->context(f.words, *system_, u.context)) continue;
    u.fit = &f;
    u.parameters = f.parameters;
    u.correction = f.correction;
    if (pricing_ == Pricing::floor) lower(u.correction, growing_axes(family));
    for (std::size_t p = 0; p < f.parameters.size(); ++p) {
      const std::string_view name = f.form->parameters[p].name;
      if (name == "l2") u.parameters[p] = std::min(u.parameters[p], kColdCache);
      // Padding falls where tokens fill it: all else rises with them.
      if (name == "pad" && pricing_ == Pricing::floor) u.parameters[p] = 0;
    }
    best = std::move(u);
  }
  return best;
}

CalibratedCost::Use CalibratedCost::narrowed(const Use& from, Dtype stored, Dtype known) const {
  Use u = from;
  if (u && stored != known) {
    u.context.b_bytes = stored_bytes(stored);
    u.altered = true;
  }
  return u;
}

// Routing with equal loads tells most about the kernel; how unequal they are, the schedule says.
void CalibratedCost::add_experts(Dtype math) {
  std::vector<std::string_view> types{"nvfp4"};
  if (math == Dtype::fp8) types = {"fp8", "fp8_block"};
  if (math == Dtype::bf16) types = {"bf16"};
  for (const std::string_view type : types) {
    for (const KernelFit& f : system_->calibration.fits) {
      if (f.form->family != std::string_view("moe") || f.words[1] != type) continue;
      const bool plain = f.words[0].find("nongated") != std::string::npos;
      std::vector<Use>& all = (plain ? plain_experts_ : gated_experts_)[at(math)];
      const auto same = [&](const Use& u) {
        return u.fit->words[0] == f.words[0] && u.fit->words[1] == f.words[1];
      };
      if (std::any_of(all.begin(), all.end(), same)) continue;
      Use u = use("moe", {f.words[0], type, "balanced"});
      if (!u) u = use("moe", {f.words[0], type, "*"});
      if (u) all.push_back(std::move(u));
    }
  }
}

CalibratedCost::CalibratedCost(const System& system, Pricing pricing)
    : system_(&system), pricing_(pricing), borrowed_(!system.calibration.like.empty()) {
  constexpr Dtype kKinds[] = {Dtype::fp4, Dtype::fp8, Dtype::bf16};
  for (const Dtype math : kKinds) {
    const bool bf16 = math == Dtype::bf16;
    Use plain = bf16 ? use("gemm", {"bf16", "*"}) : math == Dtype::fp4 ? use("gemm", {"nvfp4", "*"}) : Use{};
    if (math == Dtype::fp8) plain = use("gemm", {"fp8", "*"});
    if (math == Dtype::fp8 && !plain) plain = use("gemm", {"fp8_block", "*"});
    add_experts(math);
    for (const Dtype stored : kKinds) {
      gemm_[at(math)][at(stored)] = narrowed(plain, stored, math);
    }
    // Kernels whose cache is FP8 compute in it.
    for (const Dtype stored : kKinds) {
      const char* cache = stored == Dtype::bf16 ? "bf16" : "fp8";
      const Dtype known = stored == Dtype::bf16 ? Dtype::bf16 : Dtype::fp8;
      Use p = use("attention_prefill", {bf16 ? "bf16" : "fp8", cache, "*"});
      if (!p) p = use("attention_prefill", {"*", cache, "*"});
      const Use m = use("mla_prefill", {"kernel", "*", cache, "*"});
      prefill_[at(math)][at(stored)] = narrowed(p, stored, known);
      mla_prefill_[at(math)][at(stored)] = narrowed(m, stored, known);
    }
  }
  for (const Dtype stored : kKinds) {
    const char* cache = stored == Dtype::bf16 ? "bf16" : "fp8";
    const Dtype known = stored == Dtype::bf16 ? Dtype::bf16 : Dtype::fp8;
    decode_[at(stored)] = narrowed(use("attention_decode", {"*", cache, "*"}), stored, known);
    mla_decode_[at(stored)] = narrowed(use("mla_decode", {"kernel", "*", cache, "*"}), stored, known);
    absorb_[at(stored)] = narrowed(use("mla_bmm", {"mla_gen_pre", cache}), stored, known);
    expand_[at(stored)] = narrowed(use("mla_bmm", {"mla_gen_post", cache}), stored, known);
  }
  all_reduce_ = use("nccl", {"all_reduce"});
  engine_all_reduce_ = use("allreduce", {"*", "*"});
  all_gather_ = use("nccl", {"all_gather"});
  reduce_scatter_ = use("nccl", {"reduce_scatter"});
  all_to_all_ = use("nccl", {"alltoall"});
  send_recv_ = use("nccl", {"sendrecv"});
  for (const char* name : {"trtllm_nvlink_two_sided", "deepep_ll", "deepep_normal"}) {
    for (const Dtype type : kKinds) {
      const char* own = type == Dtype::fp4 ? "nvfp4" : type == Dtype::fp8 ? "fp8" : "bf16";
      Exchange e;
      e.name = name;
      e.dispatched = type;
      e.sms = e.name == "deepep_normal" ? kExchangeSms : 0;
      for (const char* word : {own, "fp8", "bf16", "nvfp4"}) {
        if (e.dispatch) break;
        e.prepare = use("alltoall", {name, "prepare", word});
        e.dispatch = use("alltoall", {name, "dispatch", word});
        e.combine = use("alltoall", {name, "combine", word});
        e.dispatch.altered = std::string_view(word) != own;
      }
      if (!e.combine) e.combine = use("alltoall", {name, "combine", "bf16"});
      if (!e.dispatch || !e.combine) continue;
      if (e.dispatch.altered) e.dispatch.context.a_bytes = stored_bytes(type);
      exchanges_.push_back(std::move(e));
    }
  }
  if (const Use& g = gemm_[at(Dtype::bf16)][at(Dtype::bf16)]) {
    const double smallest[] = {1, 64, 64};
    kernel_ = of(g, smallest).time;
    for (std::size_t p = 0; p < g.parameters.size(); ++p) {
      if (std::string_view(g.fit->form->parameters[p].name) == "e_memory")
        memory_ = system.device.memory_bandwidth * g.parameters[p];
    }
  }
}

// The engine takes the fastest kernel; one whose measurements cover the shape comes before one whose do not.
bool CalibratedCost::better(const FittedPrice& one, const std::optional<FittedPrice>& other) const {
  if (!other) return true;
  if (pricing_ == Pricing::floor || one.basis == other->basis) return one.time < other->time;
  return one.basis < other->basis;
}

Basis CalibratedCost::basis(const Use& u, bool outside) const {
  return outside || u.altered || borrowed_ ? Basis::extrapolated : Basis::measured;
}

FittedPrice CalibratedCost::of(const Use& u, std::span<const double> x) const {
  return {Seconds(predict(*u.fit->form, u.context, u.parameters, u.correction, x)),
          basis(u, u.fit->extrapolates(x, u.context))};
}

// Without its launch where another op has paid it.
FittedPrice CalibratedCost::of(const Use& u, std::span<const double> x, const Op& op, double launches) const {
  FittedPrice p = of(u, x);
  p.time = Seconds(std::max(p.time.value + (launches - 1) * first(u), least(op, u.context)));
  return p;
}

std::optional<FittedPrice> CalibratedCost::price(const Op& op, const GroupFabric* group) const {
  switch (op.kind) {
    case OpKind::gemm:
      return op.shape.gemm.experts.held > 0 ? experts(op) : gemm(op);
    case OpKind::attend:
      if (op.shape.attend.rectangle) return std::nullopt;
      return op.shape.attend.tiles > 0 ? prefill(op) : decode(op);
    case OpKind::launch:
      return std::nullopt;
    case OpKind::merge:
    case OpKind::elementwise:
    case OpKind::compress:
      return elementwise(op);
    default:
      return group->whole.one_node && op.shape.exchange.experts == 0 ? collective(op, *group)
             : op.shape.exchange.experts > 0                         ? exchange(op, *group)
                                                                     : std::nullopt;
  }
}

std::optional<FittedPrice> CalibratedCost::gemm(const Op& op) const {
  const GemmShape& g = op.shape.gemm;
  // Rows and columns of nothing are not launched.
  if (!(g.rows > 0 && g.n > 0 && g.k > 0)) return FittedPrice{Seconds(0), Basis::none};
  constexpr double kWidth = 128, kRank = 512;
  const bool batched = op.part == Part::qkv || op.part == Part::attention;
  const bool absorb = g.k == kWidth && g.n == kRank, expand = g.k == kRank && g.n == kWidth;
  if (batched && (absorb || expand)) {
    const Use& u = (absorb ? absorb_ : expand_)[at(op.math == Dtype::bf16 ? Dtype::bf16 : op.dtype)];
    const double x[] = {g.rows / g.copies, g.copies};
    if (u) return of(u, x, op, op.launches);
  }
  const Use& u = gemm_[at(op.math)][at(op.dtype)];
  if (!u) return std::nullopt;
  // Several matrices side by side do the work, and read the bytes, of one as wide as all of them.
  const double x[] = {g.rows / g.copies, g.n * g.copies, g.k};
  return of(u, x, op, op.launches);
}

std::optional<FittedPrice> CalibratedCost::experts(const Op& op) const {
  const GemmShape& g = op.shape.gemm;
  const ExpertShape& e = g.experts;
  MoeLoad load;
  load.tokens = e.tokens;
  load.hidden = e.hidden;
  load.width = e.inner;
  load.held = e.held;
  load.rows = std::max(g.rows, 1e-3);
  load.active = std::max(g.copies, 1e-3);
  double where[kMostAxes];
  moe_coordinates(load, where);
  // The forms are of the whole layer; each product gets its share of the arithmetic.
  const double share = g.k * g.n / (e.matrices * e.hidden * e.inner);
  std::optional<FittedPrice> best;
  for (const Use& u : (e.matrices > 2 ? gated_experts_ : plain_experts_)[at(op.math)]) {
    const std::span axes(where, u.fit->form->axes.size());
    FormContext context = u.context;
    if (op.dtype != op.math) context.b_bytes = stored_bytes(op.dtype);
    const double whole = moe_seconds(load, context, u.parameters) * std::exp(u.correction.at(axes));
    const FittedPrice p{Seconds(std::max(whole * share, least(op, context))),
                        basis(u, op.dtype != op.math || u.fit->outside(axes))};
    if (better(p, best)) best = p;
  }
  return best;
}

std::optional<FittedPrice> CalibratedCost::decode(const Op& op) const {
  const AttendShape& a = op.shape.attend;
  if (!(a.q_rows > 0 && a.kv_rows > 0)) return FittedPrice{Seconds(0), Basis::none};
  const double length = a.kv_rows / a.q_rows, launches = std::min(1.0, op.launches);  // merges its splits too
  constexpr double kRank = 512, kLatent = 576;
  if (a.qk_dim == kLatent && a.v_dim == kRank) {
    const Use& u = mla_decode_[at(op.dtype)];
    if (!u) return std::nullopt;
    const double x[] = {a.q_rows, length, a.q_heads};
    return of(u, x, op, launches);
  }
  const Use& u = decode_[at(op.dtype)];
  const double heads_kv = a.kv_elements / (a.qk_dim + a.v_dim);
  const double x[] = {a.q_rows, length, a.q_heads, heads_kv, a.qk_dim, 0};
  if (!u || a.qk_dim != a.v_dim || !u.fit->form->covers(std::span(x))) return std::nullopt;
  return of(u, x, op, launches);
}

std::optional<FittedPrice> CalibratedCost::prefill(const Op& op) const {
  const AttendShape& a = op.shape.attend;
  if (!(a.q_rows > 0 && a.pairs > 0)) return FittedPrice{Seconds(0), Basis::none};
  const bool mla = a.qk_dim != a.v_dim;
  const Use& u = (mla ? mla_prefill_ : prefill_)[at(op.math)][at(op.dtype)];
  if (!u) return std::nullopt;
  double where[kMostAxes];
  prefill_coordinates(a.pairs, a.q_rows, a.tiles * a.q_heads, where);
  double seconds = 0;
  if (mla) {
    where[2] = std::log2(a.q_heads);
    seconds = mla_prefill_seconds(a, u.context, u.parameters);
  } else {
    where[2] = std::log2(std::max(1.0, a.q_heads * (a.qk_dim + a.v_dim) / a.kv_elements));
    where[3] = std::log2(a.qk_dim);
    const auto kernel = static_cast<PrefillKernel>(u.context.variant[0]);
    seconds = prefill_seconds(prefill_work(a, kernel, u.context), u.context, u.parameters);
  }
  const std::span axes(where, u.fit->form->axes.size());
  seconds *= std::exp(u.correction.at(axes));
  seconds = std::max(seconds + (op.launches - 1) * first(u), least(op, u.context));
  FittedPrice p{Seconds(seconds), basis(u, u.fit->outside(axes))};
  // Only whole sequences were measured: no cached prefix, no block of a ring.
  if (a.kv_rows != a.q_rows) p.basis = worse(p.basis, Basis::fitted);
  return p;
}

bool CalibratedCost::absorbed(Within within) const {
  const auto any = [](const auto& uses, auto holds) {
    return std::any_of(uses.begin(), uses.end(), [&](const Use& u) { return u && holds(*u.fit); });
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

std::optional<FittedPrice> CalibratedCost::elementwise(const Op& op) const {
  if (op.drive == Drive::persistent_kv || op.drive == Drive::ring_step) return std::nullopt;
  if (absorbed(op.within)) return FittedPrice{Seconds(0), Basis::none};
  if (kernel_ <= Seconds(0)) return std::nullopt;
  const Seconds time = kernel_ * op.launches + Bytes(op.shape.elementwise.bytes) / memory_;
  return FittedPrice{time, time > Seconds(0) ? borrowed_ ? Basis::extrapolated : Basis::fitted : Basis::none};
}

std::optional<FittedPrice> CalibratedCost::collective(const Op& op, const GroupFabric& group) const {
  const double n = group.size, bytes = op.shape.exchange.bytes;
  std::optional<FittedPrice> best;
  const auto consider = [&](const Use& u, std::span<const double> x, Basis at_best = Basis::measured) {
    if (!u) return;
    FittedPrice p = of(u, x);
    p.basis = worse(p.basis, at_best);
    if (better(p, best)) best = p;
  };
  // The engine's kernels of dispatch and combine, where every row goes to, or comes from, every rank.
  const auto engine = [&](double row_bytes, bool combine) {
    const double rows = std::max(1.0, op.shape.exchange.rows);
    for (const Exchange& e : exchanges_) {
      if (op.drive != Drive::graph || e.dispatched != Dtype::bf16 || !e.prepare) continue;
      const double x[] = {n, 1, rows, row_bytes / rows / 2, n, n, e.sms};
      consider(combine ? e.combine : e.dispatch, std::span(x), Basis::fitted);
    }
  };
  const auto message = [&](double size) { return std::array{n, std::max(size, kShortestMessage)}; };
  switch (op.kind) {
    case OpKind::all_reduce:
      consider(engine_all_reduce_, message(bytes));
      consider(all_reduce_, message(bytes));
      break;
    case OpKind::all_gather:
      consider(all_gather_, message(bytes * n));
      engine(std::max(bytes, kShortestMessage / n), false);
      break;
    case OpKind::reduce_scatter:
      consider(reduce_scatter_, message(bytes));
      engine(std::max(bytes, kShortestMessage) / n, true);
      break;
    case OpKind::all_to_all:
      consider(all_to_all_, message(bytes * n / (n - 1)));
      engine(std::max(bytes, kShortestMessage) / (n - 1), false);
      break;
    case OpKind::send_recv:
      if (send_recv_) {
        consider(send_recv_, message(bytes));
      } else if (all_to_all_) {
        // Two ranks that exchange halves send each other one message.
        best = of(all_to_all_, std::array{2.0, std::max(2 * bytes, kShortestMessage)});
        best->basis = worse(best->basis, Basis::fitted);
      }
      break;
    default:
      break;
  }
  return best;
}

std::optional<FittedPrice> CalibratedCost::exchange(const Op& op, const GroupFabric& group) const {
  const ExchangeShape& s = op.shape.exchange;
  const double members = group.whole.one_node ? group.size : group.whole.members_per_node;
  const double nodes = group.whole.one_node ? 1 : std::max(1.0, group.size / std::max(1.0, members));
  const double x[] = {double(group.size), nodes, std::max(1.0, s.rows), s.width, s.topk, s.experts, 0};
  std::optional<FittedPrice> best;
  Seconds least_time(HUGE_VAL);
  for (const Exchange& e : exchanges_) {
    // An implementation inside a domain has no way out of it.
    if (e.dispatched != s.dispatched || (nodes > 1 && e.dispatch.context.network <= 0)) continue;
    std::array<double, 7> own{};
    std::copy(std::begin(x), std::end(x), own.begin());
    own[6] = e.sms;
    FittedPrice there = of(e.dispatch, own);
    if (e.prepare) there.time += of(e.prepare, own).time;
    FittedPrice back = of(e.combine, own);
    const FittedPrice own_part = s.combine ? back : there;
    // Both directions are of one implementation.
    const Seconds judged = pricing_ == Pricing::floor ? own_part.time : back.time + there.time;
    if (judged >= least_time) continue;
    least_time = judged;
    best = own_part;
  }
  return best;
}

}  // namespace shardline
