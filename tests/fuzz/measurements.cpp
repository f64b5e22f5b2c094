// Tables of measurements, AIConfigurator's among them: what is read is written and read back.
#include "calibrate/measurement.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardline;
  return fuzz::read(data, size, [](const std::string& text) {
    const MeasurementTable t = parse_measurements("table.csv", text);
    const std::string written = measurement_csv(t);
    const auto again =
        fuzz::read_back(written, [](const std::string& t) { return parse_measurements("table.csv", t); });
    fuzz::require(measurement_csv(again) == written, "a written table reads as itself");
  });
}
