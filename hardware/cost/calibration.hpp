// Fitted cost forms of a system: what calibrate writes and the cost model reads.
#pragma once

#include <string>
#include <vector>

#include "hardware/cost/fit_intervals.hpp"
#include "hardware/cost/forms/correction.hpp"
#include "hardware/cost/forms/form.hpp"
#include "hardware/cost/measured_cells.hpp"
#include "hardware/cost/measured_machine.hpp"
#include "sim/base/reader.hpp"
#include "sim/base/shared_list.hpp"

namespace shardline {

/// One variant of a form.
struct KernelFit {
  const Form* form = nullptr;
  std::vector<std::string> words;             // in the order of Form::words
  std::string framework;                      // whose kernel it is; empty: the calibration does not say
  std::vector<double> parameters, low, high;  // with 95 % confidence
  std::vector<double> range_low, range_high;  // of the shapes seen, per axis, log2
  MeasuredCells cells;                        // of the shapes seen; empty: the ranges are all that is known
  std::string derived;  // how its rows follow from measured ones; empty: they were measured themselves
  Correction correction;
  FitError roofline, alone, corrected;  // on rows that the fit had not seen
  FitIntervals intervals;               // the same as bands of corrected
  std::size_t far_axis = kMostAxes;     // of far_axis(); kMostAxes: none

  /// "nccl all_reduce": the family and the words of the variant.
  std::string name() const;
  /// Whether the shape, in the form's coordinates, does not lie among those that the fit has seen: beyond
  /// them on some axis, or with no measured row near it.
  bool outside(std::span<const double> coordinates) const;
  /// Whether the shapes that the fit has seen reach as far on this axis.
  bool in_range(std::size_t axis, double coordinate) const;
};

struct Calibration {
  std::string name;  // of a shipped one; empty: of another file, or a part of the system's own
  std::string framework, version_of_framework;  // whose kernels were measured; empty: not said
  std::string source;                           // where the measurements come from
  std::string hash;                             // of the measured tables
  std::string date, version;
  SharedList<KernelFit> fits;
  MeasuredMachine machine;  // that was measured
  std::string like;  // the shipped calibration of another system that these are from; empty: of this one
  double power_limit = 0;  // W, of the lender's device where borrowed with `like`; 0: not known
  bool empty() const { return fits.empty(); }
  /// Whose fits of this form are, used on `system`: another machine's where borrowed with `like`, or measured
  /// on a device or links with other figures.
  MachineKin kin(const System& system, const Form& form) const;
};

/// The `calibration` mapping of a system file; faults are recorded in the document.
Calibration read_calibration(const Reader& reader);
/// The mapping as text, indented by two, that read_calibration() reads back to the same values (parameters to
/// six digits, corrections to 0.1 %).
std::string calibration_yaml(const Calibration& calibration);

}  // namespace shardline
