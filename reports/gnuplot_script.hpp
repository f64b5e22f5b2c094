// What the scripts of all pictures share.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace shardline::gnuplot {

// Okabe and Ito's colours, distinct for colour-blind readers; yellow, the faintest on white, last. Then four
// of Paul Tol's muted ones, whose lines are dashed.
inline constexpr std::array kColors{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00",
                                    "#000000", "#F0E442", "#882255", "#44AA99", "#999933", "#332288"};
inline constexpr const char* kGrey = "#777777";
inline constexpr int kWidth = 1200, kHeight = 800;

inline constexpr const char* kKeyBeside =
    "set key outside right top vertical Left reverse noenhanced samplen 2\n";
inline constexpr const char* kNoData =
    "unset key\nset xrange [0:1]\nset yrange [0:1]\n"
    "set label 2 'no data' at graph 0.5, graph 0.5 center\nplot NaN notitle\n";

/// In single quotes: no escapes, no substitution of `commands`. Lines are joined by an expression.
std::string literal(std::string_view text);
/// Continuation bytes of UTF-8 take no room.
std::size_t letters(std::string_view text);
/// Breaks at spaces so that no line has more than `width` letters, unless one word has.
std::string wrapped(const std::string& text, std::size_t width);

/// Where `item` is among those seen, after adding it if it is new.
template <class T>
std::size_t index_of(std::vector<T>& seen, const T& item) {
  const auto it = std::find(seen.begin(), seen.end(), item);
  if (it != seen.end()) return static_cast<std::size_t>(it - seen.begin());
  seen.push_back(item);
  return seen.size() - 1;
}

/// Terminal and output file (empty: standard output). `terminal`: svg or png (checked).
std::string preamble(const std::string& terminal, const std::string& output_file, int height);
/// The SVG terminal counts in pixels, the others in points.
std::string font(const std::string& terminal, int points);
std::string title_line(const std::string& title, const std::string& terminal);
std::string axis_label(char axis, const std::string& text);

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double v) { low = std::min(low, v), high = std::max(high, v); }
  // Where `v` lies, 0 to 1.
  double place(double v, bool log) const {
    if (!(high > low)) return 0.5;
    return log ? std::log(v / low) / std::log(high / low) : (v - low) / (high - low);
  }
};

}  // namespace shardline::gnuplot
