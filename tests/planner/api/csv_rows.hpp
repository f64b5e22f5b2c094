// Cells of CSV files beside numbers of documents.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/planner/api/document.hpp"

namespace shardline::api {

inline std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

/// Rows by the names of their columns.
inline std::vector<std::map<std::string, std::string>> rows_of(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  // Lines in front of the header say where the numbers are from.
  while (std::getline(in, line) && line[0] == '#') {
  }
  const std::vector<std::string> header = cells_of(line);
  std::vector<std::map<std::string, std::string>> out;
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = cells_of(line);
    EXPECT_EQ(cells.size(), header.size());
    out.emplace_back();
    for (std::size_t i = 0; i < header.size(); ++i) out.back()[header[i]] = cells[i];
  }
  return out;
}

/// Of the cell, in `unit` times that of the document: the last digit may differ. An empty cell is null.
inline void expect_number(const std::string& cell, const Json& value, double unit, const std::string& where) {
  if (cell.empty()) {
    EXPECT_TRUE(value.is_null()) << where;
    return;
  }
  ASSERT_TRUE(value.is_number()) << where << " " << value;
  EXPECT_DOUBLE_EQ(std::strtod(cell.c_str(), nullptr), value.get<double>() * unit) << where;
}

}  // namespace shardline::api
