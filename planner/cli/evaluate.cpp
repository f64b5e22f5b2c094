// evaluate: predictions of a calibrated system beside measurements.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "calibrate/rows.hpp"
#include "planner/cli/commands.hpp"
#include "planner/cli/measured_documents.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/cli/terminal_parts.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/studies/idle_settings.hpp"
#include "reports/atomic_file.hpp"
#include "reports/table.hpp"
#include "sim/base/asking.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

struct EvaluateArguments {
  std::vector<std::string> measurements, settings;
  std::string system, csv;
};

void print_each(const std::vector<std::string>& notes) {
  for (const std::string& n : notes) print_notes("  {}\n", n);
}

void declare(Arguments& a, EvaluateArguments& o) {
  a.add("measurements", o.measurements, "Tables (.csv), or folders of them").required().files();
  a.add("--system", o.system, "Calibrated system: a name or a file")
      .required()
      .offers(offered_systems)
      .files();
  a.add("--csv", o.csv, "File for every row, measured and predicted").output_file();
  add_settings(a, o.settings);
}

// Keys of a scenario, which there is none of.
void require_of_system(const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    if (sets_system(setting)) continue;
    Diagnostic d;
    d.where = {kSettingOrigin, 1, 1, setting};
    d.what = "evaluate reads no scenario: expected a key of the system's file";
    d.details = system_keys_like(setting);
    d.details.emplace_back("for instance device.memory.bandwidth=\"4 TB/s\"");
    throw UserError({std::move(d)});
  }
}

// Settings without which every row is predicted the same.
std::vector<Diagnostic> idle_in(const EvaluateArguments& a, const Tables& tables, const Evaluation& found) {
  return idle_settings(a.settings, false, [&](const std::vector<std::string>& others) {
    const System without = load_system(a.system, shipped_catalogs().systems, others);
    const Evaluation other = shardline::evaluate(without, without.calibration, tables.tables);
    return std::equal(
        found.rows.begin(), found.rows.end(), other.rows.begin(), other.rows.end(),
        [](const PredictedRow& x, const PredictedRow& y) { return x.predicted == y.predicted; });
  });
}

int run(const EvaluateArguments& a, const Provenance& made_by) {
  refuse_to_overwrite("--csv", a.csv, a.measurements);
  require_place_of(a.csv);
  require_of_system(a.settings);
  const System system = load_system(a.system, shipped_catalogs().systems, a.settings);
  if (system.calibration.empty())
    throw UserError("system " + a.system + " has no calibration: make one with shardline calibrate");
  const Tables tables = load_tables(a.measurements);
  const Evaluation result = shardline::evaluate(system, system.calibration, tables.tables);
  print_warnings(idle_in(a, tables, result));
  if (made_by.document != nullptr) {
    api::EvaluateResult out = evaluate_result(system, tables, result);
    out.version = made_by.version;
    out.command = made_by.command;
    made_by.document->set(api::to_json(out));
  }
  print_notes("{}{}: calibrated on {} ({}, {})\n", system.name, set_text(system), system.calibration.source,
              system.calibration.hash, system.calibration.date);
  Table t({"operation", "rows", "median error, %", "90th percentile, %", "worst, %", "bias, %",
           "extrapolated rows", "in 90 % interval, %"});
  for (const auto& [fit, e, outside, covered] : errors_by_variant(system.calibration, result)) {
    t.add({display(system.calibration.fits[fit]), fmt::format("{}", e.rows),
           fmt::format("{:.1f}", 100 * e.median), fmt::format("{:.1f}", 100 * e.p90),
           fmt::format("{:.0f}", 100 * e.worst), fmt::format("{:+.1f}", 100 * e.bias),
           fmt::format("{}", outside),
           fmt::format("{:.1f}", 100 * static_cast<double>(covered) / static_cast<double>(e.rows))});
  }
  print_notes("{}", fitted(t));
  print_each(tables.notes);
  for (const MeasurementTable& read : tables.tables) print_each(read.notes);
  print_each(result.notes);
  if (a.csv.empty()) return 0;
  std::string csv = "file,row,operation,measured_us,predicted_us,error_percent,extrapolated\n";
  CancelCheck check;
  for (const PredictedRow& r : result.rows) {
    check();
    const std::string line = fmt::format(
        "{},{},{},{:.6g},{:.6g},{:.3f},{}\n", tables.names[r.table], tables.tables[r.table].file_row(r.row),
        display(system.calibration.fits[r.fit]), r.measured * 1e6, r.predicted * 1e6,
        100 * (r.predicted / r.measured - 1), r.extrapolated ? "yes" : "no");
    grow_asking(csv, line.size());
    csv += line;
  }
  make_folder_of(a.csv);
  write_file(a.csv, csv);
  print_notes("  wrote {}\n", a.csv);
  return 0;
}

}  // namespace

const Command kEvaluateCommand{"evaluate", "Predict measured rows with a calibrated system; fits nothing",
                               "shardline evaluate measurements/h200 --system h200-mine.yaml --csv rows.csv",
                               prepare<EvaluateArguments, declare, run>};

}  // namespace shardline::cli
