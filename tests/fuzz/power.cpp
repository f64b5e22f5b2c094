// Tables of a board's watts.
#include "calibrate/power.hpp"

#include "hardware/machine/system.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardline;
  static const Device kDevice = load_system("h200-hgx", FUZZ_CATALOG).device;
  return fuzz::read(data, size, [](const std::string& text) {
    const PowerTable t = parse_power("power.csv", text, kDevice);
    for (const PowerRow& r : t.rows) fuzz::require(r.watts >= 1 && !r.shape.empty(), "a row was measured");
  });
}
