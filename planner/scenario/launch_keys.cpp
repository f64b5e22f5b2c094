#include "planner/scenario/launch_keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "planner/engines/checkpoints.hpp"
#include "planner/scenario/precision_keys.hpp"

namespace shardline::scenario_parts {

namespace {

// Where a scenario says how long requests are.
Reader tokens_of(const Reader& root) {
  for (const char* key : {"context", "decode", "requests"}) {
    if (const auto v = root.find(key)) return *v;
  }
  return root.at("models");
}

// The key itself, else what it follows from: all weights or arithmetic, or the model's checkpoint.
Reader type_of(const Reader& root, const std::string& name) {
  const auto precision = root.find("precision");
  if (!precision || !precision->is_map()) return root.at("models");
  if (const auto v = precision->find(name)) return *v;
  for (const char* all : {"weights", "math"}) {
    if (const auto v = precision->find(all); v && name.ends_with(all)) return *v;
  }
  return *precision;
}

Reader place_of(const Reader& root, const std::string& key) {
  constexpr std::string_view kPrecision = "precision.";
  if (key == "models") return root.at("models");
  if (key == "kv_block" && root.has("kv_block")) return root.at("kv_block");
  return key.starts_with(kPrecision) ? type_of(root, key.substr(kPrecision.size())) : tokens_of(root);
}

// Those of these keys of `precision` that the scenario has, set to a type.
std::string set_keys(const Reader& root, std::initializer_list<const char*> keys, Dtype type) {
  std::string out;
  const auto precision = root.find("precision");
  for (const char* key : keys) {
    if (precision && precision->is_map() && precision->has(key))
      out += fmt::format(" --set precision.{}={}", key, to_string(type));
  }
  return out;
}

std::string set_math(const Reader& root, Dtype type) {
  return set_keys(
      root, {"math", "ffn_math", "attention_math", "out_proj_math", "expert_math", "shared_math", "dispatch"},
      type);
}

// What takes a refusal's first offer up on the command line, with every key of the scenario that would stand
// against it: " --set precision.weights=fp8 --set precision.math=fp8". Empty: no setting does.
std::string settings_that_help(const Reader& root, const CaseRefusal& r) {
  if (!r.weights.empty()) {
    const Dtype type = r.weights.front();
    return fmt::format(" --set precision.weights={}", to_string(type)) +
           set_keys(
               root,
               {"ffn_weights", "attention_weights", "out_proj_weights", "expert_weights", "shared_weights"},
               type) +
           set_math(root, arithmetic_of(type));
  }
  if (r.rule == "weight_math") return set_math(root, Dtype::bf16);
  return "";
}

// The published checkpoint of the model that its engine starts here as it is stored: one of the nearest type
// that the refusal offers, else any. Empty: there is none, or types of weights are not what is refused.
std::string published_that_starts(const Case& c, const CaseRefusal& r) {
  if (r.weights.empty()) return "";
  std::vector<PublishedCheckpoint> all = published_checkpoints(c.model);
  const auto place = [&](const PublishedCheckpoint& p) {
    return std::find(r.weights.begin(), r.weights.end(), p.type) - r.weights.begin();
  };
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  for (const PublishedCheckpoint& p : all) {
    Case other = c;
    other.model.checkpoint = p.types;
    other.precision = precision_of(PrecisionKeys{}, other.model, c.system, c.engine.get());
    if (!does_not_start(other) && !has_no_price(other)) return p.repository;
  }
  return "";
}

// Whether somebody publishes weights as settings_that_help() sets them.
std::string whose_types(const Case& c, const CaseRefusal& r) {
  if (r.weights.empty()) return "";
  for (const PublishedCheckpoint& p : published_checkpoints(c.model)) {
    if (p.whole && p.type == r.weights.front()) return fmt::format(", as {} is stored", p.repository);
  }
  return fmt::format(": hypothetical, no checkpoint of {} with all its weights so is known here",
                     c.model.name);
}

bool names(const KernelName& use, const KernelName& asked, const std::string& framework) {
  const std::string& of = use.framework.empty() ? framework : use.framework;
  return use.kernel == asked.kernel && (asked.framework.empty() || asked.framework == of);
}

// "cutlass", "sglang/deepgemm": of a family on an architecture, as its list writes them.
std::vector<std::string> listed(const KernelList& own, const std::string& family, Architecture a,
                                const KernelName& asked, bool& has) {
  std::set<std::string> out;
  for (const KernelRule& rule : own.rules) {
    if (rule.family != family || rule.borrowed || !rule.of(a)) continue;
    for (const KernelName& use : rule.use) {
      has = has || names(use, asked, own.framework);
      out.insert(use.framework.empty() ? use.kernel : use.framework + "/" + use.kernel);
    }
  }
  return {out.begin(), out.end()};
}

// A kernel without a word of its own has no name that a scenario could say: "" of a framework's "trtllm/".
bool nameless(const std::string& kernel) { return kernel.empty() || kernel.ends_with('/'); }

}  // namespace

LiftedRules read_lifted_rules(const Reader& root, const Overrides& asked) {
  const auto gpus = root.find("any_gpus"), context = root.find("any_context");
  const bool file_gpus = gpus && gpus->boolean(), file_context = context && context->boolean();
  return {file_gpus || asked.any_gpus, file_context || asked.any_context};
}

void check_strategies(const Reader& root, const EngineProfile& engine, const Overrides& asked) {
  const Reader at = root.has("engine") ? root.at("engine") : root.at("strategies");
  try {
    std::vector<Reader> items = root.at("strategies").items();
    for (const Reader& item :
         root.has("prefill_strategies") ? root.at("prefill_strategies").items() : std::vector<Reader>{})
      items.push_back(item);
    for (const Reader& item : items) {
      const auto id = item.is_scalar() ? find_strategy(item.text()) : std::nullopt;
      if (!id || has_feature(engine, strategy(*id)) || !asked.engine.empty()) continue;
      const LaunchedAs feature = strategy(*id).launched_as;
      const std::vector<std::string> others = engines_with(feature);
      item.fault(
          fmt::format("{} does not run {}", title_of(engine), item.text()),
          {others.empty() ? std::string("no engine does: engine: ideal prices it")
                          : fmt::format("it has no {}; {} {}", to_string(feature), fmt::join(others, " and "),
                                        others.size() == 1 ? "has" : "have"),
           "its rule: " + strategy_rule(engine)});
    }
  } catch (const UserError& e) {
    at.fault(e.diagnostics()[0].what, e.diagnostics()[0].details);
  }
}

namespace {

bool fault(const Reader& root, const Case& c, const CaseRefusal& r, const char* what) {
  std::vector<std::string> details{"expected " + r.instead};
  if (const std::string published = published_that_starts(c, r); !published.empty())
    details.push_back(fmt::format("for instance models: [{}], as it is published{}", published,
                                  root.has("precision") ? ", and no types of weights under precision" : ""));
  if (const std::string set = settings_that_help(root, r); !set.empty())
    details.push_back(fmt::format("for instance{} on the command line{}", set, whose_types(c, r)));
  details.push_back(fmt::format("{} ({})", r.says, r.source));
  place_of(root, r.key).fault(fmt::format("{} {}: {}", title_of(*c.engine), what, r.text), details);
  return true;
}

}  // namespace

bool check_case(const Reader& root, const Case& c) {
  if (const auto refusal = does_not_start(c)) return fault(root, c, *refusal, "does not start");
  if (const auto unpriced = has_no_price(c)) return fault(root, c, *unpriced, "has no price here");
  return false;
}

bool check_files(const Reader& root, const Case& c) {
  const auto refusal = does_not_read(c);
  return refusal && fault(root, c, *refusal, "does not start");
}

bool check_kernels(const Reader& kernels, const EngineProfile& engine, const System& system,
                   const Catalogs& catalogs) {
  // A scenario may name another framework's kernels for the engine: those are its own choice.
  if (!kernels.is_map() || system.kernels.framework != engine.framework || system.calibration.empty())
    return true;
  bool fine = true;
  const KernelList own = load_kernel_list(engine.framework, catalogs.systems);
  const Architecture a = architecture_of(system.calibration, system.device);
  for (const Form& form : forms()) {
    const auto v = kernel_column(form) ? kernels.find(form.family) : std::nullopt;
    if (!v) continue;
    for (const Reader& item : v->is_sequence() ? v->items() : std::vector<Reader>{*v}) {
      if (!item.is_scalar()) continue;
      const std::string name = item.text();
      const std::size_t slash = name.find('/');
      const KernelName asked = slash == std::string::npos
                                   ? KernelName{"", name}
                                   : KernelName{name.substr(0, slash), name.substr(slash + 1)};
      bool has = false;
      std::vector<std::string> others = listed(own, form.family, a, asked, has);
      std::erase_if(others, nameless);
      has = has && !nameless(name);
      fine = fine && has;
      if (has) continue;
      std::vector<std::string> details =
          others.empty()
              ? std::vector<std::string>{fmt::format(
                    "expected no key {} here: it has one kernel of that kind, which it takes by itself",
                    form.family)}
              : expected_one_of(name, others);
      details.push_back(
          fmt::format("its kernels are those that it takes by default (hardware/kernels/{}.yaml); "
                      "engine: ideal runs any that was measured",
                      engine.framework));
      item.fault(
          fmt::format("{} does not run {} of {} on {}", title_of(engine), name, form.family, to_string(a)),
          std::move(details));
    }
  }
  if (!fine) static_cast<void>(kernels.find("combine"));  // nobody reads it then, yet it is a key
  return fine;
}

}  // namespace shardline::scenario_parts
