// Quantities with units: what is read is printed and read back.
#include "sim/base/units.hpp"

#include <cmath>
#include <variant>

#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace shardline;

template <class Q>
void read_quantity(const std::string& text) {
  const auto parsed = parse_quantity<Q>(text);
  if (const auto* fault = std::get_if<std::string>(&parsed)) {
    fuzz::require(!fault->empty(), "a refusal says what is wrong");
    return;
  }
  const Q value = std::get<Q>(parsed);
  fuzz::require(std::isfinite(value.value), "a quantity is finite");
  const auto again = parse_quantity<Q>(to_string(value, 17));
  fuzz::require(std::holds_alternative<Q>(again), "a printed quantity is read");
  const double back = std::get<Q>(again).value;
  fuzz::require(std::abs(back - value.value) <= 1e-15 * std::abs(value.value), "and is the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::read(data, size, [](const std::string& text) {
    read_quantity<Seconds>(text);
    read_quantity<Bytes>(text);
    read_quantity<BytesPerSecond>(text);
    read_quantity<Flops>(text);
    read_quantity<FlopsPerSecond>(text);
    parse_tokens(text);
  });
}
