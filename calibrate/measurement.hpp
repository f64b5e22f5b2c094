// Tables of measured kernels and collectives: the file format that the probe writes and that fits read.
// README.md lists the families and their columns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// count: an integer from 1; size: an integer from 0; name: a word; optional_name: a word or nothing.
enum class ColumnKind : std::uint8_t { count, size, name, optional_name };

struct ColumnSpec {
  const char* name;  // the unit is in the name where it is not a count: message_bytes
  ColumnKind kind = ColumnKind::count;
  std::span<const char* const> words = {};  // names: what may stand there; empty: any word
};

/// One kind of measured operation.
struct FamilySpec {
  const char* name;
  const char* summary;
  std::span<const ColumnSpec> columns;  // of the shape; each shape is measured once per table
};
std::span<const FamilySpec> families();
/// Throws UserError with did-you-mean.
const FamilySpec& family(const std::string& name);

/// One family's rows, by column. Times are per call.
struct MeasurementTable {
  const FamilySpec* family = nullptr;
  std::vector<std::pair<std::string, std::string>> provenance;  // "gpu", "driver", "date", ... in file order
  std::vector<std::vector<double>> numbers;                     // per column of the family; empty for names
  std::vector<std::vector<std::string>> words;                  // likewise for names
  std::vector<Seconds> median, low, high;                       // low and high: 10th and 90th percentile
  std::vector<std::int64_t> samples;  // 0: one published value, low and high equal the median
  std::vector<std::string> notes;     // what the reader left out or joined, with counts

  std::size_t size() const { return median.size(); }
  /// The column's values; SL_CHECKs its name and kind.
  const std::vector<double>& number(std::string_view column) const;
  const std::vector<std::string>& word(std::string_view column) const;
};

/// Reads one table: lines "# key: value" (provenance), a header line, then rows of comma-separated cells. The
/// columns, in any order, name the family; the time is `latency_us`, or `median_us`, `p10_us`, `p90_us` and
/// `samples`. Throws UserError with every fault, located: unknown, missing and doubled columns, other units,
/// wrong numbers of cells, values out of range, rows of equal shape, percentiles out of order. A table whose
/// columns are those of AIConfigurator is read by read_aiconfigurator.
MeasurementTable parse_measurements(const std::string& file_name, const std::string& text);
MeasurementTable load_measurements(const std::filesystem::path& file);

/// The text of a table, as the probe writes it; parses back to the same table.
std::string measurement_csv(const MeasurementTable& table);

}  // namespace shardline
