// calibrate: cost forms from measurements.
#include "calibrate/calibrate.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <string_view>

#include "calibrate/rows.hpp"
#include "planner/cli/calibrate_engine.hpp"
#include "planner/cli/calibrate_power.hpp"
#include "planner/cli/commands.hpp"
#include "planner/cli/measured_documents.hpp"
#include "planner/cli/terminal_parts.hpp"
#include "reports/atomic_file.hpp"
#include "reports/output_folder.hpp"
#include "reports/table.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/file_name.hpp"
#include "sim/base/read_text.hpp"

namespace shardline::cli {

namespace {

struct CalibrateArguments {
  std::vector<std::string> measurements;  // files or folders
  std::string system, out, plots, source, framework, engine, csv;
  int folds = 4, threads = 0;
  bool parameters = false;  // also print them
  bool part = false;        // write the calibration alone
  bool power = false;       // watts in place of times
  bool play = false;        // rows of engines, request by request
};

constexpr std::size_t kPlotted = 1500;  // points per variant
constexpr std::size_t kVariantsPerPlot = 8;

std::string error_cell(const FitError& e) {
  return e.rows == 0 ? "-" : fmt::format("{:.1f} / {:.1f}", 100 * e.median, 100 * e.p90);
}

std::string band_cell(const ErrorBand& b) {
  return fmt::format("{:+.1f} / {:+.1f}", 100 * std::expm1(b.low), 100 * std::expm1(b.high));
}

// Reproducible where SOURCE_DATE_EPOCH says when it is.
std::string today() {
  constexpr long long kEnd = 253'402'300'799;  // of the year 9999
  const std::string_view fixed =
      std::getenv("SOURCE_DATE_EPOCH") == nullptr ? "" : std::getenv("SOURCE_DATE_EPOCH");
  long long seconds = 0;
  const auto [end, error] = std::from_chars(fixed.data(), fixed.data() + fixed.size(), seconds);
  const bool whole = error == std::errc{} && end == fixed.data() + fixed.size();
  if (!fixed.empty() && !(whole && seconds >= 0 && seconds <= kEnd))
    throw UserError(
        fmt::format("SOURCE_DATE_EPOCH={}: expected seconds since 1970, from 0 to {}", fixed, kEnd));
  const std::time_t now = fixed.empty() ? std::time(nullptr) : static_cast<std::time_t>(seconds);
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(now));
}

void write_plots(const std::filesystem::path& folder, const Calibration& c,
                 const std::vector<PredictedRow>& rows) {
  std::map<std::string, Plot> agreement, residual;
  std::vector<std::size_t> of_fit(c.fits.size());
  for (const PredictedRow& r : rows) ++of_fit[r.fit];
  std::vector<std::size_t> seen(c.fits.size());
  std::map<std::size_t, std::pair<PlotSeries, PlotSeries>> series;
  for (const PredictedRow& r : rows) {
    const std::size_t every = (of_fit[r.fit] + kPlotted - 1) / kPlotted;
    if (seen[r.fit]++ % every != 0) continue;
    auto& [a, b] = series[r.fit];
    a.name = b.name = variant_name(c.fits[r.fit].words);
    a.style = b.style = PlotStyle::points;
    a.points.emplace_back(r.measured * 1e6, r.predicted * 1e6);
    b.points.emplace_back(r.measured * 1e6, r.predicted / r.measured);
  }
  std::map<std::string, std::size_t> variants;
  for (const auto& [fit, pair] : series) ++variants[c.fits[fit].form->family];
  for (auto& [fit, pair] : series) {
    // A legend holds a few variants; of many, those of each kernel (the first word) have a picture.
    std::string family = c.fits[fit].form->family;
    if (variants[family] > kVariantsPerPlot && !c.fits[fit].words.empty())
      family += "-" + c.fits[fit].words[0];
    agreement[family].series.push_back(std::move(pair.first));
    residual[family].series.push_back(std::move(pair.second));
  }
  OutputFolder files(folder);
  for (auto* plots : {&agreement, &residual}) {
    const bool first = plots == &agreement;
    for (auto& [family, plot] : *plots) {
      plot.title =
          fmt::format("{}: {}", family, first ? "predicted and measured" : "predicted over measured");
      plot.x_label = "measured, us";
      plot.y_label = first ? "predicted, us" : "predicted / measured";
      plot.log_x = plot.log_y = true;
      plot.footnote = c.source;
      for (const char* terminal : {"svg", "png"}) {
        // A kernel's name is a cell of a table.
        const std::string stem = fmt::format("{}-{}", family, first ? "agreement" : "residual");
        files.add(render(plot, terminal), file_name_of(stem) + "." + terminal);
      }
    }
  }
  print_notes("{}", files.publish());
}

// The system's own text without its calibration, which stands last or is followed by another top-level key.
std::string without_calibration(const std::string& text) {
  std::string out;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string_view line = std::string_view(text).substr(at, end - at);
    if (line.rfind("calibration:", 0) == 0) {
      inside = true;
    } else if (!line.empty() && line[0] != ' ' && line[0] != '\n' && line[0] != '#') {
      inside = false;
    }
    if (!inside) out += line;
    at = end;
  }
  if (!out.empty() && out.back() != '\n') out += '\n';
  return out;
}

void print_each(const std::vector<std::string>& notes) {
  for (const std::string& n : notes) print_notes("  {}\n", n);
}

void declare(Arguments& a, CalibrateArguments& o) {
  a.add("measurements", o.measurements, "Tables (.csv) of shardline-probe or of others, or folders of them")
      .required()
      .files();
  a.add("--system", o.system, "System that was measured: a name or a file").offers(offered_systems).files();
  a.add("--engine", o.engine,
        "In place of a system's kernels: an engine profile's host times, from measured serving")
      .offers(offered_engines_by_name);
  a.add("--csv", o.csv, "With --engine: file for every row, measured and predicted").output_file();
  a.flag("--play", o.play, "With --engine: also play the rows request by request (minutes)");
  a.add("-o,--out", o.out, "System file (with --engine: profile) to write, with what was fitted")
      .output_file();
  a.add("--plots", o.plots, "Folder for predicted against measured").output_folder();
  a.add("--source", o.source, "Where the measurements come from (default: the files' names)");
  a.add("--framework", o.framework,
        "Whose kernels these are, \"sglang 0.5.14\": rows that name another engine are left out");
  a.add("--folds", o.folds, "Parts of the shapes that are withheld in turn (default: 4)").range(2, 100);
  a.flag("--parameters", o.parameters, "Also print every parameter with its confidence interval");
  a.flag(
      "--power", o.power,
      "In place of times: watts of a board, from tables with columns power_w and power_limit_w; --out writes "
      "the system file's `power` alone");
  a.flag("--part", o.part, "Write what was fitted alone, for `calibration: FILE` in a system file");
  add_threads(a, o.threads);
}

// "sglang 0.5.14".
void name_framework(const std::string& text, CalibrateOptions& o) {
  const std::size_t blank = std::min(text.find(' '), text.size());
  o.framework = text.substr(0, blank);
  o.version = text.substr(std::min(blank + 1, text.size()));
  if (!text.empty() && (o.framework.empty() || o.version.empty()))
    throw UserError("--framework " + text + ": expected a name and a version, as \"sglang 0.5.14\"");
}

// How far each fit is off.
void print_errors(const Calibration& c, const System& system, std::size_t tables, int folds) {
  print_notes("{}: cost forms fitted to {} table{}\n", system.name, tables, tables == 1 ? "" : "s");
  print_notes(
      "  error on shapes that the fit has not seen ({} folds), and with correction on models that it\n"
      "  has not seen (each withheld in turn): median / 90th percentile, %\n",
      folds);
  Table t({"operation", "rows", "roofline", "form", "form and correction", "unseen models", "worst, %",
           "knots", "90 % interval, %", "covered, %"});
  for (const KernelFit& f : c.fits)
    t.add({display(f), fmt::format("{}", f.alone.rows), error_cell(f.roofline), error_cell(f.alone),
           error_cell(f.corrected), f.intervals.family ? error_cell(f.intervals.family->error) : "-",
           fmt::format("{:.0f}", 100 * f.corrected.worst), fmt::format("{}", f.correction.values.size()),
           band_cell(f.intervals.inside.band),
           f.intervals.inside.covered < 0 ? "-" : fmt::format("{:.1f}", 100 * f.intervals.inside.covered)});
  print_notes("{}", fitted(t));
}

void set_document(const std::string& system, const Tables& tables, const Calibrated& result, int folds,
                  const Provenance& made_by) {
  if (made_by.document == nullptr) return;
  const Calibration& c = result.calibration;
  api::CalibrateResult out{made_by.version,
                           made_by.command,
                           system,
                           tables.tables.size(),
                           folds,
                           c.source,
                           c.hash,
                           c.date,
                           {},
                           {}};
  out.kernels = fitted_kernels(c);
  out.notes = tables.notes;
  for (const MeasurementTable& read : tables.tables)
    out.notes.insert(out.notes.end(), read.notes.begin(), read.notes.end());
  out.notes.insert(out.notes.end(), result.notes.begin(), result.notes.end());
  made_by.document->set(api::to_json(out));
}

Calibrated calibrated_system(const System& system, const Tables& tables, CalibrateOptions options) {
  StepProgress progress("calibrate", Progress::terminal(), "variants");
  std::once_flag counted;
  options.step = [&](std::uint64_t of) {
    std::call_once(counted, [&] { progress.expect(of); });
    progress.step();
  };
  return shardline::calibrate(system, tables.tables, options);
}

// What an option asks for and nobody does would be missed in silence.
void refuse_idle_options(const CalibrateArguments& a) {
  const bool kernels = a.engine.empty() && !a.power;
  const struct {
    const char* option;
    bool given, means;
    const char* of;
  } options[] = {
      {"--csv", !a.csv.empty(), !a.engine.empty(),
       "measured serving: expected --engine beside it (rows of kernels: shardline evaluate --csv)"},
      {"--plots", !a.plots.empty(), kernels, "times of kernels: not beside --engine or --power"},
      {"--framework", !a.framework.empty(), kernels, "times of kernels: not beside --engine or --power"},
      {"--parameters", a.parameters, kernels, "times of kernels: not beside --engine or --power"},
      {"--part", a.part, a.engine.empty(), "a system: --engine writes a whole profile"},
      {"--folds", a.folds != CalibrateArguments().folds, a.engine.empty(),
       "a system: with --engine each model is withheld in turn"},
  };
  for (const auto& o : options) {
    if (o.given && !o.means) throw UserError(fmt::format("{} is for {}", o.option, o.of));
  }
}

// Options that say nothing beside one another, and files that would be lost.
void check(const CalibrateArguments& a) {
  if (!a.engine.empty() && !a.system.empty())
    throw UserError("--system is for kernels, --engine for serving: expected one of them");
  if (a.power && a.system.empty())
    throw UserError("--power is of a system's boards: expected --system beside it");
  if (a.play && a.engine.empty())
    throw UserError("--play is for measured serving: expected --engine beside it");
  refuse_idle_options(a);
  std::vector<std::string> lost = a.measurements;
  // Of a whole system the file holds the system with its calibration; what the system names may be renewed.
  if (a.part || a.power) lost.push_back(a.system);
  refuse_to_overwrite("-o", a.out, lost);
  refuse_to_overwrite("--csv", a.csv, a.measurements);
  for (const std::string& file : {a.out, a.csv}) require_place_of(file);
  if (!a.csv.empty() &&
      std::filesystem::path(a.csv).lexically_normal() == std::filesystem::path(a.out).lexically_normal())
    throw UserError("--csv and -o are the same file: " + a.csv);
}

int run(const CalibrateArguments& a, const Provenance& made_by) {
  check(a);
  const std::string date = today();
  if (!a.engine.empty())
    return calibrate_engine({a.measurements, a.engine, a.source, a.out, a.csv, date, a.play}, made_by);
  if (a.system.empty()) throw UserError("expected --system, whose kernels were measured, or --engine");
  if (a.power) return calibrate_power({a.measurements, a.system, a.source, a.out, a.folds}, made_by);
  const std::filesystem::path file = system_file(a.system, shipped_catalogs().systems);
  const System system = load_system(a.system, shipped_catalogs().systems);
  require_memory(need_of_fit(a.measurements));
  const Tables tables = load_tables(a.measurements);
  CalibrateOptions options;
  options.folds = a.folds;
  options.threads = a.threads;
  name_framework(a.framework, options);
  Calibrated result = calibrated_system(system, tables, options);
  Calibration& c = result.calibration;
  std::string names;
  for (const std::string& n : tables.names) names += (names.empty() ? "" : ", ") + n;
  c.source = a.source.empty() ? names : a.source;
  c.hash = tables.hash;
  c.date = date;
  c.version = made_by.version;

  set_document(system.name, tables, result, a.folds, made_by);
  print_errors(c, system, tables.tables.size(), a.folds);
  if (a.parameters) {
    Table p({"operation", "parameter", "value", "95 % from", "to", "unit"});
    for (const KernelFit& f : c.fits) {
      for (std::size_t i = 0; i < f.parameters.size(); ++i)
        p.add({display(f), f.form->parameters[i].name, fmt::format("{:.4g}", f.parameters[i]),
               fmt::format("{:.4g}", f.low[i]), fmt::format("{:.4g}", f.high[i]),
               f.form->parameters[i].unit});
    }
    print_notes("\n{}", fitted(p));
  }
  print_each(tables.notes);
  for (const MeasurementTable& read : tables.tables) print_each(read.notes);
  print_each(result.notes);
  if (!a.out.empty()) {
    const std::string whole = without_calibration(read_text(file, kLargestDocument)) + calibration_yaml(c);
    parse_system(a.out, whole, shipped_catalogs().systems);  // what is written can be read
    const std::string all =
        a.part ? "# Written by shardline calibrate; fitted to measurements, not edited by hand.\n" +
                     calibration_yaml(c)
               : whole;
    make_folder_of(a.out);
    write_file(a.out, all, AfterInterrupt::refuse, IfRead::replace);
    print_notes("  wrote {}\n", a.out);
  }
  if (!a.plots.empty()) {
    write_plots(a.plots, c, evaluate(system, c, tables.tables).rows);
  }
  return 0;
}

}  // namespace

const Command kCalibrateCommand{"calibrate", "Fit the cost of kernels and collectives to measurements",
                                "shardline calibrate measurements/h200 --system h200-hgx -o h200-mine.yaml",
                                prepare<CalibrateArguments, declare, run>};

}  // namespace shardline::cli
