// Pictures drawn by gnuplot: curves and frontiers, and a Gantt chart of one step. The same data gives the
// same script.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardline {

/// `steps` is the staircase of a frontier: between two points it has the height of that which is better along
/// x, as any place there is reached by it (Plot::less_x says which is better). The last three are marks for
/// points that count for less than others: of the colour of the series before of the same name, else grey.
enum class PlotStyle : std::uint8_t { line, points, steps, line_points, open_points, open_squares, crosses };

/// Curves are drawn in ascending x. Points that are not finite, or not positive on a logarithmic axis, are
/// left out.
struct PlotSeries {
  std::string name;
  PlotStyle style = PlotStyle::line;
  std::vector<std::pair<double, double>> points;
};

/// The line y = x and the area up to a part `band` above and below it, behind the series. Both axes then span
/// the same range, and are logarithmic or linear alike.
struct Diagonal {
  double band = 0.1;
  std::string name;  // legend entry; empty: none
};

/// A band behind the series: the area between all ends of intervals on one side and those on the other. An
/// interval goes from one end of what a point may be in truth to the other. Of several sets each has its
/// colour. With `steps` the area lies between two frontiers: of all ends on one side (every plan as slow as
/// it may be) and of all on the other. Ends that others beat shape neither, so that both are as monotone as
/// the frontier of the points is.
struct ErrorBars {
  using End = std::pair<double, double>;
  std::vector<std::pair<End, End>> bars;
  std::string name;    // legend entry
  bool steps = false;  // of a frontier, like PlotStyle::steps
};

/// Two series of one name share a colour and one legend entry, so a staircase and its points read as one.
struct Plot {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;
  bool less_x = false, less_y = false;  // less is better: staircases and bands of frontiers follow
  std::vector<PlotSeries> series;
  std::string footnote;
  std::optional<Diagonal> diagonal{};
  std::vector<ErrorBars> errors{};  // two at most
};

/// One bar, in microseconds. The kind gives the colour; the label is shown where the bar is wide enough. Pale
/// bars are little filled, critical ones have a dark edge.
struct GanttSpan {
  std::string lane;
  double start = 0, end = 0;
  std::string kind, label;
  bool pale = false;
  bool critical = false;
};

/// Lanes run from top to bottom and kinds through the legend, both in order of first appearance.
struct Gantt {
  std::string title, x_label;
  std::vector<GanttSpan> spans;
  std::string pale{};      // what pale bars mean: a legend entry, if there are any
  std::string critical{};  // likewise
};

/// The script that draws into `output_file` (empty: standard output). `terminal` is "svg" or "png" (1200x800;
/// a Gantt chart's height follows its lanes). All texts are taken literally: gnuplot's mark-up and shell
/// substitution are off.
std::string gnuplot_script(const Plot& plot, const std::string& terminal, const std::string& output_file);
std::string gnuplot_script(const Gantt& gantt, const std::string& terminal, const std::string& output_file);

/// The picture file's bytes, or why there is none; exactly one of the two is empty.
struct Rendered {
  std::string bytes;
  std::string error;  // names the Debian package when gnuplot is absent
};

/// Runs the gnuplot found in PATH. Makes no file: a folder without room takes nothing from a picture.
Rendered render(const Plot& plot, const std::string& terminal);
Rendered render(const Gantt& gantt, const std::string& terminal);

}  // namespace shardline
