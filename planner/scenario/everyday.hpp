// What people write who know serving engines, and what a scenario calls it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/base/reader.hpp"

namespace shardline::scenario_parts {

/// Throws UserError where the text is no scenario at all but a model's config.json, a model or a system.
void refuse_other_documents(const Reader& root);

/// What a scenario has in place of a key of engines and benchmarks (tp, max_model_len, isl); empty: it is
/// none of those.
std::vector<std::string> instead_of(std::string_view key);

/// Whether `precision` is one type ("fp8") and `models` a mapping ({name: x}), which is then told with the
/// form that they have.
bool is_one_type(const Reader& precision);
bool is_one_model(const Reader& models);

/// The same of keys inside workload, constraints, degrees and precision.
std::vector<std::string> instead_in_workload(std::string_view key);
std::vector<std::string> instead_in_constraints(std::string_view key);
std::vector<std::string> instead_in_degrees(std::string_view key);
std::vector<std::string> instead_in_precision(std::string_view key);

/// "tensor" of "tp", where the name is one that engines give a strategy; empty: it is none of those.
std::string strategy_of_engines(const std::string& name);

}  // namespace shardline::scenario_parts
