#include "planner/scenario/settings.hpp"

#include <algorithm>

namespace shardline::scenario_parts {

namespace {

bool of_setting(const Diagnostic& d) { return d.where.file == kSettingOrigin; }

}  // namespace

void set_keys(Document& document, const Overrides& overrides) {
  for (const std::string& setting : overrides.settings) {
    if (!sets_system(setting)) document.set(kSettingOrigin, setting);
  }
}

System load_set_system(const std::string& name, const Catalogs& catalogs, const Overrides& overrides,
                       std::vector<Diagnostic>& faults) {
  try {
    return load_system(name, catalogs.systems, system_settings(overrides.settings));
  } catch (const UserError& e) {
    const auto all = e.diagnostics();
    if (std::none_of(all.begin(), all.end(), of_setting)) throw;
    faults.assign(all.begin(), all.end());
    return load_system(name, catalogs.systems);
  }
}

void finish(const Document& document, std::vector<Diagnostic> faults) {
  try {
    document.finish();
  } catch (const UserError& e) {
    for (Diagnostic d : e.diagnostics()) {
      if (of_setting(d) && d.what.starts_with("unknown key ")) {
        if (auto like = system_keys_like(d.where.source_line); !like.empty()) d.details = std::move(like);
      }
      faults.push_back(std::move(d));
    }
  }
  if (!faults.empty()) throw UserError(std::move(faults));
}

}  // namespace shardline::scenario_parts
