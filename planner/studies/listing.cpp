#include "planner/studies/listing.hpp"

#include "models/model/catalog.hpp"
#include "planner/scenario/shipped.hpp"

namespace shardline {

std::vector<ListedModel> list_models(const Catalogs& catalogs) {
  std::vector<ListedModel> out;
  for (const std::string& name : catalog_names(catalogs.models)) {
    const Model m = load_model(name, catalogs.models);
    out.push_back({name, m, parameter_count(m), active_parameters(m),
                   kv_bytes_per_token(m, bytes_per_element(Dtype::fp4))});
  }
  return out;
}

std::vector<ListedSystem> list_systems(const Catalogs& catalogs) {
  std::vector<ListedSystem> out;
  for (const std::string& name : system_names(catalogs.systems))
    out.push_back({name, load_system(name, catalogs.systems)});
  return out;
}

std::vector<ListedScenario> list_scenarios() {
  std::vector<ListedScenario> out;
  for (const std::string& name : scenario_names()) out.push_back({name, scenario_named(name).summary});
  return out;
}

}  // namespace shardline
