// Indices into tables, a type of their own for each table: the index of an op cannot be passed for that of a
// block.
#pragma once

#include <concepts>
#include <cstdint>

namespace shardline {

/// Made from any number, and turns into one where a container is indexed; never into the id of another table,
/// nor is it compared with one.
template <class Tag>
struct Index {
  std::uint32_t value = 0;

  constexpr Index() = default;
  template <std::integral Number>
  constexpr Index(Number v) : value(static_cast<std::uint32_t>(v)) {}  // NOLINT(google-explicit-constructor)
  constexpr operator std::uint32_t() const { return value; }           // NOLINT(google-explicit-constructor)
  constexpr Index& operator++() {
    ++value;
    return *this;
  }
};
template <class A, class B>
requires(!std::same_as<A, B>) bool operator==(Index<A>, Index<B>) = delete;
template <class A, class B>
requires(!std::same_as<A, B>) bool operator<(Index<A>, Index<B>) = delete;

}  // namespace shardline
