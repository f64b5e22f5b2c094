// Tables that parse, and that no kernel can be: their fits are refused in words, not by an internal check.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "hardware/machine/system.hpp"
#include "sim/base/error.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

// What the fit to a table is refused with; empty: it is not.
std::string refusal(const std::string& text) {
  const System system = load_system("h200-hgx", SHARDLINE_SOURCE_DIR "/hardware/catalog");
  const std::vector<MeasurementTable> tables{parse_measurements("t.csv", text)};
  try {
    calibrate(system, tables);
  } catch (const UserError& e) {
    return e.what();
  }
  return {};
}

// A product that takes minutes on any device, measured in a microsecond.
TEST(HostileTables, TimesThatNoShapeTakesAreRefused) {
  std::string text = "m,n,k,dtype,kernel,latency_us\n";
  for (int i = 0; i < 120; ++i)
    text += fmt::format("{},{},{},bf16,nvjet,{}\n", 1LL << (i % 31), 1LL << (i * 7 % 31),
                        1LL << (i * 11 % 30), 1 + i % 7);
  EXPECT_THAT(refusal(text), HasSubstr("times off what their shapes can take"));
}

}  // namespace
}  // namespace shardline
