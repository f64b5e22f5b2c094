// SHA-256 (FIPS 180-4): what a file is known by, on every machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shardline {

/// Of bytes that come piece by piece.
class Sha256 {
 public:
  void add(std::string_view piece);
  /// Of all that was added, as 64 hexadecimal digits in lower case.
  std::string hex() const;

 private:
  static constexpr std::size_t kBlock = 64;  // bytes
  using State = std::array<std::uint32_t, 8>;
  static void add_block(State& state, std::string_view block);

  State state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::uint64_t bytes_ = 0;
  std::string rest_;  // less than a block
};

/// Of the bytes of `text`, as 64 hexadecimal digits in lower case.
std::string sha256(std::string_view text);

}  // namespace shardline
