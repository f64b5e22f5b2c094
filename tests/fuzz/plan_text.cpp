// The text of a plan: what is read is printed and read back.
#include "planner/plan/plan.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardline;
  return fuzz::read(data, size, [](const std::string& text) {
    const std::string printed = to_string(parse_plan(text));
    fuzz::require(to_string(fuzz::read_back(printed, parse_plan)) == printed,
                  "a printed plan reads as itself");
  });
}
