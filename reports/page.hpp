// The interactive page of a sweep: every plan in one chart, with filters and a table of the frontier. One
// file that opens without a network.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace shardline {

/// One plan that fits. Quantities that are not finite are shown as a dash and left out of the chart.
struct PagePoint {
  std::string strategy, plan;
  std::string command;  // simulates this plan; a click copies it
  int gpus = 0;
  long long batch = 0;
  long long at_once = 0;  // users or requests, as Page::at_once_label says
  double time_ms = 0;     // as Page::time_label says: TTL or TTFT
  double x = 0, y = 0;    // of the chart; more is better on both
  double memory_gb = 0;   // per GPU
  bool frontier = false;  // on the overall frontier; drawn with a ring
  // Parts of the time by what it rests on: they add up to 1, or are all 0 where that is not known. Open
  // marks: more than half is extrapolated or assumed.
  double measured = 0, fitted = 0, extrapolated = 0, assumed = 0;
  double attention_computed = 1;  // part of the exact attention; a column where one is below 1
  // Nominal 90 % of the time, in parts of it: the truth lies between 1 + low and 1 + high times. Both axes
  // are rates, which go with its inverse. 0, 0: not known.
  double time_low = 0, time_high = 0;
};

/// Texts are plain, never HTML. A scenario of several lines is shown folded.
struct Page {
  std::string title, summary, scenario, command, version;
  std::vector<PagePoint> points;
  std::string costs{};  // where they are from, in a line; empty: not said
  std::string time_label = "TTL (ms)", x_label = "Tokens/s per user", y_label = "Tokens/s per GPU";
  std::string at_once_label = "Users";
};

/// Vega's module files as found when this program was configured; empty without Debian's libjs-vega.
std::vector<std::filesystem::path> vega_files();

/// The page as HTML with Vega's modules inlined. When one of `vega` cannot be read, or there is none, the
/// page keeps its filters and table, and says which Debian package the chart needs.
std::string page_html(const Page& page, const std::vector<std::filesystem::path>& vega);
std::string page_html(const Page& page);

}  // namespace shardline
