// Tables of measured serving.
#include "calibrate/validate/served_rows.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardline;
  return fuzz::read(data, size, [](const std::string& text) {
    for (const ServedRow& r : parse_served_rows("served.csv", text).rows)
      fuzz::require(r.tpot > 0 && r.users >= 1 && r.gpus >= 1, "a row was measured");
  });
}
