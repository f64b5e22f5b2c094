// How much of a random test is run.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace shardline::testing {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

/// A quarter under AddressSanitizer, which takes several times as long: it looks for invalid memory, and the
/// builds without it for wrong answers.
constexpr int part_of(int usual) { return kSanitized ? usual / 4 : usual; }

/// Random loads of a test: with SHARDLINE_WHOLE=1 all of them.
inline std::uint64_t loads(int usual, int whole = 4000) {
  return static_cast<std::uint64_t>(std::getenv("SHARDLINE_WHOLE") != nullptr ? whole : part_of(usual));
}

}  // namespace shardline::testing
