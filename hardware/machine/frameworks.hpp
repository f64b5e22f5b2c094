// Whose kernels a system runs: those that a framework was measured with, beside its shipped calibration.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hardware/machine/system.hpp"

namespace shardline {

/// Where the calibrations lie that ship beside the systems of a catalogue.
std::filesystem::path calibrations_beside(const std::filesystem::path& catalog_dir);
/// UserError with every fault of the file.
Calibration load_calibration(const std::filesystem::path& file);

/// Adds what was fitted to the kernels of `framework`, and to those of others that its list borrows on such a
/// device: what ships of them beside the system's calibration.
void add_kernels(System& system, const std::string& framework, const std::filesystem::path& catalog_dir);

/// Takes the kernels of another framework than kDefaultFramework: its list, behind it the default's for what
/// it has no kernel for, and what was fitted to its own kernels, where that ships beside the system's
/// calibration. Throws UserError: an unknown framework (with the nearest), a system without a calibration.
void use_framework(System& system, const std::string& framework, const std::filesystem::path& catalog_dir);

/// What was fitted to a framework's kernels alone, beside a system's shipped calibration; nothing where none
/// ships.
std::optional<Calibration> framework_calibration(const std::string& calibration, const std::string& framework,
                                                 const std::filesystem::path& catalog_dir);

/// The frameworks that a catalogue knows, each of whose lists and fits is read once, when a system first asks
/// for it. Safe to ask from several threads.
class MeasuredFrameworks {
 public:
  explicit MeasuredFrameworks(std::filesystem::path catalog_dir) : catalog_dir_(std::move(catalog_dir)) {}
  MeasuredFrameworks(const MeasuredFrameworks&) = delete;
  MeasuredFrameworks& operator=(const MeasuredFrameworks&) = delete;
  /// The system with the kernels of every other framework that was measured for its calibration (as
  /// use_framework()), in the order of their names. Empty where it is said whose kernels run
  /// (KernelList::named) or the calibration does not ship. UserError: as load_calibration().
  std::vector<System> others(const System& own) const;
  /// Their names.
  std::vector<std::string> names(const System& own) const;

 private:
  const std::filesystem::path catalog_dir_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, KernelList> lists_;
  mutable std::map<std::pair<std::string, std::string>, std::optional<Calibration>> fits_;
};

}  // namespace shardline
