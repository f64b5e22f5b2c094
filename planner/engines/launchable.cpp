#include "planner/engines/launchable.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "planner/engines/launch_rules.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr std::array kRules{&kTrtllmRules, &kVllmRules, &kSglangRules};

}  // namespace

const LaunchRules& rules_named(const std::string& engine) {
  const auto of = [&](const LaunchRules* rules) { return engine == rules->engine; };
  const auto at = std::find_if(kRules.begin(), kRules.end(), of);
  SL_CHECK(at != kRules.end(), "every engine that is deployed has rules");
  return **at;
}

namespace {

std::optional<CaseRefusal> first_of(std::span<const CaseRule> rules, const Case& c) {
  for (const CaseRule& rule : rules) {
    if (auto complaint = rule.refuses(c))
      return CaseRefusal{{rule.id, rule.says, std::move(complaint->text), rule.source},
                         std::move(complaint->key),
                         std::move(complaint->instead),
                         {}};
  }
  return std::nullopt;
}

// All matrices of the model in one type, in the arithmetic that is its own.
Case with_weights(const Case& c, Dtype type) {
  Case out = c;
  Precision& p = out.precision;
  p.weights = type;
  p.math = arithmetic_of(type);
  for (auto* of : {&p.ffn_weights, &p.attention_weights, &p.out_proj_weights, &p.index_weights,
                   &p.expert_weights, &p.shared_weights, &p.ffn_math, &p.attention_math, &p.out_proj_math,
                   &p.index_math, &p.expert_math, &p.shared_math})
    of->reset();
  p.drafts.reset();
  return out;
}

// Whether the device computes in the arithmetic of a type.
bool computes(const Case& c, Dtype type) {
  return c.system.device.peak[static_cast<std::size_t>(arithmetic_of(type))].value > 0;
}

// The case on a device of another architecture, in blocks that the engine has there: rules ask for no more
// of it (architecture_of).
Case on(const LaunchRules& rules, const Case& c, Architecture a) {
  Case out = c;
  const auto peak = [&](Dtype t) -> FlopsPerSecond& {
    return out.system.device.peak[static_cast<std::size_t>(t)];
  };
  peak(Dtype::fp8) = peak(Dtype::bf16) * (a == Architecture::ampere ? 0.0 : 2.0);
  peak(Dtype::fp4) = peak(Dtype::bf16) * (a == Architecture::blackwell ? 4.0 : 0.0);
  if (rules.block != nullptr) out.kv_block = rules.block(out).value_or(out.kv_block);
  return out;
}

bool runs(const LaunchRules& rules, const Case& c) {
  return !first_of(rules.cases, c) && !first_of(rules.unpriced, c);
}

// Types of all matrices in place of weights that are refused, each tried by the same rules.
std::vector<Dtype> weights_that_run(const LaunchRules& rules, const Case& c) {
  std::vector<Dtype> out;
  for (const Dtype t : {Dtype::fp4, Dtype::fp8, Dtype::int4, Dtype::bf16}) {
    if (computes(c, t) && runs(rules, with_weights(c, t))) out.push_back(t);
  }
  return out;
}

// What a user may ask for in place of weights that are refused: types of all matrices, other devices, each
// tried before it is offered. Empty: nothing of it passes.
std::string offers(const LaunchRules& rules, const Case& c, const std::vector<Dtype>& weights) {
  std::vector<std::string> types, devices, out;
  for (const Dtype t : weights) types.emplace_back(to_string(t));
  for (const auto& [a, name] :
       {std::pair(Architecture::ampere, "Ampere"), std::pair(Architecture::hopper, "Hopper"),
        std::pair(Architecture::blackwell, "Blackwell")}) {
    if (a != architecture_of(c.system.device) && runs(rules, on(rules, c, a))) devices.emplace_back(name);
  }
  if (!types.empty()) out.push_back(fmt::format("weights all of {}", fmt::join(types, " or ")));
  if (!devices.empty()) out.push_back(fmt::format("a system of {}", fmt::join(devices, " or ")));
  return fmt::format("{}", fmt::join(out, ", or "));
}

Case with_cache(const Case& c, Dtype type) {
  Case out = c;
  out.precision.kv = type;
  return out;
}

// Types of the cache in place of one that is refused, each tried by all rules: none is offered that the next
// rule refuses. Empty: nothing of it passes.
std::string offered_caches(const LaunchRules& rules, const Case& c) {
  std::vector<std::string> types;
  for (const Dtype t : {Dtype::fp8, Dtype::bf16, Dtype::fp4}) {
    if (t != c.precision.kv && runs(rules, with_cache(c, t))) types.emplace_back(to_string(t));
  }
  if (types.empty()) return "";
  return fmt::format("{}, as --set precision.kv={} on the command line", fmt::join(types, " or "),
                     types.front());
}

// The same where neither another cache nor other weights alone would do.
std::string offered_pair(const LaunchRules& rules, const Case& c) {
  for (const Dtype weights : {Dtype::fp4, Dtype::fp8, Dtype::int4, Dtype::bf16}) {
    if (!computes(c, weights)) continue;
    for (const Dtype kv : {Dtype::fp8, Dtype::bf16}) {
      const Case both = with_cache(with_weights(c, weights), kv);
      if (runs(rules, both))
        return fmt::format("precision: {{weights: {}, kv: {}, math: {}}}", to_string(weights), to_string(kv),
                           to_string(both.precision.math));
    }
  }
  return "";
}

bool of_weights(const CaseRule& rule) {
  return std::string_view(rule.id) == "weight_type" || std::string_view(rule.id) == "weight_kernels";
}

std::optional<CaseRefusal> refused_case(const LaunchRules& rules, std::span<const CaseRule> of,
                                        const Case& c) {
  auto refusal = first_of(of, c);
  if (!refusal) return refusal;
  for (const CaseRule& rule : of) {
    if (rule.id != refusal->rule || !of_weights(rule)) continue;
    refusal->weights = weights_that_run(rules, c);
    refusal->instead = offers(rules, c, refusal->weights);
  }
  if (refusal->key == "precision.kv") {
    refusal->instead = offered_caches(rules, c);
    if (refusal->instead.empty()) {
      refusal->weights = weights_that_run(rules, c);
      refusal->instead = offers(rules, c, refusal->weights);
    }
    if (refusal->instead.empty()) refusal->instead = offered_pair(rules, c);
    if (refusal->instead.empty()) {  // nor does the engine have the blocks that were asked for
      Case in_own_blocks = c;
      in_own_blocks.kv_block = own_block_of(rules.engine, c);
      const std::string caches = offered_caches(rules, in_own_blocks);
      if (!caches.empty())
        refusal->instead = fmt::format("{}, and kv_block: {} tokens", caches, in_own_blocks.kv_block);
    }
    if (refusal->instead.empty()) refusal->instead = "another model or engine";
  }
  if (refusal->rule == std::string_view("weight_kernels"))
    refusal->instead +=
        (refusal->instead.empty() ? "" : "; ") +
        std::string(
            "precision: {math: bf16} prices products of BF16 with fewer bytes in their place, extrapolated");
  return refusal;
}

std::optional<Refusal> refused_by(const LaunchRules& rules, const Case& c, const Plan& plan) {
  if (auto refusal = first_of(rules.cases, c)) return *refusal;
  for (const LaunchRule& rule : rules.plans) {
    if (auto complaint = rule.refuses(c, plan))
      return Refusal{rule.id, rule.says, std::move(*complaint), rule.source};
  }
  return std::nullopt;
}

std::string missing_length_note(const Case& c, const LaunchRules& rules) {
  return fmt::format("{} tokens are more than the {} of {}: {} starts them with {}=1", c.longest(),
                     c.model.max_context, c.model.name, title_of(rules), rules.long_context);
}

}  // namespace

std::span<const LaunchRules* const> launch_rules() { return kRules; }

std::string title_of(const LaunchRules& rules) { return fmt::format("{} {}", rules.title, rules.version); }

// Rules of another version may be wrong in either way.
const LaunchRules& rules_of(const EngineProfile& engine) {
  std::vector<std::string> known;
  for (const LaunchRules* rules : kRules) {
    if (engine.name != rules->engine) continue;
    if (engine.version == rules->version) return *rules;
    known.push_back(title_of(*rules));
  }
  if (known.empty()) {
    for (const LaunchRules* rules : kRules) known.push_back(title_of(*rules));
  }
  throw UserError({Diagnostic{{},
                              fmt::format("nobody has read which plans {} starts", title_of(engine)),
                              expected_one_of(engine.version, known)}});
}

std::string title_of(const EngineProfile& engine) { return engine.title + " " + engine.version; }

bool has_feature(const EngineProfile& engine, const Strategy& s) {
  const auto features = rules_of(engine).features;
  return std::find(features.begin(), features.end(), s.launched_as) != features.end();
}

bool answers_alone(const EngineProfile& engine, const Strategy& s) {
  const auto features = rules_of(engine).answers_alone;
  return std::find(features.begin(), features.end(), s.launched_as) != features.end();
}

std::optional<Refusal> does_not_pair(const EngineProfile& engine, const Case& c, const Plan& prefill,
                                     const Plan& decode) {
  for (const PairRule& rule : rules_of(engine).pairs) {
    if (auto complaint = rule.refuses(c, prefill, decode))
      return Refusal{rule.id, rule.says, std::move(*complaint), rule.source};
  }
  return std::nullopt;
}

std::vector<std::string> engines_with(LaunchedAs feature) {
  std::vector<std::string> out;
  for (const LaunchRules* rules : kRules) {
    if (std::find(rules->features.begin(), rules->features.end(), feature) != rules->features.end())
      out.push_back(title_of(*rules));
  }
  return out;
}

std::string engine_names_of(const Strategy& s) {
  std::string out;
  for (const LaunchRules* rules : kRules) {
    if (std::find(rules->features.begin(), rules->features.end(), s.launched_as) != rules->features.end())
      out += (out.empty() ? "" : " ") + std::string(rules->engine);
  }
  return out.empty() ? "none" : out;
}

std::optional<CaseRefusal> does_not_start(const Case& c) {
  if (c.engine == nullptr) return std::nullopt;
  const LaunchRules& rules = rules_of(*c.engine);
  return refused_case(rules, rules.cases, c);
}

std::optional<CaseRefusal> does_not_read(const Case& c) {
  if (c.engine == nullptr) return std::nullopt;
  for (const CaseRule& rule : rules_of(*c.engine).cases) {
    if (std::string_view(rule.id) == "weight_files") return first_of(std::span(&rule, 1), c);
  }
  return std::nullopt;
}

std::string started_unpriced(const Model& m, const EngineProfile* engine) {
  if (engine == nullptr || !m.checkpoint || m.checkpoint->unread.empty() || m.checkpoint->method.empty())
    return "";
  return title_of(*engine) + " reads these files, by kernels that nobody here has measured";
}

std::optional<CaseRefusal> has_no_price(const Case& c) {
  if (c.engine == nullptr) return std::nullopt;
  const LaunchRules& rules = rules_of(*c.engine);
  return refused_case(rules, rules.unpriced, c);
}

std::optional<Refusal> does_not_start(const Case& c, const Plan& plan) {
  return c.engine == nullptr ? std::nullopt : refused_by(rules_of(*c.engine), c, plan);
}

std::optional<Refusal> refused_by(const std::string& engine, const Case& c, const Plan& plan) {
  return refused_by(rules_named(engine), c, plan);
}

int dense_ranks_under(const std::string& engine, const Case& c, const Plan& plan) {
  return rules_named(engine).layout(c, plan).dense;
}

std::optional<int> block_of(const std::string& engine, const Case& c) {
  const LaunchRules& rules = rules_named(engine);
  return rules.block == nullptr ? std::nullopt : rules.block(c);
}

int own_block_of(const std::string& engine, const Case& c) {
  return block_of(engine, c).value_or(rules_named(engine).own_block);
}

std::string variable_for_long_context(const std::string& engine) { return rules_named(engine).long_context; }

std::string length_rule(const EngineProfile& engine) {
  const LaunchRules& rules = rules_of(engine);
  const auto at = std::find_if(rules.cases.begin(), rules.cases.end(),
                               [](const CaseRule& r) { return std::string_view(r.id) == "context"; });
  SL_CHECK(at != rules.cases.end(), "every engine has a rule of lengths");
  return fmt::format("{}: {} ({}); {}=1 lifts it there", title_of(rules), at->says, at->source,
                     rules.long_context);
}

std::string strategy_rule(const EngineProfile& engine) {
  const LaunchRules& rules = rules_of(engine);
  const auto at = std::find_if(rules.plans.begin(), rules.plans.end(),
                               [](const LaunchRule& r) { return std::string_view(r.id) == "strategy"; });
  SL_CHECK(at != rules.plans.end(), "every engine has a rule of strategies");
  return fmt::format("{} ({})", at->says, at->source);
}

std::optional<std::string> longer_than_model(const Case& c) {
  if (c.model.max_context == 0 || c.longest() <= c.model.max_context) return std::nullopt;
  if (c.engine == nullptr)
    return fmt::format(
        "{} tokens are more than the {} that {} has positions for: bare kernels are timed as "
        "if it had them",
        c.longest(), c.model.max_context, c.model.name);
  if (!c.any_context) return std::nullopt;
  return missing_length_note(c, rules_of(*c.engine));
}

}  // namespace shardline
