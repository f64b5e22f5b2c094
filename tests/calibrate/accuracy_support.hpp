// Hand-made calibrations, and rows of the tables in reports/accuracy.md.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/validate/accuracy.hpp"

namespace shardline::cli {

inline const std::filesystem::path kCatalog = SHARDLINE_SOURCE_DIR "/hardware/catalog";

inline FitError error(double median, double p90) { return {100, median, p90, 2 * p90, 0.01}; }

inline KernelFit made(const char* family, std::vector<std::string> words, FitError corrected) {
  KernelFit f;
  f.form = find_form(family);
  f.words = std::move(words);
  f.roofline = error(0.3, 0.6);
  f.alone = error(0.1, 0.2);
  f.corrected = corrected;
  for (const FormParameter& p : f.form->parameters) {
    f.parameters.push_back(p.start);
    f.low.push_back(p.start);
    f.high.push_back(p.start);
  }
  f.range_low.assign(f.form->axes.size(), 0);
  f.range_high.assign(f.form->axes.size(), 10);
  return f;
}

inline System made_system(std::vector<KernelFit> fits) {
  System s = load_system("h100-hgx", kCatalog);
  s.name = "made";
  s.calibration = {};
  s.calibration.source = "invented";
  s.calibration.hash = "0123";
  s.calibration.date = "2026-01-01";
  s.calibration.version = "1";
  s.calibration.fits = std::move(fits);
  return s;
}

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
