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

/// count: an integer from 1; size: an integer from 0; name: a word; optional_size, optional_name: that, or
/// nothing (then 0 or no name).
enum class ColumnKind : std::uint8_t { count, size, name, optional_size, optional_name };

struct ColumnSpec {
  const char* name;  // the unit is in the name where it is not a count: message_bytes
  ColumnKind kind = ColumnKind::count;
  std::span<const char* const> words = {};  // names: what may stand there; empty: any word
  bool optional = false;                    // a file may lack the column: no name then, or 0
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

/// Tables that are known by their columns, but belong to no family: what they hold, which no form prices.
struct UnpricedSpec {
  const char* what;
  std::span<const char* const> columns;  // all of them stand in such a table, and in no table of a family
};
std::span<const UnpricedSpec> unpriced_tables();

/// One family's rows, by column. Times are per call.
struct MeasurementTable {
  const FamilySpec* family = nullptr;
  std::vector<std::pair<std::string, std::string>> provenance;  // "gpu", "driver", "date", ... in file order
  std::vector<std::vector<double>> numbers;                     // per column of the family; empty for names
  std::vector<std::vector<std::string>> words;                  // likewise for names
  // Per row, "vllm" and "0.24.0" of a column `engine`, which any file may have; empty words without it.
  std::vector<std::string> engines, versions;
  std::vector<Seconds> median, low, high;  // low and high: 10th and 90th percentile
  std::vector<std::int64_t> samples;       // 0: one published value, low and high equal the median
  // Per row, which of its file it is: from 1, behind the header. Empty of a table that no file holds.
  std::vector<std::size_t> file_rows;
  std::vector<std::string> notes;  // what the reader left out or joined, with counts

  std::size_t size() const { return median.size(); }
  /// Which of its file a row is, though others were left out before it.
  std::size_t file_row(std::size_t row) const { return file_rows.empty() ? row + 1 : file_rows[row]; }
  /// The column's values; SL_CHECKs its name and kind. "engine" is a column of names in every family.
  const std::vector<double>& number(std::string_view column) const;
  const std::vector<std::string>& word(std::string_view column) const;
};

/// A table of unpriced_tables().
class UnpricedTable : public UserError {
 public:
  using UserError::UserError;
};

/// Reads one table: lines "# key: value" (provenance), a header line, then rows of comma-separated cells. The
/// columns, in any order, name the family; the time is `latency_us`, or `median_us`, `p10_us`, `p90_us` and
/// `samples`. Throws UserError with every fault, located: unknown, missing and doubled columns, other units,
/// wrong numbers of cells, values out of range, rows of equal shape, percentiles out of order. Engines that
/// rows name go into the provenance, too. Throws UnpricedTable for a table that no form prices. A table whose
/// columns are those of AIConfigurator is read by read_aiconfigurator.
MeasurementTable parse_measurements(const std::string& file_name, const std::string& text);
MeasurementTable load_measurements(const std::filesystem::path& file);

/// The text of a table, as the probe writes it; parses back to the same table.
std::string measurement_csv(const MeasurementTable& table);

}  // namespace shardline
