#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reports/gnuplot_script.hpp"
#include "reports/json.hpp"
#include "reports/plot.hpp"

namespace shardline {

using namespace gnuplot;

namespace {

constexpr const char* kEdge = "#111111";

// The bars as data blocks, appended to `out`, and the commands that draw them.
std::string draw_bars(const Gantt& gantt, const std::vector<std::string>& kinds,
                      const std::vector<std::array<std::string, 2>>& bars, std::string& out) {
  std::string commands;
  bool any_pale = false;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const char* color = kColors[i % kColors.size()];
    bool titled = false;
    for (const bool pale : {false, true}) {
      if (bars[i][pale].empty()) continue;
      const std::string block = fmt::format("$k{}{}", i, pale ? "pale" : "");
      out += fmt::format("{} << EOD\n{}EOD\n", block, bars[i][pale]);
      commands += fmt::format("{} {} using 1:2:3:4:5:6 with boxxyerror lc rgb '{}'{} {}",
                              commands.empty() ? "plot" : ", \\\n    ", block, color,
                              pale                 ? fmt::format(" fill solid 0.15 border lc rgb '{}'", color)
                              : i < kColors.size() ? ""
                                                   : " fill pattern 1",
                              titled ? "notitle" : "title " + literal(kinds[i]));
      titled = true;
      any_pale = any_pale || pale;
    }
  }
  if (any_pale && !gantt.pale.empty())
    commands += fmt::format(
        ", \\\n     keyentry with boxes lc rgb '{0}' fill solid 0.15 border lc rgb '{0}' title {1}", kGrey,
        literal(gantt.pale));
  return commands;
}

// The edges of critical bars, over all others.
std::string draw_edges(const Gantt& gantt, const std::string& edges, std::string& out) {
  if (edges.empty()) return "";
  out += "$critical << EOD\n" + edges + "EOD\n";
  return fmt::format(
      ", \\\n    $critical using 1:2:3:4:5:6 with boxxyerror lc rgb '{0}' lw 2 fill empty border lc rgb "
      "'{0}' {1}",
      kEdge, gantt.critical.empty() ? "notitle" : "title " + literal(gantt.critical));
}

// Lanes grow thinner where there are many.
int height_of(int lanes) {
  return std::clamp(240 + std::max(std::min(90 * lanes, 1360), 26 * lanes), 360, 6000);
}

}  // namespace

std::string gnuplot_script(const Gantt& gantt, const std::string& terminal, const std::string& output_file) {
  std::vector<std::string> lanes, kinds;
  Range x;
  for (const GanttSpan& span : gantt.spans) {
    if (!std::isfinite(span.start) || !std::isfinite(span.end)) continue;
    index_of(lanes, span.lane), index_of(kinds, span.kind);
    x.add(span.start), x.add(span.end);
  }
  const int count = static_cast<int>(lanes.size());
  std::string out = preamble(terminal, output_file, height_of(count)) + title_line(gantt.title, terminal);
  out += axis_label('x', gantt.x_label) + "set grid xtics lc rgb '#dddddd' lt 1\n";
  out += "set border 3 lc rgb '#444444'\nset tics nomirror out\n";
  if (lanes.empty()) return out + kNoData;
  if (!(x.high > x.low)) x.high = x.low + 1;

  std::size_t longest = 0, longest_kind = 0;
  for (const std::string& kind : kinds) longest_kind = std::max(longest_kind, letters(kind));
  std::string names;
  for (int i = 0; i < count; ++i) {
    const std::string& lane = lanes[static_cast<std::size_t>(i)];
    longest = std::max(longest, letters(lane));
    names += fmt::format("{}{} {}", i == 0 ? "" : ", ", literal(lane), count - 1 - i);
  }
  out += fmt::format("set ytics ({}) noenhanced\nset yrange [-0.6:{}.6]\nset xrange [{:.10g}:{:.10g}]\n",
                     names, count - 1, x.low, x.high);
  out += "set format x '%.10g'\nset style fill solid 0.6 border lc rgb '#ffffff'\n" + std::string(kKeyBeside);

  const double per_pixel =
      (x.high - x.low) / (kWidth - 130.0 - 10.0 * static_cast<double>(longest + longest_kind));
  std::vector<std::array<std::string, 2>> bars(kinds.size());  // and the pale ones
  std::string edges;
  for (const GanttSpan& span : gantt.spans) {
    if (!std::isfinite(span.start) || !std::isfinite(span.end)) continue;
    const double y = count - 1 - static_cast<double>(index_of(lanes, span.lane));
    const double middle = (span.start + span.end) / 2;
    const std::string bar = fmt::format("{0} {1} {2} {3} {4:g} {5:g}\n", number_text(middle), number_text(y),
                                        number_text(span.start), number_text(span.end), y - 0.36, y + 0.36);
    bars[index_of(kinds, span.kind)][span.pale ? 1 : 0] += bar;
    if (span.critical) edges += bar;
    if (!span.label.empty() &&
        span.end - span.start >= per_pixel * (7.4 * static_cast<double>(letters(span.label)) + 5))
      out += fmt::format("set label {} at {}, {} center noenhanced front {}\n", literal(span.label),
                         number_text(middle), number_text(y), font(terminal, 11));
  }
  std::string commands = draw_bars(gantt, kinds, bars, out);
  commands += draw_edges(gantt, edges, out);
  return out + commands + "\n";
}

}  // namespace shardline
