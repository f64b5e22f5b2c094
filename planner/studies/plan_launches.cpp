#include "planner/studies/plan_launches.hpp"

#include <algorithm>

#include "planner/scenario/shipped.hpp"

namespace shardline {

std::vector<EngineProfile> engines_of(const Case& c) {
  if (c.engine) return {*c.engine};
  return load_engines(shipped_catalogs().engines);
}

std::vector<Launch> launches_of(const Case& c, const Plan& plan, const std::string& stem, int copies) {
  std::vector<Launch> out;
  const std::vector<Deployment> documented = deployments(c, plan);
  for (const EngineProfile& engine : engines_of(c)) {
    const auto of_engine = [&](const Deployment& d) { return d.profile == engine.name; };
    if (c.engine || std::any_of(documented.begin(), documented.end(), of_engine))
      out.push_back(launch_files(c, plan, engine, stem + "." + engine.name, copies));
  }
  return out;
}

}  // namespace shardline
