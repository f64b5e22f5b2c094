// Profiles of engines.
#include "planner/engines/profile.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardline;
  return fuzz::read(data, size, [](const std::string& text) {
    const EngineProfile e = parse_engine("engine.yaml", text);
    fuzz::require(e.padded(1) >= 1, "a step has a request");
  });
}
