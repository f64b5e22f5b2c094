// The machine that a calibration was measured on, so that a price on another one is not called measured, and
// the parameters of its system file that the fits stand in for, so that a change of them is not silent.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/cost/forms/form.hpp"
#include "hardware/machine/number_ranges.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

/// What a number of a system file is to cost forms. device, nvlink and network are what forms count with: a
/// fit is of the machine that has them. The others are parameters: nothing that a fit covers reads them.
enum class FigureUse : std::uint8_t { device, nvlink, network, parameter };

/// A number of a system file. `key` is its path in the file; `of` is in SI units, 0: not given, as it is by
/// default, or false.
struct MachineFigure {
  const char* key;
  FigureUse use;
  NumberRange range;  // of a system file's
  double (*of)(const System& system);
  void (*set)(System& system, double value) = nullptr;  // parameters: so that of() is `value`
  bool needed = false;  // of the part of a machine that it belongs to: 0 means that there is none
};
/// Every number of a system file that a price may read but nodes, gpus_per_node and the memory's size.
std::span<const MachineFigure> machine_figures();

/// How near a machine that is priced is to the one whose measurements price it.
enum class MachineKin : std::uint8_t {
  own,           // it is the one
  processor,     // the same processor: another memory, other links
  architecture,  // another processor of its architecture
  stranger,      // another architecture
};

struct MeasuredMachine {
  std::string system, device;   // names
  std::vector<double> figures;  // in the order of machine_figures()

  bool empty() const { return figures.empty(); }
  /// Whether `system` is such a machine, as far as fits of this form count with it: the device for all, the
  /// links too for messages. False where it is not known what was measured.
  bool has_measured(const System& system, const Form& form) const;
  /// Whether `system` has as many multiprocessors as this machine, and their peaks. False likewise.
  bool same_processor(const System& system) const;
  /// What was measured of figure `i` of machine_figures(); nothing where it was not said, or the machine has
  /// no such links.
  std::optional<double> figure(std::size_t i) const;
  /// Keys of what forms count with that `system` has otherwise, "device.name" among them.
  std::vector<std::string> differences(const System& system) const;
};

MeasuredMachine measured_machine(const System& system);
/// The `machine` mapping of a calibration; faults are recorded in the document.
MeasuredMachine read_machine(const Reader& reader);
/// The mapping with its key, indented as an entry of `calibration`, without the first line's indent and the
/// last line's end.
std::string machine_yaml(const MeasuredMachine& machine);

}  // namespace shardline
