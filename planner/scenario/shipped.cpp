#include "planner/scenario/shipped.hpp"

#include <algorithm>

#include "planner/scenario/data_folder.hpp"

namespace shardline {

Catalogs shipped_catalogs() {
  const std::filesystem::path root = find_data().path;
  return {root / "models/catalog", root / "hardware/catalog", root / "scenarios", root / "planner/engines"};
}

std::vector<std::string> scenario_names() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(shipped_catalogs().scenarios, error)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Scenario scenario_named(const std::string& name_or_path, const std::string& costs,
                        const std::string& engine) {
  return scenario_named(name_or_path, Overrides{costs_named(costs), engine});
}

std::optional<Costs> costs_named(const std::string& costs) {
  if (costs.empty()) return std::nullopt;
  return costs == "parameters" ? Costs::parameters : Costs::calibrated;
}

Scenario scenario_named(const std::string& name_or_path, const Overrides& given) {
  const Catalogs catalogs = shipped_catalogs();
  const std::filesystem::path path(name_or_path);
  if (path.has_extension() || path.has_parent_path()) return load_scenario(path, catalogs, given);
  const auto names = scenario_names();
  if (std::find(names.begin(), names.end(), name_or_path) == names.end()) {
    throw UserError(
        {Diagnostic{{}, "unknown scenario " + name_or_path, expected_one_of(name_or_path, names)}});
  }
  return load_scenario(catalogs.scenarios / (name_or_path + ".yaml"), catalogs, given);
}

}  // namespace shardline
