#include "planner/scenario/shipped.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "models/model/catalog.hpp"
#include "planner/engines/checkpoints.hpp"
#include "planner/engines/model_names.hpp"
#include "planner/scenario/data_folder.hpp"
#include "sim/base/error.hpp"
#include "sim/base/folder.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline {

Catalogs shipped_catalogs() {
  const std::filesystem::path root = find_data().path;
  return {root / "models/catalog", root / "hardware/catalog", root / "scenarios", root / "planner/engines"};
}

std::vector<std::string> scenario_names() {
  std::vector<std::string> names;
  for (const std::filesystem::path& entry : entries_if_there(shipped_catalogs().scenarios)) {
    if (entry.extension() == ".yaml") names.push_back(entry.stem().string());
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

namespace {

// What is no scenario, though it has a name here: a model, which the one-line question takes, or a folder.
void refuse_other_things(const std::string& name, const Catalogs& catalogs) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(name, error);
  const std::vector<std::string> models = catalog_names(catalogs.models);
  if (name_in_any_case(name, models) || looks_like_repository(without_address(name)) ||
      (folder && std::filesystem::exists(std::filesystem::path(name) / "config.json", error)))
    throw UserError(
        {Diagnostic{{},
                    fmt::format("{} is a model, not a scenario", name),
                    {fmt::format("shardline plan {} --system h200-hgx --gpus 8 --input 32K --output 1K, or "
                                 "models: [{}] in a scenario",
                                 shell_word(name), name)}}});
  // A file that is not there: one beside it, or a shipped scenario, may have nearly its name.
  const std::filesystem::path path(name);
  if (!folder && (path.extension() == ".yaml" || path.extension() == ".yml") &&
      std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found) {
    std::vector<std::string> names;
    const std::filesystem::path beside = path.has_parent_path() ? path.parent_path() : ".";
    for (const std::filesystem::path& entry : folder_entries(beside, error)) {
      if (entry.extension() == path.extension()) names.push_back(entry.filename().string());
    }
    std::sort(names.begin(), names.end());
    std::vector<std::string> details;
    if (const std::string near = nearest_name(path.filename().string(), names); !near.empty()) {
      details.push_back(fmt::format("did you mean {}?", (path.parent_path() / near).string()));
    } else if (const std::string shipped = nearest_name(path.stem().string(), scenario_names());
               !shipped.empty()) {
      details.push_back(fmt::format("did you mean {}, a shipped scenario?", shipped));
    }
    throw UserError({Diagnostic{{}, fmt::format("cannot read {}: no such file", name), details}});
  }
  if (folder)
    throw UserError({Diagnostic{{},
                                fmt::format("{} is a folder, not a scenario", name),
                                {"expected a .yaml file, or a name of shardline list scenarios"}}});
}

}  // namespace

Scenario scenario_named(const std::string& name_or_path, const Overrides& given) {
  const Catalogs catalogs = shipped_catalogs();
  const std::filesystem::path path(name_or_path);
  refuse_other_things(name_or_path, catalogs);
  if (path.has_extension() || path.has_parent_path()) return load_scenario(path, catalogs, given);
  const auto names = scenario_names();
  std::error_code error;
  const std::string file = name_or_path + ".yaml";
  const bool beside = std::filesystem::is_regular_file(file, error);
  const bool exact = std::find(names.begin(), names.end(), name_or_path) != names.end();
  const auto named = beside && !exact ? std::nullopt : name_in_any_case(name_or_path, names);
  if (!named) {
    if (beside)
      throw UserError({Diagnostic{
          {}, "unknown scenario " + name_or_path, {fmt::format("did you mean the file {}?", file)}}});
    throw UserError(
        {Diagnostic{{}, "unknown scenario " + name_or_path, expected_one_of(name_or_path, names)}});
  }
  return load_scenario(catalogs.scenarios / (*named + ".yaml"), catalogs, given);
}

}  // namespace shardline
