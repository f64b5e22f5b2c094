// Tables that AIConfigurator's collectors write, read as tables of our families. README.md says how each
// column is mapped.
#pragma once

#include <string_view>

#include "calibrate/csv.hpp"
#include "calibrate/measurement.hpp"

namespace shardline {

/// True for a header line with two or more of the columns that every table of AIConfigurator begins with:
/// framework, version, device, op_name, kernel_source.
bool is_aiconfigurator(std::string_view header);

/// Reads the table whose header is line `header` of `text`. Times become seconds, elements bytes, names ours;
/// rows of equal shape become their median; rows without a counterpart are left out. The table's notes count
/// both, by reason. Throws UserError with every fault, located: unknown, missing and doubled columns, wrong
/// numbers of cells, cells that are no numbers or out of range; and where no row is left.
MeasurementTable read_aiconfigurator(CsvText& text, std::size_t header);

}  // namespace shardline
