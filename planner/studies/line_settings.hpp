// Settings (--set) beside a question of one line: which say what an option says, and what they change.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardline {

/// Throws UserError, with the place in the setting, of those that an option of the line says: of
/// "workload.users=12" beside --users nobody could tell which one holds.
void require_beside_line(const std::vector<std::string>& settings);

/// Whether one of them is of the key or of one below it.
bool sets_key(const std::vector<std::string>& settings, std::string_view key);

/// "; with gpus=[2] and batch=4": those of the scenario, in the order given; empty: none. Those of the system
/// are behind its name (set_text).
std::string scenario_settings_text(const std::vector<std::string>& settings);

}  // namespace shardline
