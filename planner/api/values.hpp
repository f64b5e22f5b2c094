// What results are made of. Units are in the names of fields: _s seconds, _bytes bytes, _gpu per GPU, _user
// per user.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "planner/api/fields.hpp"

namespace shardline::api {

/// Of a number that is not known; null in JSON.
inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct Estimate {
  double value = kUnknown;
  double low = kUnknown;
  double high = kUnknown;
};
template <>
struct Fields<Estimate> {
  static constexpr const char* name = "Estimate";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "A predicted number with its nominal 90 % interval. What the interval is by stands in "
      "Setting.intervals.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("value", &Estimate::value, "in the unit that ends the name of the field that holds the estimate");
    field("low", &Estimate::low, "lower end; null where the error was not measured");
    field("high", &Estimate::high, "upper end, likewise");
  }
};

struct Shares {
  double measured = 0;
  double fitted = 0;
  double extrapolated = 0;
  double assumed = 0;
};
template <>
struct Fields<Shares> {
  static constexpr const char* name = "Shares";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "What a time rests on: parts of it, from 0 to 1. They add up to 1, or are all 0 where nothing takes "
      "time.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("measured", &Shares::measured, "a kernel of this machine, among the shapes that were measured");
    field("fitted", &Shares::fitted, "fitted parameters, of an operation that was not measured itself");
    field("extrapolated", &Shares::extrapolated,
          "beyond the shapes that were measured, or borrowed from another machine (Costs.borrowed_from)");
    field("assumed", &Shares::assumed, "parameters of the system file alone");
  }
};

struct Diagnostic {
  std::string file;
  int line = 0;
  int column = 0;
  std::string key;
  std::string message;
  std::vector<std::string> details;
};
template <>
struct Fields<Diagnostic> {
  static constexpr const char* name = "Diagnostic";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A fault of an input, or a warning.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("file", &Diagnostic::file, "empty where it has no place in a text");
    field("line", &Diagnostic::line, "from 1; 0 likewise");
    field("column", &Diagnostic::column, "from 1; 0 likewise");
    field("key", &Diagnostic::key,
          "path of the key at fault (`workload.input`, `gpus[2]`; of a missing one its own), column of a "
          "table, key of a plan's text, name of an argument; empty: of none");
    field("message", &Diagnostic::message, "what is wrong");
    field("details", &Diagnostic::details, "what was expected, the nearest valid name");
  }
};

}  // namespace shardline::api
