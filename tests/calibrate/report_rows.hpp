// Rows of the tables in reports/accuracy.md.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace shardline::cli {

/// The cells of every line of `text` that is a table row with `first` in its first cell.
inline std::vector<std::vector<std::string>> rows_with(const std::string& text, const std::string& first) {
  std::vector<std::vector<std::string>> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("|")) continue;
    std::vector<std::string> cells;
    std::istringstream in(line.substr(1));
    for (std::string cell; std::getline(in, cell, '|');) {
      const std::size_t from = cell.find_first_not_of(' '), to = cell.find_last_not_of(' ');
      cells.push_back(from == std::string::npos ? "" : cell.substr(from, to - from + 1));
    }
    if (!cells.empty() && cells[0] == first) out.push_back(cells);
  }
  return out;
}

}  // namespace shardline::cli
