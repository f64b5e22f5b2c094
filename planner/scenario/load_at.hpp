// Files that a scenario names.
#pragma once

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/reader.hpp"

namespace shardline::scenario_parts {

/// `load` of the text at `r`. An error while loading a named model, system or table is reported where the
/// scenario names it; nothing is returned then.
template <class Load>
auto load_at(const Reader& r, Load load) -> std::optional<decltype(load(r.text()))> {
  const std::string name = r.text();
  if (name.empty()) {
    if (r.is_scalar()) r.fault(r.path() + " is empty");
    return std::nullopt;
  }
  try {
    return load(name);
  } catch (const UserError& e) {
    if (e.diagnostics().size() == 1 && e.diagnostics()[0].where.line == 0) {
      r.fault(e.diagnostics()[0].what, e.diagnostics()[0].details);
    } else {
      std::vector<std::string> lines;
      std::istringstream what(e.what());
      for (std::string line; std::getline(what, line);) lines.push_back("  " + line);
      r.fault(r.text() + " has faults of its own", std::move(lines));
    }
    return std::nullopt;
  }
}

}  // namespace shardline::scenario_parts
