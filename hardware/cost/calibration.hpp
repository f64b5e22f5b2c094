// Fitted cost forms of a system: what calibrate writes and the cost model reads.
#pragma once

#include <string>
#include <vector>

#include "hardware/cost/forms/correction.hpp"
#include "hardware/cost/forms/form.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

/// Absolute errors of predictions, as parts of the measured time.
struct FitError {
  std::size_t rows = 0;
  double median = 0, p90 = 0, worst = 0;
  double bias = 0;  // median of predicted / measured - 1
};

/// One variant of a form.
struct KernelFit {
  const Form* form = nullptr;
  std::vector<std::string> words;             // in the order of Form::words
  std::vector<double> parameters, low, high;  // with 95 % confidence
  std::vector<double> range_low, range_high;  // of the shapes seen, per axis, log2
  Correction correction;
  FitError roofline, alone, corrected;  // on rows that the fit had not seen

  /// "nccl all_reduce": the family and the words of the variant.
  std::string name() const;
  /// Whether the shape lies outside of what the fit has seen, on any axis.
  bool extrapolates(std::span<const double> x, const FormContext& context) const;
  /// The same from the form's coordinates.
  bool outside(std::span<const double> coordinates) const;
};

struct Calibration {
  std::string source;  // where the measurements come from
  std::string hash;    // of the measured tables
  std::string date, version;
  std::vector<KernelFit> fits;
  std::string like;  // the shipped calibration of another system that these are from; empty: of this one
  std::vector<std::string> prefer;  // kernels to use where several were measured; else the best measured one
  bool empty() const { return fits.empty(); }
};

/// The `calibration` mapping of a system file; faults are recorded in the document.
Calibration read_calibration(const Reader& reader);
/// The mapping as text, indented by two, that read_calibration() reads back to the same values (parameters to
/// six digits, corrections to 0.1 %).
std::string calibration_yaml(const Calibration& calibration);

}  // namespace shardline
