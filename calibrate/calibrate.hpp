// From tables of measurements to fitted cost forms with known errors, and back: what a calibrated system
// predicts for each measured row.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/fit.hpp"
#include "calibrate/measurement.hpp"
#include "hardware/cost/calibration.hpp"
#include "hardware/machine/system.hpp"
#include "sim/base/memory_limit.hpp"

namespace shardline {

struct CalibrateOptions {
  int folds = 4;
  int threads = 0;  // 0: all cores; the result does not depend on it
  FitOptions fit;
  /// Whose kernels the tables are of: written into the calibration, and rows that name another engine are
  /// left out. Empty: not said.
  std::string framework, version;
  /// For a progress line: as the fit of a variant begins, in any thread, of how many there are.
  std::function<void(std::uint64_t of)> step = {};
};

/// A measured row and what is predicted for it.
struct PredictedRow {
  std::size_t table = 0, row = 0;      // of the tables given
  std::size_t fit = 0;                 // of the calibration
  double measured = 0, predicted = 0;  // seconds
  bool extrapolated = false;           // not FitDistance::measured()
  ErrorBand band;                      // nominal 90 % of ln(measured / predicted)
  bool covered() const { return band.contains(std::log(measured / predicted)); }
};

struct Calibrated {
  Calibration calibration;
  std::vector<std::string> notes;  // what was left out, and why
};

/// Fits every variant of every family that has a form. A correction is kept only where it lowers the held-out
/// error. `tables` of one family are joined; of a shape that stands in two the first is taken, and of a
/// variant that two engines measured the engine of the first row, with notes. Throws UserError if no table
/// has a form.
Calibrated calibrate(const System& system, std::span<const MeasurementTable> tables,
                     const CalibrateOptions& options = {});

struct Evaluation {
  std::vector<PredictedRow> rows;
  std::vector<std::string> notes;  // families and variants without a fit, with their rows
};
/// Predicts every row of every table that the calibration has a fit for, but rows that name another engine
/// than the calibration's. Of blocks of sparse attention [F12] is done first, which fits selections.
Evaluation evaluate(const System& system, const Calibration& calibration,
                    std::span<const MeasurementTable> tables);

/// Errors over the rows of one variant.
struct VariantErrors {
  std::size_t fit = 0;  // of the calibration
  FitError error;
  std::size_t extrapolated = 0;  // rows
  std::size_t covered = 0;       // rows that their bands hold
};
/// Of the variants with rows, in the order of the calibration's fits.
std::vector<VariantErrors> errors_by_variant(const Calibration& calibration, const Evaluation& evaluation);

/// 64 bits of FNV-1a over the texts, as 16 hexadecimal digits.
std::string hash_of(std::span<const std::string> texts);
/// The same over the bytes of files.
std::string hash_of_files(std::span<const std::filesystem::path> files);

/// Whether the path is a folder; what is not there is none. Throws UserError where that cannot be told: loops
/// of links, names that are too long, folders that may not be entered.
bool is_folder(const std::filesystem::path& path);
/// What a folder holds, in the order of the names. Throws UserError.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);
/// The .csv files among them.
std::vector<std::filesystem::path> csv_files(const std::filesystem::path& folder);

/// Tables with the names of their files, and the hash of them all.
struct Tables {
  std::vector<MeasurementTable> tables;
  std::vector<std::string> names;
  std::string hash;                // of all files, whatever is left out of them
  std::vector<std::string> notes;  // tables of folders that no form prices
};
/// What reading tables and pricing their rows needs, what a fit to them does, and what a report on all of
/// them at once does, by the size of the files that load_tables() reads.
MemoryNeed need_of_evaluation(const std::vector<std::string>& paths);
MemoryNeed need_of_fit(const std::vector<std::string>& paths);
MemoryNeed need_of_report(const std::vector<std::string>& paths);

/// Files, and all .csv of folders, in the order of their names; without the rows that leave_out() takes out.
/// Throws UserError: UnpricedTable for a file that is one, no table of a folder that any form prices.
Tables load_tables(const std::vector<std::string>& paths);

}  // namespace shardline
