// Which fitted kernel prices what. hardware/README.md [H50]-[H55].
#include <algorithm>

#include "hardware/cost/calibrated_cost.hpp"
#include "hardware/cost/forms/forms.hpp"

namespace shardline {

namespace {

constexpr double kColdCache = 2;     // MB: a layer's cache is not in L2 when its turn comes
constexpr double kExchangeSms = 24;  // set apart for dispatch and combine, as in DeepEP's own example

constexpr Dtype kKinds[] = {Dtype::fp4, Dtype::fp8, Dtype::bf16};
constexpr Dtype kStored[] = {Dtype::fp4, Dtype::fp8, Dtype::bf16, Dtype::fp8_block};  // weights

// As fits name it.
std::string_view name_of(Dtype kind) {
  return kind == Dtype::fp4 ? "nvfp4" : kind == Dtype::fp8 ? "fp8" : "bf16";
}

// Whose kernel stands for arithmetic or a cache of this type where only BF16 and FP8 were measured.
Dtype bf16_or_fp8(Dtype type) { return type == Dtype::bf16 ? Dtype::bf16 : Dtype::fp8; }

// Axes of a form that grow with the tokens of an op.
std::vector<std::size_t> growing_axes(std::string_view family) {
  if (family == "nccl" || family == "allreduce") return {1};
  // More keys per sequence, or more sequences; more rows, or longer ones.
  if (family == "attention_prefill" || family == "mla_prefill" || family == "alltoall") return {0, 1};
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

}  // namespace

// Of several kernels a preferred one, else that with most measured shapes; '*' stands for any word.
CalibratedCost::Use CalibratedCost::use(const char* family,
                                        std::initializer_list<std::string_view> words) const {
  Use best;
  const std::vector<std::string>& prefer = system_->calibration.prefer;
  const auto preferred = [&](const KernelFit& f) {
    return std::find_first_of(f.words.begin(), f.words.end(), prefer.begin(), prefer.end()) != f.words.end();
  };
  const auto before = [&](const KernelFit& a, const KernelFit& b) {
    return preferred(a) != preferred(b) ? preferred(a) : a.alone.rows > b.alone.rows;
  };
  for (const KernelFit& f : system_->calibration.fits) {
    if (f.form->family != std::string_view(family)) continue;
    bool same = true;
    std::size_t i = 0;
    for (const std::string_view w : words) {
      same = same && (w == "*" || f.words[i] == w);
      ++i;
    }
    if (!same || (best && !before(f, *best.fit))) continue;
    Use u;
    if (!f.form->context(f.words, *system_, u.context)) continue;
    u.fit = &f;
    u.foreign = system_->calibration.foreign(*system_, *f.form);
    u.parameters = f.parameters;
    u.correction = f.correction;
    if (pricing_ == Pricing::floor) lower(u.correction, growing_axes(family));
    for (std::size_t p = 0; p < f.parameters.size(); ++p) {
      const std::string_view name = f.form->parameters[p].name;
      if (name == "l2") u.parameters[p] = std::min(u.parameters[p], kColdCache);
      // Padding falls where tokens fill it: all else rises with them.
      if ((name == "pad" || name == "empty") && pricing_ == Pricing::floor) u.parameters[p] = 0;
    }
    best = std::move(u);
  }
  return best;
}

CalibratedCost::Use CalibratedCost::narrowed(const Use& from, Dtype stored, Dtype known) const {
  Use u = from;
  if (u && stored != known) {
    u.context.b_bytes = bytes_per_element(stored);
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
      u.stored = type == "fp8_block" ? Dtype::fp8_block : math;
      if (u) all.push_back(std::move(u));
    }
  }
}

void CalibratedCost::choose_gemms(Dtype math) {
  const Use plain = use("gemm", {name_of(math), "*"});
  for (const Dtype stored : kStored) gemm_[at(math)][at(stored)] = narrowed(plain, stored, math);
  if (math != Dtype::fp8) return;
  // Kernels that read a scale per block are others than those with one per tensor.
  const Use blocks = use("gemm", {"fp8_block", "*"});
  if (blocks) gemm_[at(math)][at(Dtype::fp8_block)] = blocks;
  if (!plain) gemm_[at(math)][at(Dtype::fp8)] = narrowed(blocks, Dtype::fp8, Dtype::fp8_block);
}

// MLA's absorbed products.
void CalibratedCost::choose_batched_gemms(Dtype math) {
  const Dtype rate = bf16_or_fp8(math);
  const Use absorb = use("mla_bmm", {"mla_gen_pre", name_of(rate)});
  const Use expand = use("mla_bmm", {"mla_gen_post", name_of(rate)});
  for (const Dtype stored : kStored) {
    absorb_[at(math)][at(stored)] = narrowed(absorb, stored, rate);
    expand_[at(math)][at(stored)] = narrowed(expand, stored, rate);
  }
}

// Kernels whose cache is FP8 compute in it.
void CalibratedCost::choose_prefill(Dtype math) {
  for (const Dtype stored : kKinds) {
    const Dtype known = bf16_or_fp8(stored);
    Use p = use("attention_prefill", {name_of(bf16_or_fp8(math)), name_of(known), "*"});
    if (!p) p = use("attention_prefill", {"*", name_of(known), "*"});
    const Use m = use("mla_prefill", {"kernel", "*", name_of(known), "*"});
    prefill_[at(math)][at(stored)] = narrowed(p, stored, known);
    mla_prefill_[at(math)][at(stored)] = narrowed(m, stored, known);
  }
}

void CalibratedCost::choose_decode() {
  for (const Dtype stored : kKinds) {
    const Dtype known = bf16_or_fp8(stored);
    decode_[at(stored)] = narrowed(use("attention_decode", {"*", name_of(known), "*"}), stored, known);
    mla_decode_[at(stored)] =
        narrowed(use("mla_decode", {"kernel", "*", name_of(known), "*"}), stored, known);
  }
}

void CalibratedCost::choose_collectives() {
  all_reduce_ = use("nccl", {"all_reduce"});
  engine_all_reduce_ = use("allreduce", {"*", "*"});
  all_gather_ = use("nccl", {"all_gather"});
  reduce_scatter_ = use("nccl", {"reduce_scatter"});
  all_to_all_ = use("nccl", {"alltoall"});
  send_recv_ = use("nccl", {"sendrecv"});
}

void CalibratedCost::add_exchange(std::string_view implementation, Dtype dispatched) {
  const std::string_view own = name_of(dispatched);
  Exchange e;
  e.dispatched = dispatched;
  e.sms = implementation.ends_with("_normal") ? kExchangeSms : 0;
  for (const std::string_view word : {own, name_of(Dtype::fp8), name_of(Dtype::bf16), name_of(Dtype::fp4)}) {
    if (e.dispatch) break;
    e.prepare = use("alltoall", {implementation, "prepare", word});
    e.dispatch = use("alltoall", {implementation, "dispatch", word});
    e.combine = use("alltoall", {implementation, "combine", word});
    e.dispatch.altered = word != own;
  }
  if (!e.combine) e.combine = use("alltoall", {implementation, "combine", "bf16"});
  if (!e.dispatch || !e.combine) return;
  if (e.dispatch.altered) e.dispatch.context.a_bytes = bytes_per_dispatched_element(dispatched);
  exchanges_.push_back(std::move(e));
}

CalibratedCost::CalibratedCost(const System& system, Pricing pricing)
    : system_(&system), pricing_(pricing), foreign_(system.calibration.foreign(system, kGemmForm)) {
  for (const Dtype math : kKinds) {
    add_experts(math);
    choose_gemms(math);
    choose_batched_gemms(math);
    choose_prefill(math);
  }
  choose_decode();
  choose_collectives();
  for (const std::string_view implementation :
       {"trtllm_nvlink_two_sided", "deepep_ll", "deepep_normal", "deepep_v050_ll", "deepep_v050_normal"}) {
    for (const Dtype dispatched : kKinds) add_exchange(implementation, dispatched);
  }
  if (Use& g = gemm_[at(Dtype::bf16)][at(Dtype::bf16)]) {
    const double smallest[] = {1, 64, 64};
    kernel_ = of(g, smallest).time;
    memory_ = system.device.memory_bandwidth * std::min(1.0, parameter(g, "e_memory"));
  }
}

}  // namespace shardline
