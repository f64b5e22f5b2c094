// Points and rules of "pass KV or pass Q" as CSV and JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/threshold_header.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// One request, both times and what each rule chose.
struct ThresholdRow {
  int ranks = 0;
  long long fresh = 0, cached = 0;
  Seconds pass_kv, pass_q;
  bool test = false;                 // else the rules were derived from it
  std::vector<bool> pass_kv_chosen;  // one per rule
  std::optional<bool> told_apart{};  // whether the faster is that by more than prices may be off, where known
};

/// Lines "# key: value" with the provenance, then a header line and one line per row. A column per rule holds
/// pass_kv or pass_q.
std::string threshold_csv(const ThresholdProvenance& provenance, const std::vector<std::string>& rules,
                          const std::vector<ThresholdRow>& rows);

/// What a rule's choices cost on the test points of one ring size.
struct ThresholdRegret {
  std::string rule;
  int ranks = 0;
  std::size_t points = 0, right = 0;
  double mean = 0, p99 = 0, worst = 0;  // time(chosen) / min(both) - 1
  long long worst_fresh = 0, worst_cached = 0;
};

/// Provenance, the rules with their parameters and tables, and the regrets; `in_context`, a JSON value, what
/// the rules cost on recorded requests (empty: null).
std::string threshold_json(const ThresholdRules& rules, const std::vector<ThresholdRegret>& regrets,
                           std::string_view in_context = {});

}  // namespace shardline
