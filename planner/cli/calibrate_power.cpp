#include "planner/cli/calibrate_power.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "calibrate/calibrate.hpp"
#include "calibrate/power.hpp"
#include "planner/api/evaluate.hpp"
#include "planner/cli/terminal_parts.hpp"
#include "planner/scenario/shipped.hpp"
#include "reports/atomic_file.hpp"
#include "reports/table.hpp"
#include "sim/base/reader.hpp"

namespace shardline::cli {

namespace {

std::vector<std::filesystem::path> files_of(const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> out;
  for (const std::string& p : paths) {
    if (!is_folder(p)) {
      out.emplace_back(p);
      continue;
    }
    for (const std::filesystem::path& file : csv_files(p)) {
      if (file.filename().string().starts_with("power_")) out.push_back(file);
    }
  }
  if (out.empty()) throw UserError("no table called power_*.csv in the folders");
  return out;
}

void print(const System& system, const PowerFit& fit) {
  print_notes("{}: watts of a board; waiting {:.0f}, at most {:.0f}\n", system.name, fit.power.idle,
              fit.power.most);
  Table t({"kernels", "rows", "base, W", "arithmetic, W", "memory, W", "unseen shapes, %", "90 % interval, %",
           "covered, %"});
  for (std::size_t k = 0; k < kPowerClasses; ++k) {
    const PowerLaw& law = fit.power.laws[k];
    const PowerFit::OfClass& c = fit.classes[k];
    t.add({power_key(static_cast<PowerClass>(k)), fmt::format("{}", c.rows), fmt::format("{:.0f}", law.base),
           fmt::format("{:.0f}", law.tensor), fmt::format("{:.0f}", law.memory),
           fmt::format("{:.1f} / {:.1f}", 100 * c.median, 100 * c.p90),
           fmt::format("{:+.0f} / {:+.0f}", 100 * std::expm1(law.band.low), 100 * std::expm1(law.band.high)),
           fmt::format("{:.1f}", 100 * c.covered)});
  }
  print_notes("{}", fitted(t));
}

void set_document(const CalibratePower& asked, const PowerFit& fit, const std::vector<std::string>& notes,
                  const Provenance& made_by) {
  if (made_by.document == nullptr) return;
  api::CalibratePowerResult out;
  out.version = made_by.version;
  out.command = made_by.command;
  out.system = asked.system;
  out.folds = asked.folds;
  out.source = fit.power.source;
  out.idle_w = fit.power.idle;
  out.most_w = fit.power.most;
  for (std::size_t k = 0; k < kPowerClasses; ++k) {
    const PowerLaw& law = fit.power.laws[k];
    const PowerFit::OfClass& c = fit.classes[k];
    out.laws.push_back({power_key(static_cast<PowerClass>(k)), c.rows, law.base, law.tensor, law.memory,
                        c.median, c.p90, law.band.low, law.band.high, c.covered});
  }
  out.notes = notes;
  made_by.document->set(api::to_json(out));
}

}  // namespace

int calibrate_power(const CalibratePower& asked, const Provenance& made_by) {
  const System system = load_system(asked.system, shipped_catalogs().systems);
  std::vector<PowerRow> rows;
  std::vector<std::string> notes;
  std::string names;
  double limit = 0;
  for (const std::filesystem::path& file : files_of(asked.measurements)) {
    const PowerTable table = load_power(file, system.device);
    if (limit > 0 && table.limit != limit)
      throw UserError(fmt::format("{}: boards of {:.0f} W, those of other tables have {:.0f} W",
                                  file.string(), table.limit, limit));
    limit = table.limit;
    rows.insert(rows.end(), table.rows.begin(), table.rows.end());
    notes.insert(notes.end(), table.notes.begin(), table.notes.end());
    names += (names.empty() ? "" : ", ") + file.filename().string();
  }
  PowerFit fit = fit_power(rows, asked.folds);
  fit.power.source = asked.source.empty() ? names : asked.source;
  print(system, fit);
  for (const std::string& note : notes) print_notes("  {}\n", note);
  set_document(asked, fit, notes, made_by);
  if (!asked.out.empty()) {
    make_folder_of(asked.out);
    const std::string text = power_yaml(fit.power);
    // A file that is not read again replaces none.
    shardline::Document written = shardline::Document::parse(asked.out, text);
    read_board_power(written.root().at("power"), system.device.power_limit, {});
    written.finish();
    write_file(asked.out, text, AfterInterrupt::refuse, IfRead::replace);
    print_notes("  wrote {}\n", asked.out);
  }
  return 0;
}

}  // namespace shardline::cli
