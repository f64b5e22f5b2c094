// Traces of requests.
#include <sstream>

#include "planner/serving/trace.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardline;
  return fuzz::read(data, size, [](const std::string& text) {
    std::istringstream in(text);
    TraceReader reader(in, "trace");
    Seconds last;
    for (TraceRequest row; reader.next(row); last = row.arrival) {
      fuzz::require(row.arrival >= last && row.input >= 1 && row.output >= 1,
                    "a row is a request in its order");
      const auto blocks = static_cast<std::uint64_t>((row.input + kTraceBlock - 1) / kTraceBlock);
      fuzz::require(row.blocks.empty() || row.blocks.size() == blocks, "blocks cover the input");
    }
  });
}
