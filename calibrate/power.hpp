// The law of a board's power from measured kernels. calibrate/README.md [F14].
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hardware/cost/op_power.hpp"

namespace shardline {

/// Mean power of a board on which one kernel ran again and again.
struct PowerRow {
  PowerClass of = PowerClass::product;
  DeviceUse use;  // at the time that the row has beside its watts
  double watts = 0;
  std::string shape;  // all columns but types, kernel and engine: rows of one are withheld together
};

struct PowerTable {
  std::vector<PowerRow> rows;
  double limit = 0;                // W, of the board; the same in all rows
  std::vector<std::string> notes;  // what was left out, with counts
};
/// Reads one table of AIConfigurator's columns: `power_w`, `power_limit_w`, `latency_us` and a shape of gemm,
/// attention_prefill or attention_decode. `device` says which part of its peaks a row uses. Throws UserError
/// with every fault, located.
PowerTable parse_power(const std::string& file_name, const std::string& text, const Device& device);
PowerTable load_power(const std::filesystem::path& file, const Device& device);

struct PowerFit {
  BoardPower power;
  struct OfClass {
    std::size_t rows = 0;
    double median = 0, p90 = 0;  // |predicted / measured - 1| of shapes left out
    double covered = 0;          // by the band of the other folds
  };
  std::array<OfClass, kPowerClasses> classes;
};
/// [F14] Least sum of |ln(measured / predicted)| for each class, its band from shapes left out in `folds`
/// parts. Deterministic. Throws UserError where a class has too few rows to tell its three numbers.
PowerFit fit_power(const std::vector<PowerRow>& rows, int folds);

/// The mapping `power` of a system file.
std::string power_yaml(const BoardPower& power);

}  // namespace shardline
