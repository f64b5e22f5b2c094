// Measured tables as rows of a form: one set per variant.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "calibrate/fit.hpp"
#include "calibrate/measurement.hpp"

namespace shardline {

/// Words of the variant (Form::words) -> its rows. Rows that the form is not meant for, or of a variant
/// without a context on this system, are counted in `left_out`.
struct VariantRows {
  std::map<std::vector<std::string>, FitRows> variants;
  std::map<std::vector<std::string>, std::vector<std::string>> engines;  // of each variant's rows
  std::size_t left_out = 0;
};
VariantRows rows_of(const Form& form, const System& system, const MeasurementTable& table);

/// [F15] Of a row with the numbers `x` the words of its variant: where a library takes another kernel under
/// the same name, `words` gets that kernel's own.
void name_hidden_kernel(const Form& form, std::span<const double> x, std::vector<std::string>& words);

/// Whether a row names another engine than `framework`; not where either is not said.
bool of_another_engine(const MeasurementTable& table, std::size_t row, const std::string& framework);
bool of_another_engine(const std::string& engine, const std::string& framework);

/// "bf16 torch_flow"
std::string variant_name(const std::vector<std::string>& words);

}  // namespace shardline
