// Tables of AIConfigurator. A text that begins with a capital letter is the rows of its kind of table, whose
// whole header is put in front: A of the first kind, B of the second, ... Any other has its own header.
#include "calibrate/aiconfigurator.hpp"

#include <span>
#include <string>

#include "calibrate/aiconfigurator_tables.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace shardline;

// Nothing for a text with a header of its own.
const aiconfigurator::Table* table_of(const std::string& text) {
  const auto kinds = aiconfigurator::tables();
  if (text.empty() || text[0] < 'A' || text[0] >= 'A' + static_cast<int>(kinds.size())) return nullptr;
  return &kinds[static_cast<std::size_t>(text[0] - 'A')];
}

std::string with_header(const aiconfigurator::Table& table, const std::string& text) {
  std::string out;
  const auto add = [&](std::span<const aiconfigurator::Column> columns) {
    for (const aiconfigurator::Column& c : columns) out += (out.empty() ? "" : ",") + std::string(c.name);
  };
  add(aiconfigurator::common_columns());
  add(table.columns);
  return out + text.substr(1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::read(data, size, [](const std::string& text) {
    const aiconfigurator::Table* const table = table_of(text);
    const MeasurementTable t =
        parse_measurements("table.csv", table == nullptr ? text : with_header(*table, text));
    fuzz::require(t.size() > 0, "a table that is read has rows");
    for (std::size_t i = 0; table != nullptr && i < t.size(); ++i) {
      fuzz::require(t.median[i].value > 0 && t.low[i] == t.median[i] && t.high[i] == t.median[i],
                    "a row has one positive time");
    }
    const std::string written = measurement_csv(t);
    const auto again =
        fuzz::read_back(written, [](const std::string& t) { return parse_measurements("table.csv", t); });
    fuzz::require(measurement_csv(again) == written, "a table in our words reads as itself");
  });
}
