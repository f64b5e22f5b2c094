// Calibrations: what is read is written and read back.
#include "hardware/cost/calibration.hpp"

#include "sim/base/reader.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

shardline::Calibration parsed(const std::string& text) {
  shardline::Document document = shardline::Document::parse("calibration.yaml", text);
  shardline::Calibration out = shardline::read_calibration(document.root());
  document.finish();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardline;
  return fuzz::read(data, size, [](const std::string& text) {
    const std::string written = calibration_yaml(parsed(text));
    fuzz::require(calibration_yaml(parsed(written)) == written, "a written calibration reads as itself");
  });
}
