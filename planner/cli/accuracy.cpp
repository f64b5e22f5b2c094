// accuracy: how far calibrated costs are from measurements, as one report.
#include "calibrate/validate/accuracy.hpp"

#include <fmt/format.h>

#include <array>
#include <map>

#include "planner/cli/commands.hpp"
#include "planner/cli/measured_documents.hpp"
#include "reports/atomic_file.hpp"
#include "reports/markdown.hpp"
#include "reports/output_folder.hpp"
#include "reports/plot.hpp"
#include "reports/table.hpp"
#include "reports/terminal.hpp"
#include "sim/base/file_name.hpp"

namespace shardline::cli {

namespace {

namespace fs = std::filesystem;

// One point per variant: a family's cloud says how far its typical and its rare errors are.
void write_plots(const fs::path& folder, std::span<const System> systems) {
  OutputFolder files(folder);
  for (const System& s : systems) {
    // All families in one picture would be more than there are colours.
    std::map<std::string, Plot> plots;
    for (const FamilyAccuracy& a : accuracy_by_family(s.calibration)) {
      PlotSeries& series = plots[a.goal->collective ? "collectives" : "kernels"].series.emplace_back();
      series.name = a.goal->title;
      series.style = PlotStyle::points;
      for (const KernelFit* f : a.fits)
        series.points.emplace_back(100 * reported_error(*f).median, 100 * reported_error(*f).p90);
    }
    for (auto& [kind, plot] : plots) {
      plot.title = fmt::format("{}, {}: errors on shapes that the fit had not seen", s.name, kind);
      plot.x_label = "median error of a variant, %";
      plot.y_label = "90th percentile, %";
      plot.log_x = plot.log_y = true;
      plot.footnote = s.calibration.source;
      for (const char* terminal : {"svg", "png"}) {
        files.add(render(plot, terminal), file_name_of(s.name + "-" + kind) + "." + terminal);
      }
    }
  }
  fmt::print(stderr, "{}", files.publish());
}

struct AccuracyArguments {
  std::vector<std::string> measurements;  // SYSTEM=FOLDER, or a folder of a folder per system
  std::string out, plots;                 // out empty: printed
};

void declare(Arguments& a, AccuracyArguments& o) {
  a.add("-o,--out", o.out, "File for the report, in Markdown (default: print it)").output_file();
  a.add("--measurements", o.measurements,
        "Also errors over all rows: a folder with a folder of tables per system, or SYSTEM=FOLDER")
      .folders();
  a.add("--plots", o.plots, "Folder for pictures, two per system").output_folder();
}

int run(const AccuracyArguments& a, const Provenance& made_by) {
  require_place_of(a.out);
  const AccuracyStudy study = accuracy_study(a.measurements, shipped_catalogs().systems);
  std::string text =
      accuracy_report(study.systems, study.borrowed) + engines_section(shipped_catalogs().engines);
  if (!study.measured.empty()) {
    StepProgress progress("accuracy", Progress::terminal(), "parts");
    constexpr std::array kParts{measured_section, scatter_section, borrowed_section,
                                +[](std::span<const MeasuredTables> m) { return longest_section(m); },
                                +[](std::span<const MeasuredTables> m) { return longest_sparse_section(m); }};
    progress.expect(kParts.size());
    for (const auto part : kParts) {
      progress.step();
      text += part(study.measured);
    }
  }
  if (made_by.document != nullptr) {
    api::AccuracyResult result = accuracy_result(study, shipped_catalogs().engines);
    result.version = made_by.version;
    result.command = made_by.command;
    result.report = text;
    made_by.document->set(api::to_json(result));
  }
  for (const std::string& note : study.notes) fmt::print(stderr, "  {}\n", note);
  if (a.out.empty()) {
    fmt::print("{}", markdown_within(text, output_width()));
  } else {
    make_folder_of(a.out);
    write_file(a.out, text);
    fmt::print(stderr, "  wrote {}\n", a.out);
  }
  if (!a.plots.empty()) write_plots(a.plots, study.systems);
  return 0;
}

}  // namespace

const Command kAccuracyCommand{"accuracy", "How far every shipped calibration is from measurements",
                               "shardline accuracy --measurements measurements -o reports/accuracy.md",
                               prepare<AccuracyArguments, declare, run>};

}  // namespace shardline::cli
