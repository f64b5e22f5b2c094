#include "planner/studies/plan_launches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "planner/engines/launch_rules.hpp"
#include "planner/scenario/shipped.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

std::vector<EngineProfile> engines_of(const Case& c) {
  if (c.engine) return {*c.engine};
  return load_engines(shipped_catalogs().engines);
}

namespace {

// Why the engine's own rules refuse the plan, or all plans of the case; nothing where it starts it. Of a case
// that is priced by bare kernels, too: its files start an engine.
std::optional<std::string> not_started(const Case& c, const Plan& plan, const EngineProfile& engine) {
  Case under = started_by(engine, c);
  // Bare kernels have a block that no engine chose; it is of their times only where shards take turns at
  // blocks.
  if (!c.engine && plan.kvp == 1) under.kv_block = own_block_of(engine.name, under);
  const auto text = [&](const Refusal& why) {
    return fmt::format("the engine does not start it: {} ({})", why.text, why.source);
  };
  if (const auto why = does_not_start(under)) return text(*why);
  if (const auto why = does_not_start(under, plan)) return text(*why);
  return std::nullopt;
}

}  // namespace

Launch launch_under_rules(const Case& c, const Plan& plan, const EngineProfile& engine,
                          const std::string& stem, int copies, const ServedOptions* served) {
  // What has no files says more of why than its rules do.
  Launch launch = launch_files(c, plan, engine, stem + "." + engine.name, copies, served);
  const auto why = launch.refused.empty() ? not_started(c, plan, engine) : std::nullopt;
  return why ? Launch{launch.engine, {}, {}, *why} : std::move(launch);
}

Launch launch_pair_under_rules(const ServedHalf& context, const ServedHalf& generation,
                               const EngineProfile& engine, const std::string& stem) {
  Launch launch = launch_pair(context, generation, engine, stem + "." + engine.name);
  if (!launch.refused.empty()) return launch;
  for (const ServedHalf* half : {&context, &generation}) {
    Case of_pair = half->study;
    of_pair.disaggregated = true;
    if (const auto why = not_started(of_pair, half->plan, engine))
      return Launch{launch.engine, {}, {}, fmt::format("{}: {}", to_string(half->plan), *why)};
  }
  return launch;
}

EnginesThatStart::EnginesThatStart(const Case& c) {
  for (const LaunchRules* rules : launch_rules()) {
    const EngineProfile engine = load_engine(rules->engine, rules->version, shipped_catalogs().engines);
    Case under = c;
    if (!c.engine || c.engine->name != engine.name)
      under.engine = std::make_shared<const EngineProfile>(engine);
    Asked asked{engine.name, under, under};
    if (under.engine != c.engine) asked.in_own_blocks.kv_block = own_block_of(engine.name, under);
    asked.runs_own = !does_not_start(asked.in_own_blocks);
    asked.runs_others = !does_not_start(asked.in_blocks_of_case);
    engines_.push_back(std::move(asked));
  }
}

std::string EnginesThatStart::of(const Plan& plan) const {
  std::string out;
  for (const Asked& e : engines_) {
    // Of shards that take turns at blocks these are part of the price, as in not_started().
    const bool own = plan.kvp == 1;
    if (!(own ? e.runs_own : e.runs_others) ||
        does_not_start(own ? e.in_own_blocks : e.in_blocks_of_case, plan))
      continue;
    out += (out.empty() ? "" : " ") + e.name;
  }
  return out.empty() ? "none" : out;
}

std::string unstarted_text(const Case& c, const std::vector<Plan>& plans) {
  if (c.engine) return "";
  const EnginesThatStart starts(c);
  std::vector<const Plan*> nobodys;
  for (const Plan& p : plans) {
    check_cancelled();
    if (starts.of(p) == "none") nobodys.push_back(&p);
  }
  if (nobodys.empty()) return "";
  std::string why;
  const std::vector<Deployment> documented = deployments(c, *nobodys.front());
  for (const EngineProfile& engine : engines_of(c)) {
    const auto of_engine = [&](const Deployment& d) { return d.profile == engine.name; };
    const Case under = started_by(engine, c);
    if (!why.empty() || std::none_of(documented.begin(), documented.end(), of_engine)) continue;
    std::optional<Refusal> refusal = does_not_start(under);
    if (!refusal) refusal = does_not_start(under, *nobodys.front());
    if (refusal)
      why = fmt::format("; {}: {} {} refuses it, {}", to_string(*nobodys.front()), engine.title,
                        engine.version, refusal->text);
  }
  const std::string which = nobodys.size() < plans.size()
                                ? fmt::format("{} of the {} plans", nobodys.size(), plans.size())
                            : plans.size() == 1 ? "the one plan"
                                                : fmt::format("any of the {} plans", plans.size());
  return fmt::format("no engine starts {} of the frontier as priced{}", which, why);
}

std::vector<Launch> launches_of(const Case& c, const Plan& plan, const std::string& stem, int copies) {
  std::vector<Launch> out;
  const std::vector<Deployment> documented = deployments(c, plan);
  for (const EngineProfile& engine : engines_of(c)) {
    const auto of_engine = [&](const Deployment& d) { return d.profile == engine.name; };
    if (!c.engine && std::none_of(documented.begin(), documented.end(), of_engine)) continue;
    out.push_back(launch_under_rules(c, plan, engine, stem, copies));
  }
  return out;
}

}  // namespace shardline
