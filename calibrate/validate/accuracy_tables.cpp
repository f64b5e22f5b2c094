// Which systems have calibrations, and which tables were measured on them.
#include <fmt/format.h>

#include <algorithm>

#include "calibrate/calibrate.hpp"
#include "calibrate/validate/accuracy.hpp"
#include "hardware/machine/frameworks.hpp"

namespace shardline::cli {

namespace {

namespace fs = std::filesystem;

// Where "=" is in SYSTEM=FOLDER; npos: a folder of folders.
std::size_t behind_system(const std::string& argument) {
  std::error_code error;
  return fs::is_directory(argument, error) ? std::string::npos : argument.find('=');
}

MeasuredTables load_measured(const System& system, const fs::path& folder, std::vector<std::string>& notes) {
  Tables read = load_tables({folder.string()});
  for (const std::string& note : read.notes) notes.push_back(system.name + ": " + note);
  MeasuredTables out;
  out.system = system;
  out.hash = std::move(read.hash);
  out.tables = std::move(read.tables);
  return out;
}

}  // namespace

std::vector<System> calibrated_systems(const fs::path& catalog_dir) {
  std::vector<System> out;
  for (const std::string& name : system_names(catalog_dir)) {
    std::error_code error;
    if (!fs::exists(catalog_dir.parent_path() / "calibrations" / (name + ".yaml"), error)) continue;
    System s = load_system(name, catalog_dir);
    if (s.calibration.empty()) continue;
    // What its list borrows of others stands in their own.
    std::erase_if(s.calibration.fits.edit(), [&](const KernelFit& f) {
      return !f.framework.empty() && f.framework != s.calibration.framework;
    });
    out.push_back(s);
    for (const std::string& framework : kernel_list_names(catalog_dir)) {
      std::optional<Calibration> own = framework_calibration(s.calibration.name, framework, catalog_dir);
      if (!own) continue;
      out.push_back(s);
      out.back().name += "." + framework;
      out.back().calibration = std::move(*own);
    }
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
    std::error_code error;
    if (const std::size_t equals = behind_system(argument); equals != std::string::npos) {
      const System system = load_system(argument.substr(0, equals), catalog_dir);
      if (system.calibration.empty())
        throw UserError("system " + system.name + " has no calibration: make one with shardline calibrate");
      MeasuredTables m = load_measured(system, argument.substr(equals + 1), notes);
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
      add(load_measured(*found, sub, notes));
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

MemoryNeed need_of_accuracy(std::span<const std::string> measurements) {
  std::vector<std::string> folders;
  for (const std::string& argument : measurements) {
    if (const std::size_t equals = behind_system(argument); equals != std::string::npos) {
      folders.push_back(argument.substr(equals + 1));
      continue;
    }
    std::error_code error;
    for (const fs::path& sub : entries_of(argument)) {
      if (fs::is_directory(sub, error)) folders.push_back(sub.string());
    }
  }
  return need_of_report(folders);
}

AccuracyStudy accuracy_study(std::span<const std::string> measurements, const fs::path& catalog_dir) {
  require_memory(need_of_accuracy(measurements));
  AccuracyStudy out;
  out.systems = calibrated_systems(catalog_dir);
  if (out.systems.empty()) throw UserError("no system of the catalogue has a calibration of its own");
  out.borrowed = borrowed_calibrations(catalog_dir, out.systems);
  out.measured = measured_tables(measurements, catalog_dir, out.systems, out.notes);
  for (const MeasuredTables& m : out.measured) {
    for (const MeasurementTable& t : m.tables) {
      for (const std::string& note : t.notes) out.notes.push_back(m.system.name + ": " + note);
    }
  }
  return out;
}

}  // namespace shardline::cli
