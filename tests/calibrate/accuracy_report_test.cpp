// That the committed reports/accuracy.md is current, and reproduced where the published tables are at hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "calibrate/calibrate.hpp"
#include "tests/calibrate/accuracy_support.hpp"
#include "tests/support/files.hpp"

namespace shardline::cli {
namespace {

using ::testing::ElementsAre;

const std::filesystem::path kReport = SHARDLINE_SOURCE_DIR "/reports/accuracy.md";

std::vector<System> shipped() { return calibrated_systems(kCatalog); }

std::string current_report() {
  const std::vector<System> systems = shipped();
  return accuracy_report(systems, borrowed_calibrations(kCatalog, systems)) +
         engines_section(SHARDLINE_SOURCE_DIR "/planner/engines");
}

/// Leaves what is current beside the program where it differs.
void expect_current(const std::string& committed, const std::string& current) {
  if (committed == current) return;
  const std::filesystem::path made = std::filesystem::path(SHARDLINE_BINARY_DIR) / "accuracy.md.new";
  std::ofstream(made) << current;
  std::istringstream a(committed), b(current);
  std::string x, y;
  int line = 0;
  do {
    ++line;
    x = y = "(end)";
    std::getline(a, x);
    std::getline(b, y);
  } while (x == y && (a || b));
  ADD_FAILURE() << "reports/accuracy.md differs from line " << line << " on:\n  " << x << "\nis now\n  " << y
                << "\nWhat is current: " << made << "\nMake it anew as it says under To reproduce.";
}

TEST(AccuracyReport, AgreesWithTheCalibrations) {
  const std::string committed = testing::read_file(kReport);
  const std::size_t measured = committed.find(kMeasuredHeading);
  ASSERT_NE(measured, std::string::npos) << "reports/accuracy.md was made without --measurements";
  expect_current(committed.substr(0, measured), current_report());
  // The rest needs the tables; that it was made with the calibrations of now is seen without.
  const std::vector<System> systems = shipped();
  const auto tables = committed.substr(measured);
  for (const System& s : systems) {
    const auto rows = rows_with(tables, s.name);
    ASSERT_FALSE(rows.empty()) << s.name;
    EXPECT_THAT(rows[0],
                ElementsAre(s.name, s.calibration.hash, fits_hash(s.calibration), "those it was fitted to"));
  }
  EXPECT_EQ(committed.find("/work"), std::string::npos);
}

TEST(AccuracyReport, EveryRowOfATableHasAsManyCells) {
  std::istringstream lines(testing::read_file(kReport));
  std::ptrdiff_t columns = 0;
  int tables = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::ptrdiff_t bars = std::count(line.begin(), line.end(), '|');
    if (!line.starts_with("|")) {
      EXPECT_LE(line.size(), 120u) << line;
      columns = 0;
      continue;
    }
    tables += columns == 0 ? 1 : 0;
    if (columns == 0) columns = bars;
    EXPECT_EQ(bars, columns) << line;
  }
  EXPECT_GT(tables, 20);
}

/// The tables that every shipped calibration was fitted to, or why they are not at hand.
struct Published {
  std::vector<MeasuredTables> tables;
  std::string missing;
};
Published published() {
  Published out;
  const char* folder = std::getenv("SHARDLINE_MEASUREMENTS");
  if (folder == nullptr) {
    out.missing = "SHARDLINE_MEASUREMENTS names no folder of tables";
    return out;
  }
  const std::vector<System> systems = shipped();
  std::vector<std::string> notes;
  try {
    out.tables = measured_tables(std::vector<std::string>{folder}, kCatalog, systems, notes);
  } catch (const UserError& e) {
    out.missing = e.what();
  }
  for (const System& s : systems) {
    if (std::none_of(out.tables.begin(), out.tables.end(),
                     [&](const MeasuredTables& m) { return m.system.name == s.name; }))
      out.missing += "no tables with the hash of " + s.name + "'s calibration in SHARDLINE_MEASUREMENTS; ";
  }
  return out;
}

TEST(PublishedAccuracy, TheWholeReportIsReproduced) {
  const Published p = published();
  if (!p.missing.empty()) GTEST_SKIP() << p.missing;
  expect_current(testing::read_file(kReport), current_report() + measured_section(p.tables) +
                                                  scatter_section(p.tables) + borrowed_section(p.tables) +
                                                  longest_section(p.tables));
}

// Small families of every system, and all of the smallest system.
TEST(PublishedAccuracy, ShippedCalibrationsAreReproducedToTheLastDigit) {
  const Published p = published();
  if (!p.missing.empty()) GTEST_SKIP() << p.missing;
  const std::set<std::string> small{"allreduce", "mla_bmm", "nccl"};
  std::size_t fits = 0;
  for (const MeasuredTables& m : p.tables) {
    SCOPED_TRACE(m.system.name);
    const bool whole = m.system.name == "a100-sxm";
    const auto chosen = [&](const char* family) { return whole || small.contains(family); };
    std::vector<MeasurementTable> tables;
    for (const MeasurementTable& t : m.tables) {
      if (chosen(t.family->name)) tables.push_back(t);
    }
    Calibration shipped_fits = m.system.calibration;
    std::erase_if(shipped_fits.fits.edit(), [&](const KernelFit& f) { return !chosen(f.form->family); });
    Calibration anew = shipped_fits;
    CalibrateOptions options;
    options.framework = shipped_fits.framework;
    options.version = shipped_fits.version_of_framework;
    anew.fits = calibrate(m.system, tables, options).calibration.fits;
    EXPECT_EQ(calibration_yaml(anew), calibration_yaml(shipped_fits));
    fits += anew.fits.size();
  }
  EXPECT_GT(fits, 30u);
}

}  // namespace
}  // namespace shardline::cli
