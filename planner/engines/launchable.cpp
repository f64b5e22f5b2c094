#include "planner/engines/launchable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/engines/launch_rules.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr std::array kRules{&kTrtllmRules, &kVllmRules, &kSglangRules};

const LaunchRules& rules_named(const std::string& engine) {
  const auto of = [&](const LaunchRules* rules) { return engine == rules->engine; };
  const auto at = std::find_if(kRules.begin(), kRules.end(), of);
  SL_CHECK(at != kRules.end(), "every engine that is deployed has rules");
  return **at;
}

std::optional<CaseRefusal> first_of(std::span<const CaseRule> rules, const Case& c) {
  for (const CaseRule& rule : rules) {
    if (auto complaint = rule.refuses(c))
      return CaseRefusal{{rule.id, rule.says, std::move(complaint->text), rule.source},
                         std::move(complaint->key),
                         std::move(complaint->instead)};
  }
  return std::nullopt;
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

std::optional<Refusal> does_not_pair(const EngineProfile& engine, const Plan& prefill, const Plan& decode) {
  for (const PairRule& rule : rules_of(engine).pairs) {
    if (auto complaint = rule.refuses(prefill, decode))
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
  return first_of(rules_of(*c.engine).cases, c);
}

std::optional<CaseRefusal> has_no_price(const Case& c) {
  if (c.engine == nullptr) return std::nullopt;
  return first_of(rules_of(*c.engine).unpriced, c);
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

std::string variable_for_long_context(const std::string& engine) { return rules_named(engine).long_context; }

std::string length_rule(const EngineProfile& engine) {
  const LaunchRules& rules = rules_of(engine);
  const auto at = std::find_if(rules.cases.begin(), rules.cases.end(),
                               [](const CaseRule& r) { return std::string_view(r.id) == "context"; });
  SL_CHECK(at != rules.cases.end(), "every engine has a rule of lengths");
  return fmt::format("{}: {} ({}); {}=1 lifts it there", title_of(rules), at->says, at->source,
                     rules.long_context);
}

std::optional<std::string> longer_than_model(const Case& c) {
  if (c.engine == nullptr || !c.any_context || c.longest() <= c.model.max_context) return std::nullopt;
  return missing_length_note(c, rules_of(*c.engine));
}

}  // namespace shardline
