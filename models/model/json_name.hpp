// Names in JSON, which stand in quotes: 7, true and NaN are texts of a Reader, too, but name nothing.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include "sim/base/reader.hpp"

namespace shardline {

/// Whether a text could be one of JSON's values without quotes, or what Python writes of no number.
inline bool literal(std::string_view text) {
  if (text == "true" || text == "false") return true;
  double number = 0;  // of "Infinity" and "NaN", too
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error != std::errc::invalid_argument && at == end;
}

/// The name that a text of JSON is, of a class, a method or a matrix; a fault where it is a literal, in
/// quotes or not: none is called so.
inline std::string json_name(const Reader& at) {
  std::string name = at.text();
  if (!at.is_scalar() || !literal(name)) return name;
  constexpr std::size_t kShown = 40;
  at.fault(at.path() + ": expected a text in quotes, found " + name.substr(0, kShown));
  return {};
}

}  // namespace shardline
