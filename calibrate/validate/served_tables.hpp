// What a profile says of the measurements behind its errors beside what plans need: errors by how models were
// laid out, and the rows that were left out. calibrate/README.md [F10].
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "calibrate/validate/served_fit.hpp"

namespace shardline {

/// Measured rows of an engine that its numbers were not fitted to, nor judged by.
struct ServedLeftOut {
  std::string why;
  int rows = 0;
  bool ttft_alone = false;  // their TPOT counts
  /// Of their TPOT by the numbers of the profile, which saw none of them; of no rows where that says nothing.
  ServedError priced = {};
};

struct ServedDetails {
  std::vector<ServedError> layouts;
  int measured = 0;  // rows of the engine in the tables, those left out included; 0: not known
  std::vector<ServedLeftOut> left_out;
  std::vector<ServedCoverage> ttft_covered, tpot_covered;
  /// One or none: TPOT had every row the other kind of host than its engine's source says.
  std::vector<ServedError> other_host;
  std::vector<MeasuredVersion> versions;  // of the rows that are used
};

inline constexpr std::size_t kFewestLaidOut = 5;

/// TPOT of rows of models left out, by layout ("TP 8", "attention DP 8", "PP 2 x TP 4"), then by model,
/// system and layout where there are `kFewestLaidOut` rows or more. Parts of one: |predicted / measured - 1|
/// and its sign.
std::vector<ServedError> errors_by_layout(const std::vector<LeftOutModel>& models);

/// Of `host.error` of a profile: what served_details_yaml() wrote; nothing where it has none. Throws
/// UserError with every fault.
ServedDetails load_served_details(const std::filesystem::path& profile);
std::string served_details_yaml(const ServedDetails& details);
/// Lines of a list `tables` or `layouts`, with so many digits that a report which rounds them says what
/// `calibrate` printed.
std::string served_errors_yaml(const std::vector<ServedError>& errors);

}  // namespace shardline
