#include "reports/plot.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

// Sets an environment variable and puts the old value back.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    if (old_.empty())
      unsetenv(name_);
    else
      setenv(name_, old_.c_str(), 1);
  }

 private:
  const char* name_;
  std::string old_;
};

bool gnuplot_installed() { return std::system("command -v gnuplot >/dev/null 2>&1") == 0; }

Plot frontier() {
  return {
      .title = "Frontier",
      .x_label = "tokens/s/user",
      .y_label = "tokens/s/GPU",
      .series = {{"helix", PlotStyle::steps, {{30, 10}, {10, 30}}}, {"helix", PlotStyle::points, {{10, 30}}}},
      .footnote = "made up"};
}

Gantt step() {
  return {.title = "Step",
          .x_label = "time (us)",
          .spans = {{"compute", 0, 90, "gemm", "qkv"},
                    {"communication", 90, 100, "all_to_all", "too long here"}}};
}

const std::string kPreamble =
    "set encoding utf8\n"
    "set terminal svg size 1200,800 noenhanced font 'DejaVu Sans,16' background '#ffffff'\n"
    "set pointsize 0.7\n"
    "set output 'out.svg'\n";

TEST(Plot, FrontierScript) {
  EXPECT_EQ(gnuplot_script(frontier(), "svg", "out.svg"),
            kPreamble +
                "set tmargin 3.2\n"
                "set label 3 'Frontier' at screen 0.5, graph 1 center offset character 0, 1.2 noenhanced "
                "font ',22'\n"
                "set xlabel 'tokens/s/user' noenhanced\n"
                "set ylabel 'tokens/s/GPU' noenhanced\n"
                "set bmargin 5\n"
                "set label 1 'made up' at screen 0.01, screen 0.0240 left noenhanced font ',13'\n"
                "set grid lc rgb '#dddddd' lt 1\n"
                "set border 3 lc rgb '#444444'\n"
                "set tics nomirror out\n"
                "set xrange [0:30]\n"
                "set xtics ('0' 0, '5' 5, '10' 10, '15' 15, '20' 20, '25' 25, '30' 30)\n"
                "set yrange [0:30]\n"
                "set ytics ('0' 0, '5' 5, '10' 10, '15' 15, '20' 20, '25' 25, '30' 30)\n"
                "set key inside right top vertical Left reverse noenhanced samplen 2\n"
                "$s0 << EOD\n10 30\n30 10\nEOD\n"
                "$s1 << EOD\n10 30\nEOD\n"
                "plot $s0 using 1:2 with fsteps lc rgb '#0072B2' lw 2.5 notitle, \\\n"
                "     $s1 using 1:2 with points lc rgb '#0072B2' pt 7 notitle, \\\n"
                "     keyentry with linespoints lc rgb '#0072B2' lw 2.5 pt 7 title 'helix'\n");
}

TEST(Plot, GanttScriptLabelsWideBarsOnly) {
  const std::string script = gnuplot_script(step(), "svg", "out.svg");
  EXPECT_NE(script.find("set ytics ('compute' 1, 'communication' 0) noenhanced\n"), std::string::npos);
  EXPECT_NE(script.find("set label 'qkv' at 45, 1 center"), std::string::npos);
  EXPECT_EQ(script.find("too long here"), std::string::npos);
  EXPECT_NE(script.find("$k1 << EOD\n95 0 90 100 -0.36 0.36\nEOD\n"), std::string::npos);
  EXPECT_NE(script.find("title 'gemm', \\\n"), std::string::npos);
  EXPECT_NE(script.find("title 'all_to_all'\n"), std::string::npos);
}

TEST(Plot, PaleBarsHaveTheColourOfTheirKindAndALegendEntry) {
  Gantt gantt;
  gantt.spans = {{"compute", 0, 5, "gemm", ""},
                 {"compute", 5, 9, "gemm", "", true},
                 {"messages", 9, 10, "send_recv", "", true}};
  gantt.pale = "pale: guessed";
  const std::string script = gnuplot_script(gantt, "svg", "out.svg");
  EXPECT_NE(script.find("$k0 << EOD\n2.5 1 0 5 0.64 1.36\nEOD\n$k0pale << EOD\n7 1 5 9 0.64 1.36\nEOD\n"),
            std::string::npos)
      << script;
  EXPECT_EQ(script.find("$k1 << EOD"), std::string::npos);
  EXPECT_NE(script.find("plot $k0 using 1:2:3:4:5:6 with boxxyerror lc rgb '#0072B2' title 'gemm', \\\n"
                        "     $k0pale using 1:2:3:4:5:6 with boxxyerror lc rgb '#0072B2' fill solid 0.15 "
                        "border lc rgb '#0072B2' notitle, \\\n"
                        "     $k1pale using 1:2:3:4:5:6 with boxxyerror lc rgb '#D55E00' fill solid 0.15 "
                        "border lc rgb '#D55E00' title 'send_recv', \\\n"
                        "     keyentry with boxes lc rgb '#777777' fill solid 0.15 border lc rgb '#777777' "
                        "title 'pale: guessed'\n"),
            std::string::npos)
      << script;
  for (GanttSpan& span : gantt.spans) span.pale = false;
  EXPECT_EQ(gnuplot_script(gantt, "svg", "out.svg").find("guessed"), std::string::npos);
  if (gnuplot_installed()) {
    gantt.spans[1].pale = true;
    EXPECT_EQ(render(gantt, "svg").error, "");
  }
}

TEST(Plot, OpenMarksHaveTheColourOfTheirName) {
  Plot plot;
  plot.series = {{"helix", PlotStyle::steps, {{1, 3}, {2, 2}, {3, 1}}},
                 {"helix", PlotStyle::open_points, {{3, 1}}},
                 {"helix", PlotStyle::points, {{1, 3}, {2, 2}}},
                 {"medha", PlotStyle::steps, {{1, 2}}},
                 {"medha", PlotStyle::open_points, {{1, 2}}}};
  const std::string script = gnuplot_script(plot, "svg", "out.svg");
  EXPECT_NE(script.find("$s1 using 1:2 with points lc rgb '#0072B2' pt 6 notitle"), std::string::npos)
      << script;
  EXPECT_NE(script.find("$s4 using 1:2 with points lc rgb '#D55E00' pt 6 notitle"), std::string::npos)
      << script;
  EXPECT_NE(script.find("keyentry with linespoints lc rgb '#0072B2' lw 2.5 pt 7 title 'helix'"),
            std::string::npos);
  EXPECT_NE(script.find("keyentry with linespoints lc rgb '#D55E00' lw 2.5 pt 6 title 'medha'"),
            std::string::npos);
}

TEST(Plot, DiagonalSharesOneRangeAndLiesBehind) {
  Plot plot;
  plot.log_x = plot.log_y = true;
  plot.diagonal = Diagonal{0.1, "equal"};
  plot.series = {{"fitted", PlotStyle::open_points, {{20, 30}}},
                 {"left out", PlotStyle::crosses, {{5, 6}}},
                 {"before", PlotStyle::open_squares, {{5, 7}}},
                 {"new", PlotStyle::points, {{2, 3}, {50, 10}}}};
  const std::string script = gnuplot_script(plot, "svg", "out.svg");
  EXPECT_NE(script.find("set xrange [1.739130435:57.5]"), std::string::npos) << script;
  EXPECT_NE(script.find("set yrange [1.739130435:57.5]"), std::string::npos) << script;
  // Each line: x, x - 10 %, x + 10 %.
  EXPECT_NE(script.find("$diagonal << EOD\n1.739130435 1.565217391 1.913043478\n57.5 51.75 63.25\nEOD\n"),
            std::string::npos)
      << script;
  EXPECT_NE(script.find("plot $diagonal using 1:2:3 with filledcurves fc rgb '#e6eef5' notitle, \\\n"
                        "     $diagonal using 1:1 with lines lc rgb '#8899aa' lw 1.5 notitle, \\\n"
                        "     $s0 using 1:2 with points lc rgb '#777777' pt 6 notitle, \\\n"
                        "     $s1 using 1:2 with points lc rgb '#777777' pt 2 notitle, \\\n"
                        "     $s2 using 1:2 with points lc rgb '#777777' pt 4 notitle, \\\n"
                        "     $s3 using 1:2 with points lc rgb '#0072B2' pt 7 notitle, \\\n"),
            std::string::npos)
      << script;
  EXPECT_NE(script.find("keyentry with lines lc rgb '#8899aa' lw 1.5 title 'equal'\n"), std::string::npos);
  EXPECT_NE(script.find("set key inside left top"), std::string::npos) << script;
}

TEST(Plot, BandsLieBehindAndWidenTheRanges) {
  Plot plot;
  plot.log_y = true;
  plot.series = {{"best", PlotStyle::points, {{2, 3}}}};
  plot.errors = {
      // The third has an end that no axis shows; they come in any order.
      {{{{2, 1.9}, {4, 2.9}}, {{1, 2}, {3, 4}}, {{1, 0}, {3, 4}}}, "off"},
      {{{{2, 2}, {2, 3}}}, "off, approximate"},
  };
  const std::string script = gnuplot_script(plot, "svg", "out.svg");
  // Lower ends to the right, upper ends back; one interval is a line.
  EXPECT_NE(script.find("$band0 << EOD\n1 2\n2 1.9\n4 2.9\n3 4\nEOD\n$band1 << EOD\n2 2\n2 3\nEOD\n"),
            std::string::npos)
      << script;
  const auto first = script.find("plot $band0 using 1:2 with filledcurves closed"),
             second = script.find("$band1 using 1:2 with filledcurves closed"),
             points = script.find("$s0 using 1:2 with points");
  ASSERT_NE(points, std::string::npos) << script;
  EXPECT_LT(first, second) << script;
  EXPECT_LT(second, points) << script;
  for (const char* entry :
       {"border lc rgb '#c3ccd7' title 'off', ", "border lc rgb '#dfb983' title 'off, approximate'"})
    EXPECT_NE(script.find(entry), std::string::npos) << script;
  EXPECT_NE(script.find("set yrange [1.652173913:4.6]"), std::string::npos) << script;
}

// Between the frontier of the lower ends and that of the upper ones, whichever way is better.
TEST(Plot, BandsOfFrontiersAreMonotone) {
  Plot plot;
  plot.series = {{"a", PlotStyle::steps, {{1, 3}, {2, 2.5}, {3, 1}}}};
  // The interval in the middle is so narrow that its upper end is beaten by that of the right one, and its
  // lower end beats that of the left one.
  plot.errors = {{{{{0.5, 2}, {2, 4}}, {{1.9, 2.4}, {2.1, 2.6}}, {{2.5, 0.5}, {4, 3}}}, "off", true}};
  EXPECT_NE(gnuplot_script(plot, "svg", "out.svg")
                .find("$band0 << EOD\n0.5 2.4\n1.9 2.4\n1.9 0.5\n2.5 0.5\n"
                      "4 0.5\n4 3\n2 3\n2 4\n0.5 4\nEOD\n"),
            std::string::npos)
      << gnuplot_script(plot, "svg", "out.svg");
  EXPECT_NE(gnuplot_script(plot, "svg", "out.svg").find("$s0 using 1:2 with fsteps"), std::string::npos);
  plot.less_x = plot.less_y = true;
  const std::string less = gnuplot_script(plot, "svg", "out.svg");
  EXPECT_NE(less.find("$band0 << EOD\n4 0.5\n2.5 0.5\n2.5 2\n0.5 2\n0.5 4\n"
                      "2 4\n2.1 4\n2.1 2.6\n4 2.6\nEOD\n"),
            std::string::npos)
      << less;
  // A plan that takes less of x is at hand for all that allow more of it.
  EXPECT_NE(less.find("$s0 using 1:2 with steps"), std::string::npos);
}

TEST(Plot, TextsAreTakenLiterally) {
  Plot plot = frontier();
  plot.title = "it's `id` \"{x}\"_y\\n";
  plot.x_label = "two\nlines";
  plot.series[0].name = "@macro\t^2";
  const std::string script = gnuplot_script(plot, "png", "|rm it's");
  EXPECT_NE(script.find("set label 3 'it'.\"'\".'s `id` \"{x}\"_y\\n' at screen 0.5, "), std::string::npos);
  EXPECT_NE(script.find("set xlabel 'two'.\"\\n\".'lines' noenhanced\n"), std::string::npos);
  EXPECT_NE(script.find("title '@macro ^2'"), std::string::npos);
  EXPECT_NE(script.find("set output './|rm it'.\"'\".'s'\n"), std::string::npos);
}

// gnuplot takes two apostrophes for one, but not at the beginning and not twice: commands are shown, and a
// path may hold any.
TEST(Plot, TextsWithApostrophesAreDrawn) {
  if (!gnuplot_installed()) GTEST_SKIP() << "gnuplot is not installed";
  for (const std::string text : {"'it'\\''s a path'", "'", "''''", "a''b", "\\'"}) {
    Plot plot = frontier();
    plot.title = plot.x_label = plot.footnote = plot.series[0].name = text;
    const Rendered drawn = render(plot, "svg");
    EXPECT_EQ(drawn.error, "") << text;
    EXPECT_NE(drawn.bytes.find(text), std::string::npos) << text;
  }
}

TEST(Plot, LogarithmicAxesDropWhatTheyCannotShow) {
  Plot plot = frontier();
  plot.log_x = plot.log_y = true;
  const double infinity = std::numeric_limits<double>::infinity();
  plot.series = {
      {"a", PlotStyle::line, {{1e3, 1}, {0, 5}, {5, -1}, {infinity, 2}, {3, std::nan("")}, {1e6, 2}}}};
  const std::string script = gnuplot_script(plot, "svg", "out.svg");
  EXPECT_NE(script.find("$s0 << EOD\n1000 1\n1e+06 2\nEOD\n"), std::string::npos) << script;
  EXPECT_NE(script.find("set logscale x 10\n"), std::string::npos);
  EXPECT_NE(script.find("set xtics ('1k' 1000, '10k' 10000, '100k' 100000, '1M' 1000000)\n"),
            std::string::npos);
  EXPECT_NE(script.find("set ytics ('1' 1, '2' 2)\n"), std::string::npos);
}

TEST(Plot, LegendLeavesCurvesAlone) {
  Plot plot = frontier();
  plot.series = {{"a", PlotStyle::line, {{0, 0}, {1, 0.5}, {2, 2}}}};
  EXPECT_NE(gnuplot_script(plot, "svg", "f").find("set key inside left top "), std::string::npos);
  plot.series = {{"a", PlotStyle::line, {{0, 1}, {0, 0}, {1, 0}, {1, 1}}}};
  plot.series.push_back({"b", PlotStyle::line, {{0, 0}, {1, 1}}});
  plot.series.push_back({"c", PlotStyle::line, {{0, 1}, {1, 0}}});
  EXPECT_NE(gnuplot_script(plot, "svg", "f").find("set key outside right top "), std::string::npos);
}

TEST(Plot, DrawsSvgAndPng) {
  if (!gnuplot_installed()) GTEST_SKIP() << "needs gnuplot (Debian package gnuplot-nox)";
  const TemporaryFolder folder;
  const Environment temporary("TMPDIR", folder.path().string());
  Plot hostile = frontier();
  hostile.title = "it's `touch " + folder.path().string() + "/ran` \"{x}\"_y\\";
  const Rendered svg = render(hostile, "svg");
  EXPECT_EQ(svg.error, "");
  EXPECT_NE(svg.bytes.find("<svg"), std::string::npos);
  EXPECT_NE(svg.bytes.find("{x}"), std::string::npos);
  EXPECT_NE(svg.bytes.find("made up"), std::string::npos);
  EXPECT_EQ(render(hostile, "svg").bytes, svg.bytes);
  Plot single;
  single.series = {{"a", PlotStyle::points, {{0, 0}}}};
  for (const Rendered& png : {render(frontier(), "png"), render(step(), "png"), render(Plot{}, "png"),
                              render(Gantt{}, "png"), render(single, "png")}) {
    EXPECT_EQ(png.error, "");
    EXPECT_EQ(png.bytes.substr(0, 8), "\x89PNG\r\n\x1a\n");
    EXPECT_GT(png.bytes.size(), 3000U);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Plot, MissingOrFailingGnuplotIsAnError) {
  const TemporaryFolder folder, programs;
  const Environment temporary("TMPDIR", folder.path().string());
  const Environment path("PATH", programs.path().string());
  const Rendered missing = render(frontier(), "svg");
  EXPECT_EQ(missing.bytes, "");
  EXPECT_EQ(missing.error, "gnuplot was not found in PATH; install the Debian package gnuplot-nox");

  const std::string fake = programs.path().string() + "/gnuplot";
  std::ofstream(fake) << "#!/bin/sh\necho broken font >&2\nexit 3\n";
  std::filesystem::permissions(fake, std::filesystem::perms::owner_all);
  EXPECT_EQ(render(step(), "svg").error, "gnuplot failed: broken font\n");

  std::ofstream(fake) << "#!/bin/sh\nexit 0\n";
  EXPECT_EQ(render(step(), "svg").error, "gnuplot drew nothing: ");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Plot, NoTemporaryFolderIsNeeded) {
  if (!gnuplot_installed()) GTEST_SKIP() << "needs gnuplot (Debian package gnuplot-nox)";
  const Environment temporary("TMPDIR", "/dev/null/none");
  const Rendered svg = render(frontier(), "svg");
  EXPECT_EQ(svg.error, "");
  EXPECT_TRUE(svg.bytes.ends_with("</svg>\n\n")) << svg.bytes.substr(svg.bytes.size() - 20);
  EXPECT_TRUE(render(frontier(), "png")
                  .bytes.ends_with("IEND\xae"
                                   "B`\x82"));
}

}  // namespace
}  // namespace shardline
