// The models, systems and scenarios that come with the program.
#pragma once

#include "planner/scenario/scenario.hpp"

namespace shardline {

/// Where the catalogues are (data_folder.hpp). Throws UserError where there are none.
Catalogs shipped_catalogs();

/// Names of the shipped scenarios, sorted.
std::vector<std::string> scenario_names();

/// A scenario by path, or by the name of a shipped one. `costs` ("calibrated", "parameters") and `engine` go
/// before what the file says; empty: as it says. Throws UserError.
Scenario scenario_named(const std::string& name_or_path, const std::string& costs = "",
                        const std::string& engine = "");
Scenario scenario_named(const std::string& name_or_path, const Overrides& overrides);
/// What --costs says; empty: nothing.
std::optional<Costs> costs_named(const std::string& costs);

}  // namespace shardline
