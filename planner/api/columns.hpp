// Rows as columns: what tables of numbers (numpy, a data frame, a plot) take.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "planner/api/values.hpp"

namespace shardline::api {

/// All of one length, each in the map of its type. An estimate is three columns: `ttl_s`, `ttl_s_low`,
/// `ttl_s_high`; a struct those of its fields: `degrees.pp`. A column that may be null is of `numbers`,
/// where null is kUnknown, or of `texts`, where it is empty. Booleans are 1 and 0.
struct Columns {
  std::vector<std::string> names;  // of all columns, in the order of the field list
  std::map<std::string, std::vector<double>> numbers;
  std::map<std::string, std::vector<std::int64_t>> integers;
  std::map<std::string, std::vector<std::uint8_t>> booleans;
  std::map<std::string, std::vector<std::string>> texts;
};

namespace detail {

template <class T>
inline constexpr bool is_described = false;
template <class T>
requires requires { Fields<T>::name; }
inline constexpr bool is_described<T> = true;

template <class T>
inline constexpr bool is_text =
    std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<std::string>> ||
    std::is_same_v<T, std::map<std::string, std::string>>;

template <class T>
constexpr bool is_cell();
template <class T>
constexpr bool all_fields_are_cells() {
  bool all = true;
  Fields<T>::visit([&]<class M>(const char*, M T::*, const char*) { all = all && is_cell<M>(); });
  return all;
}
template <class T>
constexpr bool is_cell() {
  if constexpr (is_optional<T>) {
    return is_cell<typename T::value_type>();
  } else if constexpr (is_described<T>) {
    return all_fields_are_cells<T>();
  } else {
    return std::is_arithmetic_v<T> || is_text<T>;
  }
}

inline std::string cell_text(const std::string& text) { return text; }
inline std::string cell_text(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : ", ") + text;
  return out;
}
inline std::string cell_text(const std::map<std::string, std::string>& options) {
  std::string out;
  for (const auto& [key, of] : options) out += (out.empty() ? "" : ",") + key + "=" + of;
  return out;
}

// `get` finds the value in a row, or null; `nullable` says whether it may be null in some row.
template <class T, class Row, class Get>
void add_column(Columns& columns, const std::string& name, const std::vector<Row>& rows, bool nullable,
                Get get) {
  const auto fill = [&](auto& column, auto cell) {
    columns.names.push_back(name);
    column.reserve(rows.size());
    for (const Row& row : rows) column.push_back(cell(get(row)));
  };
  if constexpr (std::is_same_v<T, Estimate>) {
    const auto part = [&](const std::string& suffix, double Estimate::*member) {
      add_column<double>(columns, name + suffix, rows, nullable, [&](const Row& row) {
        const Estimate* value = get(row);
        return value != nullptr ? &(value->*member) : nullptr;
      });
    };
    part("", &Estimate::value);
    part("_low", &Estimate::low);
    part("_high", &Estimate::high);
  } else if constexpr (is_optional<T>) {
    add_column<typename T::value_type>(columns, name, rows, true, [&](const Row& row) {
      const T* value = get(row);
      return value != nullptr && value->has_value() ? &**value : nullptr;
    });
  } else if constexpr (is_described<T>) {
    Fields<T>::visit([&]<class M>(const char* field, M T::*member, const char*) {
      add_column<M>(columns, name + "." + field, rows, nullable, [&](const Row& row) {
        const T* value = get(row);
        return value != nullptr ? &(value->*member) : nullptr;
      });
    });
  } else if constexpr (is_text<T>) {
    fill(columns.texts[name],
         [](const T* value) { return value != nullptr ? cell_text(*value) : std::string(); });
  } else {
    static_assert(std::is_arithmetic_v<T>, "rows that hold lists of structs are no table");
    if (std::is_floating_point_v<T> || nullable) {
      fill(columns.numbers[name],
           [](const T* value) { return value != nullptr ? static_cast<double>(*value) : kUnknown; });
    } else if (std::is_same_v<T, bool>) {
      fill(columns.booleans[name], [](const T* value) { return static_cast<std::uint8_t>(*value); });
    } else {
      fill(columns.integers[name], [](const T* value) { return static_cast<std::int64_t>(*value); });
    }
  }
}

}  // namespace detail

/// Whether columns_of() takes rows of T: structs with a field list that hold no lists but of texts.
template <class T>
inline constexpr bool is_row = detail::is_described<T>&& detail::is_cell<T>();

/// All columns, empty ones of no rows.
template <class T>
Columns columns_of(const std::vector<T>& rows) {
  static_assert(is_row<T>);
  Columns out;
  Fields<T>::visit([&]<class M>(const char* field, M T::*member, const char*) {
    detail::add_column<M>(out, field, rows, false, [&](const T& row) { return &(row.*member); });
  });
  return out;
}

}  // namespace shardline::api
