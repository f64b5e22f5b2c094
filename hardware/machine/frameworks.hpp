// Whose kernels a system runs: those that a framework was measured with, beside its shipped calibration.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

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

}  // namespace shardline
