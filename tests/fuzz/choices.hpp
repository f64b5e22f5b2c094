// Bytes of an input as choices, one after the other: what a structured target builds its question from.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace shardline::fuzz {

/// Every choice takes one byte or two, so that a mutated byte changes one choice and leaves those behind it.
/// Behind the last byte all are 0: the first of what there is to choose from.
class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  /// From 0 to n - 1, n up to 256.
  int below(int n) { return n < 2 ? 0 : byte() % n; }
  /// The same of any n, from two bytes.
  std::size_t index(std::size_t n) {
    const std::size_t high = byte(), low = byte();
    return n == 0 ? 0 : (high << 8 | low) % n;
  }
  /// True once in `n` values of a byte.
  bool once_in(int n) { return below(n) == n - 1; }
  template <class T>
  T of(std::initializer_list<T> list) {
    return *(list.begin() + below(static_cast<int>(list.size())));
  }
  /// From 1 to 2^exponents: as many of each power of two.
  long long number(int exponents) {
    const int bits = below(exponents + 1);
    const long long least = 1LL << bits >> 1;
    return std::max<long long>(1, least + static_cast<long long>(index(static_cast<std::size_t>(least) + 1)));
  }

 private:
  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : 0; }

  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

}  // namespace shardline::fuzz
