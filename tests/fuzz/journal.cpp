// Records of a sweep that was interrupted: what is read is written and read back.
#include "planner/search/journal.hpp"

#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardline;
  return fuzz::read(data, size, [](const std::string& text) {
    constexpr std::size_t kBegin = 3, kEnd = 5;
    const auto wave = wave_of(text, kBegin, kEnd);
    if (!wave) return;
    fuzz::require(wave->size() == kEnd - kBegin, "a record has all candidates of its wave");
    const auto record = record_of(kBegin, kEnd, *wave);
    fuzz::require(record.has_value(), "what was read is written");
    const auto again = wave_of(*record, kBegin, kEnd);
    fuzz::require(again && record_of(kBegin, kEnd, *again) == record, "a written record reads as itself");
  });
}
