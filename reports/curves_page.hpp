// A page of curves and tables: what pictures show, to be read closely. One file that opens without a network.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "reports/plot.hpp"

namespace shardline {

struct CurvesTable {
  std::string caption;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // each as long as the header; the first cell names the row
};

/// Texts are plain, never HTML. Of plots lines and open squares are shown: bands and diagonals are not
/// (checked).
struct CurvesPage {
  std::string title, summary, command, version;
  std::vector<std::pair<std::string, std::string>> lines{};  // name and text, below the summary
  std::vector<CurvesTable> tables{};
  std::vector<Plot> plots{};
};

/// The page as HTML with Vega's modules inlined; without them it keeps all but its charts, and says which
/// Debian package they need.
std::string curves_page_html(const CurvesPage& page, const std::vector<std::filesystem::path>& vega);
std::string curves_page_html(const CurvesPage& page);

}  // namespace shardline
