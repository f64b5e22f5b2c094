#include "planner/scenario/kernel_keys.hpp"

#include "hardware/machine/frameworks.hpp"
#include "planner/plan/case.hpp"
#include "planner/scenario/scenario_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace shardline::scenario_parts {

namespace {

// "fa3", and "sglang/fa3" where the calibration says whose it is.
std::vector<std::string> names_of(const Calibration& c, const Form& form, std::size_t column) {
  std::set<std::string> out;
  for (const KernelFit& f : c.fits) {
    if (f.form != &form) continue;
    // Only kernels alone price an op, not modules with projections.
    if (std::string_view(form.family).starts_with("mla_") && form.words[0] == std::string_view("scope") &&
        f.words[0] != "kernel")
      continue;
    if (f.words[column].empty()) {
      if (!f.framework.empty()) out.insert(f.framework + "/");
      continue;
    }
    out.insert(f.words[column]);
    if (!f.framework.empty()) out.insert(f.framework + "/" + f.words[column]);
  }
  if (form.family == std::string_view("allreduce")) out.insert("nccl");
  return {out.begin(), out.end()};
}

// What there is in the place of a name, and which framework has it.
std::vector<std::string> known_kernels(const std::string& name, const std::vector<std::string>& known,
                                       const Reader& r, const System& system, const Form& form,
                                       std::size_t column, const Catalogs& catalogs) {
  if (known.empty()) return {fmt::format("none of {} was", r.path())};
  const std::string& framework = system.kernels.framework;
  std::vector<std::string> details = expected_one_of(name, known);
  for (const std::string& other : kernel_list_names(catalogs.systems)) {
    if (other == framework) continue;
    const auto own = framework_calibration(system.calibration.name, other, catalogs.systems);
    if (!own) continue;
    const std::vector<std::string> theirs = names_of(*own, form, column);
    if (std::find(theirs.begin(), theirs.end(), name) != theirs.end())
      details.push_back(fmt::format("{0} is known with framework: {1}", name, other));
  }
  const std::string whose = name.substr(0, name.find('/'));
  const std::vector<std::string> frameworks = kernel_list_names(catalogs.systems);
  if (name.find('/') != std::string::npos && whose != framework &&
      std::find(frameworks.begin(), frameworks.end(), whose) != frameworks.end())
    details.push_back(fmt::format("kernels of {0} are known with framework: {0}", whose));
  return details;
}

std::optional<KernelRule> read_asked(const Reader& r, const System& system, const Form& form,
                                     std::size_t column, const Catalogs& catalogs) {
  const Calibration& c = system.calibration;
  KernelRule rule;
  rule.family = form.family;
  rule.asked = true;
  rule.why = "the scenario names it";
  const std::vector<std::string> known = names_of(c, form, column);
  for (const Reader& item : r.is_sequence() ? r.items() : std::vector<Reader>{r}) {
    const std::string name = item.text();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      item.fault(fmt::format("no kernel {} of {} was measured here", name, form.family),
                 known_kernels(name, known, r, system, form, column, catalogs));
      return std::nullopt;
    }
    const std::size_t slash = name.find('/');
    const bool whose = slash != std::string::npos;
    rule.use.push_back({whose ? name.substr(0, slash) : "", whose ? name.substr(slash + 1) : name});
  }
  if (rule.use.empty()) {
    if (r.is_sequence()) r.fault(r.path() + " is empty", {"expected a kernel or a list of them"});
    return std::nullopt;
  }
  return rule;
}

// One-sided kernels have no such combine: who wants it names an implementation that has.
void check_low_precision(const Reader& v, const Calibration& c, const std::vector<KernelRule>& asked) {
  std::set<std::string> with;
  for (const KernelFit& f : c.fits) {
    if (f.form->family == std::string_view("alltoall") && f.words[1] == "combine_low_precision")
      with.insert(f.words[0]);
  }
  if (with.empty()) {
    v.fault("no combine in low precision was measured here", {"expected plain"});
    return;
  }
  for (const KernelRule& rule : asked) {
    for (const KernelName& name : rule.use) {
      if (rule.family == "alltoall" && with.contains(name.kernel)) return;
    }
  }
  v.fault(
      "the exchange that the framework takes has no combine in low precision",
      {fmt::format("name one that has: kernels: {{alltoall: {}, combine: low_precision}}", *with.begin())});
}

// What a family of kernels needs to run. Those that are not here are of all models: exchanges of experts
// also carry other messages (hardware/README.md [H55]).
struct Runs {
  const char* family;
  bool prefill, decode;
  bool (*of)(const Model&);
  const char* lacking;  // where no model is of the kind
};
bool plain_attention(const Model& m) {
  return std::any_of(m.attentions.begin(), m.attentions.end(),
                     [](const Attention& a) { return !a.recurrent() && !has_latents(a) && !a.compression; });
}
bool linear_attention(const Model& m) {
  return std::any_of(m.attentions.begin(), m.attentions.end(),
                     [](const Attention& a) { return a.recurrent(); });
}
bool state_space(const Model& m) {
  return std::any_of(m.attentions.begin(), m.attentions.end(),
                     [](const Attention& a) { return a.mamba.has_value(); });
}
bool latent_attention(const Model& m) { return has_latents(m); }
constexpr const char* kNoLatents = "no listed model has MLA";
constexpr const char* kOnlyLatents = "every listed model has MLA";
bool mixes_streams(const Model& m) { return m.residual.streams > 1; }
bool no_model(const Model&) { return false; }
constexpr const char* kNotTimed = "blocks of sparse attention have their own (sparse_decode, sparse_prefill)";
constexpr Runs kRuns[] = {
    {"attention_prefill", true, false, plain_attention, kOnlyLatents},
    {"attention_decode", false, true, plain_attention, kOnlyLatents},
    {"mla_prefill", true, false, latent_attention, kNoLatents},
    {"mla_decode", false, true, latent_attention, kNoLatents},
    {"mla_bmm", false, true, latent_attention, kNoLatents},
    {"moe", true, true, has_experts, "no listed model has experts"},
    {"sparse_decode", false, true, has_sparse, "no listed model has sparse attention"},
    {"sparse_prefill", true, false, has_sparse, "no listed model has sparse attention"},
    {"linear_attention", true, true, linear_attention, "no listed model has linear attention"},
    {"mamba2", true, true, state_space, "no listed model has Mamba-2"},
    // Measured, but of parts of blocks.
    {"sparse_kernel", true, true, no_model, kNotTimed},
    {"mhc", true, true, mixes_streams, "no listed model has hyper-connections"},
};

// Why a family prices nothing; empty where it may.
std::string idle(const std::string& family, const std::vector<Model>& models, StepsAsked steps) {
  const auto* const runs =
      std::find_if(std::begin(kRuns), std::end(kRuns), [&](const Runs& r) { return family == r.family; });
  if (runs == std::end(kRuns)) return "";
  if (std::none_of(models.begin(), models.end(), runs->of)) return runs->lacking;
  if ((runs->prefill && steps.prefills) || (runs->decode && steps.decodes)) return "";
  return steps.decodes ? "it is of prefill, which is not looked at"
                       : "it is of decode, which is not looked at";
}

}  // namespace

void check_named_families(const Reader& kernels, const std::vector<Model>& models, StepsAsked steps) {
  if (!kernels.is_map()) return;
  std::vector<std::string> families;
  for (const Form& form : forms()) {
    if (kernel_column(form) && idle(form.family, models, steps).empty()) families.emplace_back(form.family);
  }
  for (const Form& form : forms()) {
    const auto v = kernel_column(form) ? kernels.find(form.family) : std::nullopt;
    const std::string why = v ? idle(form.family, models, steps) : "";
    if (!why.empty())
      v->fault(fmt::format("kernels.{} prices nothing: {}", form.family, why),
               expected_one_of(form.family, families));
  }
}

void read_kernel_names(const Reader& kernels, System& system, const Catalogs& catalogs) {
  if (!kernels.is_map()) return;  // read_kernels() says so
  bool framework = true;
  if (const auto v = kernels.find("framework")) {
    try {
      use_framework(system, v->text(), catalogs.systems);
    } catch (const UserError& e) {
      if (v->is_scalar()) v->fault(e.diagnostics()[0].what, e.diagnostics()[0].details);
      framework = false;
    }
  }
  std::vector<KernelRule> asked;
  for (const Form& form : forms()) {
    const auto column = kernel_column(form);
    const auto v = column ? kernels.find(form.family) : std::nullopt;
    // Names of a framework that is not known are not looked for among another's.
    if (!v || !framework) continue;
    if (system.calibration.empty()) {
      v->fault(fmt::format("system {} has no calibration: kernels have no prices on it", system.name));
    } else if (auto rule = read_asked(*v, system, form, *column, catalogs)) {
      asked.push_back(std::move(*rule));
    }
  }
  if (const auto v = kernels.find("combine")) {
    system.kernels.low_precision_combine = choice(*v, {"plain", "low_precision"}) == 1u;
    if (system.kernels.low_precision_combine && framework) check_low_precision(*v, system.calibration, asked);
  }
  system.kernels.named = system.kernels.named || !asked.empty();
  system.kernels.rules.insert(system.kernels.rules.begin(), asked.begin(), asked.end());
}

}  // namespace shardline::scenario_parts
