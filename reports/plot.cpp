#include "reports/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>
#include <string_view>

#include "reports/gnuplot_script.hpp"
#include "reports/json.hpp"
#include "sim/base/error.hpp"

namespace shardline {

using namespace gnuplot;

namespace {

constexpr std::size_t kSolid = 8;
constexpr std::array kMarks{7, 5, 9, 13, 11, 15, 8, 10};  // gnuplot point types with distinct shapes
// In the order of PlotStyle. gnuplot's "fsteps" has the height of the right point, "steps" of the left one.
constexpr std::array kStyles{"lines", "points", "fsteps", "linespoints", "points", "points", "points"};
using Points = std::vector<std::pair<double, double>>;

const char* style_name(PlotStyle style, bool less_x) {
  return style == PlotStyle::steps && less_x ? "steps" : kStyles[static_cast<std::size_t>(style)];
}

std::string tic_text(double v, bool prefixed) {
  if (!prefixed || v == 0) return fmt::format("{:.6g}", v);
  const int group = std::clamp(static_cast<int>(std::floor(std::log10(std::abs(v)) / 3 + 1e-9)), 0, 4);
  constexpr std::array kPrefixes{"", "k", "M", "G", "T"};
  return fmt::format("{:.6g}{}", v / std::pow(1000.0, group), kPrefixes[static_cast<std::size_t>(group)]);
}

// Own marks on both kinds of axis: gnuplot labels only the powers of ten of a logarithmic one.
std::vector<double> log_tics(double low, double high) {
  std::vector<double> tics;
  const double decades = std::log10(high / low);
  const int step = decades > 10 ? static_cast<int>(decades / 5) : 1;
  for (int e = static_cast<int>(std::floor(std::log10(low))); e <= std::log10(high); e += step) {
    for (const int m : {1, 2, 3, 5, 7}) {
      const bool wanted = m == 1 || decades <= 1 || (decades <= 3 && (m == 2 || m == 5));
      const double v = m * std::pow(10.0, e);
      if (wanted && v >= low && v <= high) tics.push_back(v);
    }
  }
  return tics;
}

std::vector<double> linear_tics(double low, double high) {
  const double rough = (high - low) / 9;
  const double decade = std::pow(10.0, std::floor(std::log10(rough)));
  const double step = decade * (rough > 5 * decade     ? 10
                                : rough > 2.5 * decade ? 5
                                : rough > 2 * decade   ? 2.5
                                                       : 2);
  std::vector<double> tics;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (double k = first; k <= last; ++k) tics.push_back(k * step);
  return tics;
}

std::string axis_scale(char axis, const Range& r, bool log) {
  double low = r.low, high = r.high;
  std::vector<double> tics;
  if (log) {
    low /= 1.15, high *= 1.15;
    tics = log_tics(low, high);
  } else {
    if (low >= 0 && low <= 0.5 * high) low = 0;
    if (!(high - low > 1e-9 * std::abs(high))) {
      const double margin = high == 0 ? 1 : 0.1 * std::abs(high);
      low -= margin, high += margin;
    }
    tics = linear_tics(low, high);
    low = tics.front(), high = tics.back();
  }
  std::string list;
  for (const double v : tics)
    list += fmt::format("{}'{}' {:.10g}", list.empty() ? "" : ", ", tic_text(v, r.high >= 1e5), v);
  return fmt::format("{}set {}range [{:.10g}:{:.10g}]\nset {}tics ({})\n",
                     log ? fmt::format("set logscale {} 10\n", axis) : "", axis, low, high, axis, list);
}

// The legend goes into a corner that no curve enters, or beside the plot.
std::string key_place(const std::vector<Points>& curves, const std::vector<std::string>& names,
                      const Range& x, const Range& y, const Plot& plot) {
  std::size_t longest = 0;
  for (const std::string& name : names) longest = std::max(longest, letters(name));
  const double width = 0.09 + 0.0095 * static_cast<double>(longest);
  const double height = 0.05 + 0.042 * static_cast<double>(names.size());
  for (const std::string corner : {"right top", "left top", "right bottom", "left bottom"}) {
    const auto inside = [&](double u, double v) {
      return (corner.starts_with("right") ? u > 1 - width : u < width) &&
             (corner.ends_with("top") ? v > 1 - height : v < height);
    };
    bool free = width < 0.6 && height < 0.6;
    for (const Points& curve : curves) {
      for (std::size_t i = 0; i < curve.size() && free; ++i) {
        const auto& from = curve[i == 0 ? 0 : i - 1];
        const double u0 = x.place(from.first, plot.log_x), v0 = y.place(from.second, plot.log_y);
        const double u1 = x.place(curve[i].first, plot.log_x), v1 = y.place(curve[i].second, plot.log_y);
        for (int k = 0; k <= 16 && free; ++k)
          free = !inside(u0 + (u1 - u0) * k / 16, v0 + (v1 - v0) * k / 16);
      }
    }
    if (free) return fmt::format("set key inside {} vertical Left reverse noenhanced samplen 2\n", corner);
  }
  return kKeyBeside;
}

Points staircase(const Points& corners, bool less_x) {
  Points out;
  for (const auto& corner : corners) {
    if (!out.empty())
      out.push_back(less_x ? std::pair(corner.first, out.back().second)
                           : std::pair(out.back().first, corner.second));
    out.push_back(corner);
  }
  return out;
}

std::string footnote_lines(const std::string& text, const std::string& terminal) {
  if (text.empty()) return "";
  const std::string lines = wrapped(text, 150);
  const auto count = 1 + std::count(lines.begin(), lines.end(), '\n');
  return fmt::format("set bmargin {}\nset label 1 {} at screen 0.01, screen {:.4f} left noenhanced {}\n",
                     4 + count, literal(lines), 0.006 + 0.018 * static_cast<double>(count),
                     font(terminal, 10));
}

constexpr bool has_line(PlotStyle style) {
  return style == PlotStyle::line || style == PlotStyle::steps || style == PlotStyle::line_points;
}

// How the series of one name are drawn.
struct LegendEntry {
  std::string color, line, mark;

  // `colored`: how many names have a colour of their own so far.
  void draw(PlotStyle style, std::size_t& colored) {
    const bool grey = style >= PlotStyle::open_points;
    if (color.empty()) {
      index_ = grey ? 0 : colored++;
      color = grey ? kGrey : kColors[index_ % kColors.size()];
    }
    if (has_line(style)) line = index_ % kColors.size() < kSolid ? " lw 2.5" : " lw 2.5 dt 2";
    if (grey)
      mark = style == PlotStyle::open_points ? " pt 6" : style == PlotStyle::open_squares ? " pt 4" : " pt 2";
    else if (style == PlotStyle::points || style == PlotStyle::line_points)
      mark = fmt::format(" pt {}", kMarks[index_ % kMarks.size()]);
  }

 private:
  std::size_t index_ = 0;
};

// The line y = x and what lies a part `band` below and above it.
std::string diagonal_data(double low, double high, double band) {
  std::string out = "$diagonal << EOD\n";
  for (const double v : {low, high})
    out += fmt::format("{:.10g} {:.10g} {:.10g}\n", v, v * (1 - band), v * (1 + band));
  return out + "EOD\n";
}

const std::string kDiagonalCurves =
    "plot $diagonal using 1:2:3 with filledcurves fc rgb '#e6eef5' notitle, \\\n"
    "     $diagonal using 1:1 with lines lc rgb '#8899aa' lw 1.5 notitle, \\\n    ";

// Of each set: the area between the ends of its intervals, and its entry of the legend.
struct BandStyle {
  const char *area, *entry;
};
constexpr BandStyle kBandStyles[] = {
    {"with filledcurves closed fc rgb '#dfe5ec' fs solid border lc rgb '#c3ccd7'",
     "with boxes fc rgb '#dfe5ec' fs solid border lc rgb '#c3ccd7'"},
    {"with filledcurves closed fc rgb '#f3dcbc' fs transparent solid 0.6 border lc rgb '#dfb983'",
     "with boxes fc rgb '#f3dcbc' fs transparent solid 0.6 border lc rgb '#dfb983'"},
};

// One side of a band, from left to right.
Points side_of(Points ends) {
  std::sort(ends.begin(), ends.end());
  return ends;
}

// The frontier of the ends of one side, as an outline that runs from the worst x of all ends, `worst.first`,
// to the worst y of all.
Points frontier_of(const Plot& plot, Points ends, const ErrorBars::End& worst) {
  const auto better = [](bool less, double a, double b) { return less ? a < b : a > b; };
  std::sort(ends.begin(), ends.end(), [&](const ErrorBars::End& a, const ErrorBars::End& b) {
    return a.first != b.first ? better(plot.less_x, a.first, b.first)
                              : better(plot.less_y, a.second, b.second);
  });
  Points out{{ends.front().first, worst.second}};
  for (const ErrorBars::End& e : ends) {
    if (!better(plot.less_y, e.second, out.back().second)) continue;  // another end is as good along both
    out.emplace_back(e.first, out.back().second);
    out.push_back(e);
  }
  out.emplace_back(worst.first, out.back().second);
  std::reverse(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// The outline of the area between all lower ends and all upper ends, of intervals that can be drawn, which
// are added to the ranges. Of a single interval without steps it is a line.
std::string band_data(const Plot& plot, std::size_t set, Range& x, Range& y) {
  const auto drawn = [&](const ErrorBars::End& e) {
    return std::isfinite(e.first) && std::isfinite(e.second) && (e.first > 0 || !plot.log_x) &&
           (e.second > 0 || !plot.log_y);
  };
  const ErrorBars& errors = plot.errors[set];
  Points from, to;
  for (const auto& [low, high] : errors.bars) {
    if (!drawn(low) || !drawn(high)) continue;
    for (const ErrorBars::End& e : {low, high}) x.add(e.first), y.add(e.second);
    from.push_back(low);
    to.push_back(high);
  }
  if (from.empty()) return "";
  ErrorBars::End worst = from.front();
  for (const Points* side : {&from, &to}) {
    for (const auto& [px, py] : *side) {
      worst.first = plot.less_x ? std::max(worst.first, px) : std::min(worst.first, px);
      worst.second = plot.less_y ? std::max(worst.second, py) : std::min(worst.second, py);
    }
  }
  Points outline = errors.steps ? frontier_of(plot, from, worst) : side_of(from);
  const Points back = errors.steps ? frontier_of(plot, to, worst) : side_of(to);
  outline.insert(outline.end(), back.rbegin(), back.rend());
  std::string out = fmt::format("$band{} << EOD\n", set);
  for (const ErrorBars::End& e : outline) out += number_text(e.first) + " " + number_text(e.second) + "\n";
  return out + "EOD\n";
}

// Before the other curves, so that they lie on top; the first band below the second.
void add_bands(const Plot& plot, Range& x, Range& y, std::vector<std::string>& names, std::string& data,
               std::string& commands) {
  SL_CHECK(plot.errors.size() <= std::size(kBandStyles), "there is a style for every set of intervals");
  std::string areas, entries;
  for (std::size_t set = 0; set < plot.errors.size(); ++set) {
    const std::string band = band_data(plot, set, x, y), name = plot.errors[set].name;
    if (band.empty()) continue;
    data += band;
    areas += fmt::format("$band{} using 1:2 {} notitle, \\\n    ", set, kBandStyles[set].area);
    entries += fmt::format(", \\\n     keyentry {} title {}", kBandStyles[set].entry, literal(name));
    names.push_back(name);
  }
  if (!areas.empty()) commands = "plot " + areas + commands.substr(4) + entries;
}

std::string diagonal_entry(const std::string& name) {
  if (name.empty()) return "";
  return fmt::format(", \\\n     keyentry with lines lc rgb '#8899aa' lw 1.5 title {}", literal(name));
}

}  // namespace

std::string gnuplot_script(const Plot& plot, const std::string& terminal, const std::string& output_file) {
  Range x, y;
  std::vector<Points> curves;
  std::vector<std::string> names;
  std::vector<LegendEntry> entries;
  std::size_t colored = 0;
  std::string data, commands;
  for (const PlotSeries& series : plot.series) {
    Points kept;
    for (const auto& [px, py] : series.points)
      if (std::isfinite(px) && std::isfinite(py) && (px > 0 || !plot.log_x) && (py > 0 || !plot.log_y))
        kept.emplace_back(px, py);
    if (kept.empty()) continue;
    std::stable_sort(kept.begin(), kept.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    data += fmt::format("$s{} << EOD\n", curves.size());
    for (const auto& [px, py] : kept) {
      x.add(px), y.add(py);
      data += number_text(px) + " " + number_text(py) + "\n";
    }
    data += "EOD\n";
    const std::size_t i = index_of(names, series.name);
    entries.resize(names.size());
    const bool marked = series.style != PlotStyle::line && series.style != PlotStyle::steps;
    entries[i].draw(series.style, colored);
    commands += fmt::format("{} $s{} using 1:2 with {} lc rgb '{}'{}{} notitle",
                            commands.empty() ? "plot" : ", \\\n    ", curves.size(),
                            style_name(series.style, plot.less_x), entries[i].color,
                            has_line(series.style) ? entries[i].line : "", marked ? entries[i].mark : "");
    curves.push_back(series.style == PlotStyle::steps ? staircase(kept, plot.less_x) : std::move(kept));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    const LegendEntry& e = entries[i];
    const char* style = e.mark.empty() ? "lines" : e.line.empty() ? "points" : "linespoints";
    commands += fmt::format(", \\\n     keyentry with {} lc rgb '{}'{}{} title {}", style, e.color, e.line,
                            e.mark, literal(names[i]));
  }
  std::string out = preamble(terminal, output_file, kHeight) + title_line(plot.title, terminal);
  out +=
      axis_label('x', plot.x_label) + axis_label('y', plot.y_label) + footnote_lines(plot.footnote, terminal);
  out += "set grid lc rgb '#dddddd' lt 1\nset border 3 lc rgb '#444444'\nset tics nomirror out\n";
  if (curves.empty()) return out + kNoData;
  if (plot.diagonal) {
    x.add(y.low), x.add(y.high);
    y = x;
    const double margin = plot.log_x ? 1.15 : 1;  // that of axis_scale()
    const double low = x.low / margin, high = x.high * margin;
    data += diagonal_data(low, high, plot.diagonal->band);
    commands = kDiagonalCurves + commands.substr(4) + diagonal_entry(plot.diagonal->name);
    if (!plot.diagonal->name.empty()) names.push_back(plot.diagonal->name);
    curves.push_back({{low, low}, {high, high}});
  }
  add_bands(plot, x, y, names, data, commands);
  out +=
      axis_scale('x', x, plot.log_x) + axis_scale('y', y, plot.log_y) + key_place(curves, names, x, y, plot);
  return out + data + commands + "\n";
}

}  // namespace shardline
