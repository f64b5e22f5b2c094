// Calibrations: what is read is written and read back.
#include "hardware/cost/calibration.hpp"

#include "sim/base/reader.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace shardline;

Calibration parsed(const std::string& text) {
  Document document = Document::parse("calibration.yaml", text);
  Calibration out = read_calibration(document.root());
  document.finish();
  return out;
}

// As a system file has it, under its key.
Calibration in_system(const std::string& text) {
  Document document = Document::parse("system.yaml", text);
  Calibration out = read_calibration(document.root().at("calibration"));
  document.finish();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::read(data, size, [](const std::string& text) {
    const std::string written = calibration_yaml(parsed(text));
    fuzz::require(calibration_yaml(fuzz::read_back(written, in_system)) == written,
                  "a written calibration reads as itself");
  });
}
