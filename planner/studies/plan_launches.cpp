#include "planner/studies/plan_launches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "planner/engines/launchable.hpp"
#include "planner/scenario/shipped.hpp"

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
  if (!c.engine && plan.kvp == 1) under.kv_block = block_of(engine.name, under).value_or(under.kv_block);
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
