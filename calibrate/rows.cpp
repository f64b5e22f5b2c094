#include "calibrate/rows.hpp"

#include <algorithm>

#include "sim/base/cancel.hpp"

namespace shardline {

VariantRows rows_of(const Form& form, const System& system, const MeasurementTable& table) {
  VariantRows out;
  std::vector<const std::vector<double>*> numbers;
  std::vector<const std::vector<std::string>*> words;
  for (const char* column : form.numbers) numbers.push_back(&table.number(column));
  for (const char* column : form.words) words.push_back(&table.word(column));
  std::vector<double> x(numbers.size());
  std::vector<std::string> variant(words.size());
  std::map<std::vector<std::string>, bool> known;
  CancelCheck check;
  for (std::size_t row = 0; row < table.size(); ++row) {
    check();
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = (*numbers[i])[row];
    for (std::size_t i = 0; i < variant.size(); ++i) variant[i] = (*words[i])[row];
    const auto [found, fresh] = known.try_emplace(variant, false);
    if (fresh) {
      FormContext context;
      found->second = form.context(variant, system, context);
    }
    if (!found->second || !form.covers(x)) {
      ++out.left_out;
      continue;
    }
    FitRows& rows = out.variants[variant];
    rows.width = x.size();
    rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
    rows.seconds.push_back(table.median[row].value);
    out.engines[variant].push_back(row < table.engines.size() ? table.engines[row] : "");
  }
  return out;
}

bool of_another_engine(const MeasurementTable& table, std::size_t row, const std::string& framework) {
  return !framework.empty() && row < table.engines.size() && !table.engines[row].empty() &&
         table.engines[row] != framework;
}

std::string variant_name(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) {
    if (!w.empty()) out += (out.empty() ? "" : " ") + w;
  }
  return out.empty() ? "all" : out;
}

}  // namespace shardline
