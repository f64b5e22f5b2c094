// What a probe hands back: one family's table with what each row did, and notes on what is missing.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "calibrate/measurement.hpp"
#include "cuda_probe/probes/measure.hpp"

namespace shardline {

/// A column of a row and its value.
struct Cell {
  const char* column;
  std::variant<std::int64_t, std::string> value;
};

/// Operations and bytes of one call; 0 where they mean nothing.
struct Amount {
  Flops flops;
  Bytes bytes;
};

class FamilyResult {
 public:
  explicit FamilyResult(const std::string& family_name);

  /// One row. `cells` name each column of the family once; optional ones may be missing. A measurement
  /// without a result adds a note instead.
  void add(std::initializer_list<Cell> cells, const Measured& measured, Amount amount);
  /// Something that the reader of the table must know: shown, and written into its head.
  void note(std::string text);
  /// Shapes that were not measured; `why`: "out of time".
  void unmeasured(std::size_t left, std::size_t of, const std::string& why);

  const MeasurementTable& table() const { return table_; }
  const std::vector<Amount>& amounts() const { return amounts_; }
  const std::vector<std::string>& notes() const { return notes_; }

  /// The table as CSV: `provenance`, then what this family adds (notes; discarded, drifted and inexact
  /// shapes), then the rows.
  std::string csv(const std::vector<std::pair<std::string, std::string>>& provenance) const;
  /// For people: at most `most` rows, evenly spread over the table, with rates, and as part of the roof where
  /// one is known (0: none); then the notes.
  std::string summary(BytesPerSecond roof, std::size_t most = 12) const;

 private:
  std::string shape_text(std::size_t row) const;

  MeasurementTable table_;
  std::vector<Amount> amounts_;
  std::vector<std::string> notes_;
  std::size_t discarded_ = 0, inexact_ = 0;
  double lowest_clock_ = 0, highest_clock_ = 0;
};

/// The device and its software, as they were found. Unknown values are empty or 0.
struct DeviceInfo {
  std::string gpu, compute_capability, driver, cuda_runtime, cublaslt, cudnn, nccl, ecc, mig;
  int gpus = 0, multiprocessors = 0;
  Bytes memory, l2;
  double sm_clock = 0, sm_clock_highest = 0, memory_clock = 0, memory_clock_highest = 0;  // MHz
  double power_limit = 0;                                                                 // W
  double temperature = 0;                                                                 // degrees Celsius
};

/// The head of every table. `date` is UTC.
std::vector<std::pair<std::string, std::string>> provenance(const DeviceInfo& device, const MeasureRule& rule,
                                                            const std::string& date,
                                                            const std::string& command);

/// "2026-11-21T09:30:00Z".
std::string utc_now();

/// What the command line calls a probe, and the families (tables) that it fills.
struct Probe {
  const char* name;
  const char* summary;
  std::vector<const char*> families;
  double share;  // of the time, relative to the others
};
const std::vector<Probe>& probes();
/// Names separated by commas, in the order of probes(); empty: all. Throws UserError with did-you-mean.
std::vector<const Probe*> probes_named(const std::string& names);

}  // namespace shardline
