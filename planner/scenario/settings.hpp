// KEY=VALUE of a command line (--set) in a scenario and in the file of its system.
#pragma once

#include <string>
#include <vector>

#include "planner/scenario/scenario.hpp"

namespace shardline::scenario_parts {

/// Settings of the scenario's own keys.
void set_keys(Document& document, const Overrides& overrides);
/// A system with settings of its file's keys. Their faults are added to `faults`, and the system is then what
/// its file says: they are listed beside those of the scenario.
System load_set_system(const std::string& name, const Catalogs& catalogs, const Overrides& overrides,
                       std::vector<Diagnostic>& faults);
/// Throws UserError with the document's faults and `faults`. Of an unknown key in a setting it says the keys
/// of system files that are like it.
void finish(const Document& document, std::vector<Diagnostic> faults);

}  // namespace shardline::scenario_parts
