// Systems, calibrations inside them included.
#include "hardware/machine/system.hpp"

#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardline;
  return fuzz::read(data, size, [](const std::string& text) {
    const System s = parse_system("system.yaml", text, FUZZ_CATALOG);
    fuzz::require(s.gpus() >= 1, "a system has GPUs");
    fuzz::require(s.device.memory_bandwidth.value > 0, "and memory to read");
  });
}
