// Shared by the planner's tests.
#pragma once

#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "planner/search/evaluate.hpp"

namespace shardline {

template <int T, int B, int F>
void PrintTo(Quantity<T, B, F> q, std::ostream* out) {
  out->precision(17);
  *out << q.value;
}

/// Path inside the source tree.
std::filesystem::path source_path(const std::string& relative);

/// A catalogue model on a catalogue system with FP4 everywhere (Precision::all_fp4), uniform routing and mean
/// expert load.
Case decode_case(const std::string& model, const std::string& system, long long context);

/// BF16 throughout.
Precision all_bf16();

/// The schedule of a plan's text, which passes check_plan().
Schedule lowered(const Case& c, const std::string& plan);
std::vector<Op> ops_named(const Schedule& s, std::string_view name);

/// Why the plan of a text is refused, when it is read or when it is checked; empty: it is not.
std::string refusal(const Case& c, const std::string& plan);

}  // namespace shardline
