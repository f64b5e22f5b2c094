// Which fitted kernel prices what. hardware/README.md [H50]-[H55].
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "hardware/cost/calibrated_cost.hpp"
#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/moe.hpp"

namespace shardline {

namespace {

constexpr double kColdCache = 2;      // MB: a layer's cache is not in L2 when its turn comes
constexpr std::size_t kGpusAxis = 3;  // of exchanges
constexpr double kExchangeSms = 24;   // set apart for dispatch and combine, as in DeepEP's own example

constexpr Dtype kKinds[] = {Dtype::fp4, Dtype::fp8, Dtype::bf16};
constexpr Dtype kStored[] = {Dtype::fp4,         Dtype::fp8,   Dtype::bf16, Dtype::fp8_block,
                             Dtype::fp8_dynamic, Dtype::mxfp4, Dtype::int4, Dtype::int4_group32};  // weights

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
  if (family == "attention_prefill" || family == "mla_prefill" || family == "alltoall" ||
      family == "linear_attention")
    return {0, 1};
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

// A long BF16 kernel runs into its board's power limit. Power goes with the clock times the square of the
// voltage, which goes with the clock: another limit moves the clock of such a kernel by its cube root [H67].
double throttle_at(double throttle, double lender, double own) {
  if (lender <= 0 || own <= 0) return throttle;
  return std::max(0.0, (1 + throttle) * std::cbrt(lender / own) - 1);
}

}  // namespace

// Without a fit where the form has no context for it on this system.
CalibratedCost::Use CalibratedCost::made_of(const KernelFit& f) const {
  Use u;
  if (!f.form->context(f.words, *system_, u.context)) return {};
  u.fit = &f;
  u.context = faster(u.context, rates_);
  u.machine = system_->calibration.kin(*system_, *f.form);
  u.parameters = f.parameters;
  u.correction = f.correction;
  if (pricing_ == Pricing::floor) lower(u.correction, growing_axes(f.form->family));
  for (std::size_t p = 0; p < f.parameters.size(); ++p) {
    const std::string_view name = f.form->parameters[p].name;
    if (name == "throttle")
      u.parameters[p] =
          throttle_at(f.parameters[p], system_->calibration.power_limit, system_->device.power_limit);
    if (name == "l2") u.parameters[p] = std::min(u.parameters[p], kColdCache);
    // Padding falls where tokens fill it, merging where more sequences leave each fewer parts, and what parts
    // without keys take where a graph ends: all else rises with them.
    constexpr std::array<std::string_view, 7> kFalling{"pad",   "empty",  "reduce", "reduce_mha",
                                                       "piece", "search", "idle"};
    if (pricing_ == Pricing::floor && std::find(kFalling.begin(), kFalling.end(), name) != kFalling.end())
      u.parameters[p] = 0;
  }
  return u;
}

// The kernels that the framework's list takes, each for its sizes; '*' stands for any word.
std::vector<CalibratedCost::Use> CalibratedCost::uses(const char* family,
                                                      std::initializer_list<std::string_view> words,
                                                      const std::function<bool(const KernelFit&)>& is) const {
  const Form& form = *find_form(family);
  const auto runs = [&](const KernelFit& f) {
    FormContext context;
    return (!is || is(f)) && f.form->context(f.words, *system_, context);
  };
  const KernelFit* library = family == std::string_view("allreduce") ? all_reduce_.fit : nullptr;
  std::vector<Use> out;
  for (const ChosenKernel& c : choose_kernels(system_->calibration, system_->kernels,
                                              architecture_of(system_->calibration, system_->device), form,
                                              {words.begin(), words.size()}, runs, library)) {
    out.push_back(made_of(*c.fit));
    out.back().sizes = c.sizes;
    out.back().rule = c.rule;
    out.back().borrowed = c.borrowed;
    out.back().altered = c.instead;
  }
  return out;
}

// Of families whose kernels are not chosen by size.
CalibratedCost::Use CalibratedCost::use(const char* family,
                                        std::initializer_list<std::string_view> words) const {
  std::vector<Use> all = uses(family, words);
  return all.empty() ? Use{} : std::move(all.front());
}

CalibratedCost::Use CalibratedCost::narrowed(const Use& from, Dtype stored, Dtype known) const {
  Use u = from;
  if (u && stored != known) {
    u.context.b_bytes = bytes_per_element(stored);
    u.altered = true;
  }
  return u;
}

CalibratedCost::Alternatives CalibratedCost::narrowed(const std::vector<Use>& from, Dtype stored,
                                                      Dtype known) const {
  Alternatives out;
  for (const Use& u : from) {
    if (u.rule == from.front().rule) out.all.push_back(narrowed(u, stored, known));
  }
  return out;
}

// Routing with equal loads tells most about the kernel; how unequal they are, the schedule says.
void CalibratedCost::add_experts(Dtype math) {
  const std::vector<KernelFit>& fits = system_->calibration.fits.list();
  const auto is_balanced = [&](const KernelFit& f) {
    if (f.words[2] == "balanced") return true;
    return std::none_of(fits.begin(), fits.end(), [&](const KernelFit& o) {
      return o.form == f.form && o.framework == f.framework && o.words[0] == f.words[0] &&
             o.words[1] == f.words[1] && o.words[2] == "balanced";
    });
  };
  std::set<std::string_view> names;
  for (const KernelFit& f : fits) {
    if (f.form->family != std::string_view("moe")) continue;
    const ExpertTypes* types = expert_types(f.words[1]);
    if (types != nullptr && types->math == math) names.insert(types->name);
  }
  for (const bool plain : {false, true}) {
    std::vector<Alternatives>& all = (plain ? plain_experts_ : gated_experts_)[at(math)];
    for (const std::string_view name : names) {
      const auto is = [&](const KernelFit& f) {
        return (f.words[0].find("nongated") != std::string::npos) == plain && is_balanced(f);
      };
      std::size_t rule = ~std::size_t{0};
      for (Use& u : uses("moe", {"*", name, "*"}, is)) {
        if (u.rule != rule) all.emplace_back();
        rule = u.rule;
        u.stored = expert_types(name)->stored;
        all.back().all.push_back(std::move(u));
      }
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
  if (!plain) {
    for (const Dtype stored : {Dtype::fp8, Dtype::fp8_dynamic})
      gemm_[at(math)][at(stored)] = narrowed(blocks, stored, Dtype::fp8_block);
    return;
  }
  // Measured FP8 products find the scale of their activation; with a known one they are the same kernel less
  // that, where a fit of it was derived [F8], else what they cost with it.
  gemm_[at(math)][at(Dtype::fp8_dynamic)] = plain;
  const Use known = use("gemm", {"fp8_static", plain.fit->words[1]});
  gemm_[at(math)][at(Dtype::fp8)] = known ? known : narrowed(plain, Dtype::fp8, Dtype::fp8_dynamic);
}

bool CalibratedCost::widens(Dtype stored) const {
  const std::vector<Dtype>& all = system_->kernels.absorbed_in_bf16;
  return std::find(all.begin(), all.end(), stored) != all.end();
}

// MLA's absorbed products. Weights that an engine has widened run as the BF16 that they have become.
void CalibratedCost::choose_batched_gemms(Dtype math) {
  const auto choose = [&](Dtype rate, const std::function<bool(Dtype)>& runs) {
    const Use absorb = use("mla_bmm", {"mla_gen_pre", name_of(rate)});
    const Use expand = use("mla_bmm", {"mla_gen_post", name_of(rate)});
    for (const Dtype stored : kStored) {
      if (!runs(stored)) continue;
      const Dtype read = widens(stored) ? rate : stored;
      absorb_[at(math)][at(stored)] = narrowed(absorb, read, rate);
      expand_[at(math)][at(stored)] = narrowed(expand, read, rate);
    }
  };
  const Dtype rate = bf16_or_fp8(math);
  choose(rate, [&](Dtype stored) { return !widens(stored); });
  choose(Dtype::bf16, [&](Dtype stored) { return widens(stored); });
}

// The same kernel's fit for queries of this type, where both were measured: tables of one framework name the
// type that queries are cast to, those of another the model's.
void CalibratedCost::computing_in(std::string_view type, Use& u) const {
  for (const KernelFit& f : system_->calibration.fits) {
    if (f.form != u.fit->form || f.framework != u.fit->framework || f.words[0] != type ||
        f.words[1] != u.fit->words[1] || f.words[2] != u.fit->words[2])
      continue;
    Use same = made_of(f);
    if (!same) continue;
    same.sizes = u.sizes;
    same.rule = u.rule;
    same.borrowed = u.borrowed;
    same.altered = u.altered;
    u = std::move(same);
    return;
  }
}

// Kernels whose cache is FP8 compute in it.
void CalibratedCost::choose_prefill(Dtype math) {
  for (const Dtype stored : kKinds) {
    const Dtype known = bf16_or_fp8(stored);
    std::vector<Use> p = uses("attention_prefill", {"*", name_of(known), "*"});
    for (Use& u : p) computing_in(name_of(bf16_or_fp8(math)), u);
    const Use m = use("mla_prefill", {"kernel", "*", name_of(known), "*"});
    prefill_[at(math)][at(stored)] = narrowed(p, stored, known);
    mla_prefill_[at(math)][at(stored)] = narrowed(m, stored, known);
  }
}

void CalibratedCost::choose_decode() {
  for (const Dtype stored : kKinds) {
    const Dtype known = bf16_or_fp8(stored);
    mla_absorbed_[at(stored)] =
        narrowed(use("mla_prefill", {"absorbed", "*", name_of(known), "*"}), stored, known);
    decode_[at(stored)] = narrowed(uses("attention_decode", {"*", name_of(known), "*"}), stored, known);
    mla_decode_[at(stored)] =
        narrowed(use("mla_decode", {"kernel", "*", name_of(known), "*"}), stored, known);
  }
}

void CalibratedCost::choose_collectives() {
  all_reduce_ = use("nccl", {"all_reduce"});
  engine_all_reduce_ = uses("allreduce", {"*", "*"});
  if (engine_all_reduce_.empty() && all_reduce_) engine_all_reduce_ = {all_reduce_};
  all_gather_ = use("nccl", {"all_gather"});
  reduce_scatter_ = use("nccl", {"reduce_scatter"});
  all_to_all_ = use("nccl", {"alltoall"});
  send_recv_ = use("nccl", {"sendrecv"});
}

// One implementation's kernels for tokens that are dispatched in this type; without a dispatch where one of
// both directions was not measured.
CalibratedCost::Exchange CalibratedCost::exchange_of(const Use& chosen, Dtype dispatched,
                                                     std::string_view word) const {
  const std::string& implementation = chosen.fit->words[0];
  const auto phase = [&](std::string_view of, std::string_view type) {
    const auto is = [&](const KernelFit& f) { return f.words[0] == implementation; };
    std::vector<Use> all = uses("alltoall", {implementation, of, type}, is);
    return all.empty() ? Use{} : std::move(all.front());
  };
  Exchange e;
  e.dispatched = dispatched;
  e.sizes = chosen.sizes;
  e.one_sided = implementation.ends_with("one_sided");
  e.sms = implementation.ends_with("_normal") ? kExchangeSms : 0;
  e.prepare = phase("prepare", word);
  e.combine = phase("combine", word);
  if (!e.combine) e.combine = phase("combine", "bf16");
  if (system_->kernels.low_precision_combine) {
    Use narrow = phase("combine_low_precision", name_of(dispatched));
    if (narrow) e.combine = std::move(narrow);
  }
  if (!e.combine) return {};
  e.dispatch = chosen;
  for (Use* u : {&e.dispatch, &e.combine}) deal_at_random(u->context);
  if (word != name_of(dispatched)) {
    e.dispatch.altered = true;
    e.dispatch.context.a_bytes = bytes_per_dispatched_element(dispatched);
  }
  return e;
}

// What was measured in the type itself comes before what was measured in others. Between nodes an
// implementation needs a way out of a domain, and what was measured there comes before what was not.
void CalibratedCost::choose_exchanges(Dtype dispatched) {
  const double node = std::log2(system_->fabric.gpus_per_node);
  const auto leaves = [&](const KernelFit& f) {
    FormContext context;
    return f.form->context(f.words, *system_, context) && context.network > 0;
  };
  const auto left = [&](const KernelFit& f) { return leaves(f) && f.range_high[kGpusAxis] > node; };
  const auto any = [](const KernelFit&) { return true; };
  const auto choose = [&](std::vector<Exchange>& all, const std::function<bool(const KernelFit&)>& is) {
    for (const std::string_view word :
         {name_of(dispatched), name_of(Dtype::fp8), name_of(Dtype::bf16), name_of(Dtype::fp4)}) {
      if (!all.empty()) return;
      for (const Use& u : uses("alltoall", {"*", "dispatch", word}, is)) {
        if (Exchange e = exchange_of(u, dispatched, word); e.dispatch) all.push_back(std::move(e));
      }
    }
  };
  choose(exchanges_[at(dispatched)], any);
  choose(across_[at(dispatched)], left);
  choose(across_[at(dispatched)], leaves);
}

CalibratedCost::CalibratedCost(const System& system, Pricing pricing, double rates)
    : system_(&system),
      pricing_(pricing),
      rates_(rates),
      machine_(system.calibration.kin(system, kGemmForm)) {
  for (const Dtype math : kKinds) {
    add_experts(math);
    choose_gemms(math);
    choose_batched_gemms(math);
    choose_prefill(math);
  }
  choose_decode();
  choose_collectives();
  for (const Dtype dispatched : kKinds) choose_exchanges(dispatched);
  if (Use& g = gemm_[at(Dtype::bf16)][at(Dtype::bf16)]) {
    const double smallest[] = {1, 64, 64};
    kernel_ = of(g, smallest).time;
    memory_ = system.device.memory_bandwidth * rates * std::min(1.0, parameter(g, "e_memory"));
  }
}

}  // namespace shardline
