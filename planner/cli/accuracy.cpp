// accuracy: how far calibrated costs are from measurements, as one report.
#include "calibrate/validate/accuracy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "calibrate/calibrate.hpp"
#include "planner/cli/commands.hpp"
#include "reports/atomic_file.hpp"
#include "reports/plot.hpp"
#include "sim/base/file_name.hpp"

namespace shardline::cli {

namespace {

namespace fs = std::filesystem;

MeasuredTables load_measured(const System& system, const fs::path& folder) {
  const std::vector<fs::path> files = csv_files(folder);
  if (files.empty()) throw UserError("no .csv files in " + folder.string());
  MeasuredTables out;
  out.system = system;
  out.hash = hash_of_files(files);
  for (const fs::path& file : files) out.tables.push_back(load_measurements(file));
  return out;
}

// One point per variant: a family's cloud says how far its typical and its rare errors are.
void write_plots(const fs::path& folder, std::span<const System> systems) {
  make_output_folder(folder);
  for (const System& s : systems) {
    // All families in one picture would be more than there are colours.
    std::map<std::string, Plot> plots;
    for (const FamilyAccuracy& a : accuracy_by_family(s.calibration)) {
      PlotSeries& series = plots[a.goal->collective ? "collectives" : "kernels"].series.emplace_back();
      series.name = a.goal->title;
      series.style = PlotStyle::points;
      for (const KernelFit* f : a.fits)
        series.points.emplace_back(100 * f->corrected.median, 100 * f->corrected.p90);
    }
    for (auto& [kind, plot] : plots) {
      plot.title = fmt::format("{}, {}: errors on shapes that the fit had not seen", s.name, kind);
      plot.x_label = "median error of a variant, %";
      plot.y_label = "90th percentile, %";
      plot.log_x = plot.log_y = true;
      plot.footnote = s.calibration.source;
      for (const char* terminal : {"svg", "png"}) {
        const Rendered picture = render(plot, terminal);
        if (!picture.error.empty()) {
          fmt::print(stderr, "  no plots: {}\n", picture.error);
          return;
        }
        write_file(folder / (file_name_of(s.name + "-" + kind) + "." + terminal), picture.bytes);
      }
    }
  }
  fmt::print(stderr, "  plots in {}\n", folder.string());
}

}  // namespace

std::vector<System> calibrated_systems(const fs::path& catalog_dir) {
  std::vector<System> out;
  for (const std::string& name : system_names(catalog_dir)) {
    std::error_code error;
    if (!fs::exists(catalog_dir.parent_path() / "calibrations" / (name + ".yaml"), error)) continue;
    System s = load_system(name, catalog_dir);
    if (!s.calibration.empty()) out.push_back(std::move(s));
  }
  return out;
}

std::vector<BorrowedCalibration> borrowed_calibrations(const fs::path& catalog_dir,
                                                       std::span<const System> own) {
  std::vector<BorrowedCalibration> out;
  for (const std::string& name : system_names(catalog_dir)) {
    const System s = load_system(name, catalog_dir);
    if (s.calibration.empty()) continue;
    for (const System& o : own) {
      if (o.name != s.name && o.calibration.hash == s.calibration.hash) out.push_back({s.name, o.name});
    }
  }
  return out;
}

std::vector<MeasuredTables> measured_tables(std::span<const std::string> arguments,
                                            const fs::path& catalog_dir, std::span<const System> own,
                                            std::vector<std::string>& notes) {
  std::vector<MeasuredTables> out;
  const auto add = [&](MeasuredTables&& m) {
    const auto same = [&](const MeasuredTables& o) {
      return o.system.name == m.system.name && o.fitted() == m.fitted();
    };
    if (std::any_of(out.begin(), out.end(), same))
      throw UserError("measurements of " + m.system.name + " are given twice");
    out.push_back(std::move(m));
  };
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    std::error_code error;
    if (equals != std::string::npos && !fs::is_directory(argument, error)) {
      const System system = load_system(argument.substr(0, equals), catalog_dir);
      if (system.calibration.empty())
        throw UserError("system " + system.name + " has no calibration: make one with shardline calibrate");
      MeasuredTables m = load_measured(system, argument.substr(equals + 1));
      m.borrowed = std::any_of(own.begin(), own.end(), [&](const System& s) {
        return s.calibration.hash == system.calibration.hash && s.name != system.name;
      });
      add(std::move(m));
      continue;
    }
    std::size_t matched = 0;
    for (const fs::path& sub : entries_of(argument)) {
      if (!fs::is_directory(sub, error)) continue;
      const std::vector<fs::path> files = csv_files(sub);
      if (files.empty()) continue;
      const std::string hash = hash_of_files(files);
      const auto found =
          std::find_if(own.begin(), own.end(), [&](const System& s) { return s.calibration.hash == hash; });
      if (found == own.end()) {
        notes.push_back(
            fmt::format("{}: left out, no shipped calibration was fitted to these tables (hash {})",
                        sub.filename().string(), hash));
        continue;
      }
      add(load_measured(*found, sub));
      ++matched;
    }
    if (matched == 0)
      throw UserError(
          {Diagnostic{{},
                      "no folder in " + argument + " holds tables that a shipped calibration was fitted to",
                      {"name other tables by their system: --measurements SYSTEM=FOLDER"}}});
  }
  std::stable_sort(out.begin(), out.end(), [](const MeasuredTables& a, const MeasuredTables& b) {
    return a.system.name < b.system.name;
  });
  return out;
}

namespace {

struct AccuracyArguments {
  std::vector<std::string> measurements;  // SYSTEM=FOLDER, or a folder of a folder per system
  std::string out, plots;                 // out empty: printed
};

void declare(Arguments& a, AccuracyArguments& o) {
  a.add("-o,--out", o.out, "File for the report, in Markdown (default: print it)");
  a.add("--measurements", o.measurements,
        "Also errors over all rows: a folder with a folder of tables per system, or SYSTEM=FOLDER");
  a.add("--plots", o.plots, "Folder for pictures, two per system");
}

int run(const AccuracyArguments& a, const Provenance&) {
  const fs::path catalog = shipped_catalogs().systems;
  const std::vector<System> systems = calibrated_systems(catalog);
  if (systems.empty()) throw UserError("no system of the catalogue has a calibration of its own");
  std::vector<std::string> notes;
  const std::vector<MeasuredTables> measured = measured_tables(a.measurements, catalog, systems, notes);
  for (const MeasuredTables& m : measured) {
    for (const MeasurementTable& t : m.tables) {
      for (const std::string& note : t.notes) notes.push_back(m.system.name + ": " + note);
    }
  }
  std::string text = accuracy_report(systems, borrowed_calibrations(catalog, systems));
  if (!measured.empty()) text += measured_section(measured);
  for (const std::string& note : notes) fmt::print(stderr, "  {}\n", note);
  if (a.out.empty()) {
    fmt::print("{}", text);
  } else {
    make_folder_of(a.out);
    write_file(a.out, text);
    fmt::print(stderr, "  wrote {}\n", a.out);
  }
  if (!a.plots.empty()) write_plots(a.plots, systems);
  return 0;
}

}  // namespace

const Command kAccuracy{"accuracy", "How far every shipped calibration is from measurements",
                        "shardline accuracy --measurements measurements -o reports/accuracy.md",
                        prepare<AccuracyArguments, declare, run>};

}  // namespace shardline::cli
