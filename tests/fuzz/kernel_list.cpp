// Preference lists of kernels.
#include "hardware/cost/kernel_list.hpp"

#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardline;
  return fuzz::read(data, size, [](const std::string& text) { parse_kernel_list("kernels.yaml", text); });
}
