// How long calls take, in seconds of wall clock, from a sample of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace shardline {

/// Times every 64th call, and every one that does the work of many, so that measuring does not slow what it
/// measures.
struct Sample {
  double seconds = 0;
  std::uint64_t timed = 0, calls = 0;

  template <class F>
  auto operator()(std::size_t work, F f) {
    if (calls++ % 64 != 0 && work < 16) return f();
    const auto start = std::chrono::steady_clock::now();
    const auto result = f();
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    timed += work;
    return result;
  }
  void operator+=(const Sample& o) { seconds += o.seconds, timed += o.timed; }
  double rate() const { return timed >= 16 ? static_cast<double>(timed) / seconds : 0; }
};

}  // namespace shardline
