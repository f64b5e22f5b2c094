// How far calibrated costs are from measurements: goals, errors per family and the text of
// reports/accuracy.md. Equations: calibrate/README.md [F3], [F4].
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/measurement.hpp"
#include "hardware/machine/system.hpp"
#include "sim/base/memory_limit.hpp"

namespace shardline::cli {

/// What is aimed at for each variant of a family: held-out absolute errors, as parts of the measured time; of
/// reported_error().
struct AccuracyGoal {
  const char* family;
  const char* title;
  double median, p90;
  bool collective = false;
  std::span<const char* const> types = {};  // first words of the variants; empty: all others of the family
};
/// One per form, in the order of the report.
std::span<const AccuracyGoal> accuracy_goals();
/// Of some types of a family, in the place of its own.
std::span<const AccuracyGoal> narrower_goals();
/// SL_CHECKs that the family has one.
const AccuracyGoal& accuracy_goal(std::string_view family);
/// That of the variant's type, else of its family.
const AccuracyGoal& accuracy_goal(const KernelFit& fit);
/// Of a system whose calibration is borrowed from another one.
inline constexpr AccuracyGoal kBorrowedGoal{"", "any, calibration borrowed from another system", 0.06, 0.18};

/// What an axis of a form counts, in words; SL_CHECKs that it is known.
std::string_view axis_meaning(const Form& form, std::size_t axis);

/// The error that stands for a fit: of experts that on models whose rows were all withheld [F6], as a plan's
/// model is seldom one that was measured; of other kernels, and where no models could be withheld, that on
/// withheld shapes [F4].
const FitError& reported_error(const KernelFit& fit);

/// unknown: no row was held out.
enum class Verdict : std::uint8_t { met, missed, unknown };
/// An error equal to the goal meets it.
Verdict verdict(const FitError& error, const AccuracyGoal& goal);

/// The variants of one family, by their reported errors. Worst: that which is farthest from its
/// goal, in median or 90th percentile, relative to it; so if any misses the goal, the worst does. Variants of
/// unknown error are neither best nor worst; null if all are.
struct FamilyAccuracy {
  const AccuracyGoal* goal = nullptr;
  std::vector<const KernelFit*> fits;  // in the order of the calibration, which must live on
  const KernelFit* best = nullptr;
  const KernelFit* worst = nullptr;
  std::size_t missed = 0;
};
/// Families with a fit, in the order of accuracy_goals().
std::vector<FamilyAccuracy> accuracy_by_family(const Calibration& calibration);

/// Bands of several variants: the mean over their rows.
struct PooledBand {
  std::size_t variants = 0, rows = 0;
  ErrorBand band;
  double covered = -1;  // part of the rows that bands of other rows hold; less than 0: tried on none
};
/// Nominal 90 % bands of a family's variants, by what was withheld. Derived ones do not count.
struct FamilyIntervals {
  PooledBand inside, family, beyond;
};
FamilyIntervals pooled_intervals(const FamilyAccuracy& family);

/// Systems of the catalogue with a calibration of their own: one of their name is in calibrations/ beside it.
/// Behind each, as SYSTEM.FRAMEWORK, the same machine with what was fitted to one framework's kernels alone.
std::vector<System> calibrated_systems(const std::filesystem::path& catalog_dir);

/// A system of the catalogue that uses the calibration of another.
struct BorrowedCalibration {
  std::string system, from;
};
/// Found by the hash of tables that calibrations carry.
std::vector<BorrowedCalibration> borrowed_calibrations(const std::filesystem::path& catalog_dir,
                                                       std::span<const System> own);

/// Tables measured on one system.
struct MeasuredTables {
  System system;          // with a calibration
  bool borrowed = false;  // the calibration is another system's
  std::string hash;       // hash_of() their texts
  std::vector<MeasurementTable> tables;
  /// Whether the calibration was fitted to these very tables.
  bool fitted() const { return hash == system.calibration.hash; }
};

/// Each argument is SYSTEM=FOLDER (SYSTEM: a catalogue name or a file; FOLDER: its .csv are read), or a
/// folder whose subfolders are matched with the systems `own` by the hash of tables that each calibration
/// carries. `notes`: subfolders of no calibration. Throws UserError.
std::vector<MeasuredTables> measured_tables(std::span<const std::string> arguments,
                                            const std::filesystem::path& catalog_dir,
                                            std::span<const System> own, std::vector<std::string>& notes);

/// All that the report is written from.
struct AccuracyStudy {
  std::vector<System> systems;  // calibrated_systems(), one at least
  std::vector<BorrowedCalibration> borrowed;
  std::vector<MeasuredTables> measured;
  std::vector<std::string> notes;  // what was left out, and why
};
/// What the study and its report need of memory, by the size of all tables that are given. Throws UserError.
MemoryNeed need_of_accuracy(std::span<const std::string> measurements);
/// `measurements` as measured_tables() takes them. Throws UserError; where memory for them is short, too.
AccuracyStudy accuracy_study(std::span<const std::string> measurements,
                             const std::filesystem::path& catalog_dir);

/// The report as far as the calibrations alone tell it. The same bytes for the same calibrations.
std::string accuracy_report(std::span<const System> systems, std::span<const BorrowedCalibration> borrowed);

/// Behind it, of the profiles in a folder: how far what engines serve was off.
std::string engines_section(const std::filesystem::path& folder);

inline constexpr std::string_view kMeasuredHeading = "## Every measured row";
/// What follows accuracy_report() where tables are given: errors over all their rows, pooled per family.
std::string measured_section(std::span<const MeasuredTables> measured);

/// Rows of one machine priced by the fits of another, as `calibration: {like: ...}` would: errors, and how
/// many of them the bands of [H63] hold. Empty without two machines whose tables were fitted.
std::string borrowed_section(std::span<const MeasuredTables> measured);
/// [F11] How far products lie apart in the tables that ought to be equal, and which goals are below that.
/// Empty without tables of products.
std::string scatter_section(std::span<const MeasuredTables> measured);
/// [F9] The longest caches of every decode kernel, predicted by fits to shorter ones. Empty without decode
/// tables. Takes seconds per kernel; the same for any number of threads (0: all cores).
std::string longest_section(std::span<const MeasuredTables> measured, int threads = 0);
/// The same of blocks of sparse attention, by a model's layer. Empty without tables of such that were fitted.
std::string longest_sparse_section(std::span<const MeasuredTables> measured, int threads = 0);

/// Identifies what was fitted: changes with any digit that a calibration file holds.
std::string fits_hash(const Calibration& calibration);

}  // namespace shardline::cli
