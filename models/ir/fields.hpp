// Field lists that exist once. A shape names its fields in `visit`; equality, memo keys and texts follow from
// it, and a field that `visit` forgets does not compile.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "sim/base/units.hpp"

namespace shardline {

namespace detail {

struct AnyField {
  template <class T>
  constexpr operator T() const;  // NOLINT(google-explicit-constructor)
};
template <class T, class... Fields>
constexpr std::size_t arity() {
  if constexpr (requires { T{std::declval<Fields>()..., AnyField{}}; }) {
    return arity<T, Fields..., AnyField>();
  } else {
    return sizeof...(Fields);
  }
}

}  // namespace detail

/// Members of an aggregate, counted by the compiler.
template <class T>
inline constexpr std::size_t kMembers = detail::arity<T>();

/// Fields that T::visit names.
template <class T>
constexpr std::size_t count_fields() {
  std::size_t n = 0;
  T shape{};
  T::visit(shape, [&](const char*, const auto&) { ++n; });
  return n;
}
template <class T>
inline constexpr std::size_t kFieldsOf = count_fields<T>();

/// Whether T::visit names no field twice.
template <class T>
constexpr bool names_distinct_fields() {
  T shape{};
  std::array<const void*, kFieldsOf<T>> named{};
  std::size_t n = 0;
  bool distinct = true;
  T::visit(shape, [&](const char*, const auto& field) {
    for (std::size_t i = 0; i < n; ++i) distinct = distinct && named[i] != static_cast<const void*>(&field);
    named[n++] = &field;
  });
  return distinct;
}

/// Whether T::visit names every field of T once: as many as T has, none of them twice.
template <class T>
constexpr bool complete() {
  return kFieldsOf<T> == kMembers<T> && names_distinct_fields<T>();
}

/// The bits that tell this value of a field from every other value of it; of those of one byte, the byte.
template <class T>
constexpr std::uint64_t word_of(const T& field) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::bit_cast<std::uint64_t>(static_cast<double>(field));
  } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
    return static_cast<std::uint64_t>(field);
  } else if constexpr (requires { field.word(); }) {
    return field.word();
  } else {
    return std::bit_cast<std::uint64_t>(field.value);  // a Quantity
  }
}

namespace detail {

template <class T>
constexpr std::size_t count_words() {
  std::size_t wide = 0, narrow = 0;
  T shape{};
  T::visit(shape, [&](const char*, const auto& field) { ++(sizeof(field) == 1 ? narrow : wide); });
  return wide + (narrow + 7) / 8;
}

}  // namespace detail

/// Words of the key of a T: one per field, eight fields of one byte together.
template <class T>
inline constexpr std::size_t kWordsOf = detail::count_words<T>();

/// Writes the kWordsOf<T> words of a shape to `out`, and returns what follows them. Flattened: with each
/// field's code in place, which byte of which word it goes to is known when it is compiled, a third of the
/// work; the compiler does not see to it by itself, and every price begins with a key.
template <class T>
[[gnu::flatten]] constexpr std::uint64_t* write_words(const T& shape, std::uint64_t* out) {
  std::uint64_t packed = 0;
  int narrow = 0;
  T::visit(shape, [&](const char*, const auto& field) {
    if constexpr (sizeof(field) == 1) {
      packed |= word_of(field) << (8 * (narrow % 8));
      if (++narrow % 8 == 0) {
        *out++ = packed;
        packed = 0;
      }
    } else {
      *out++ = word_of(field);
    }
  });
  if (narrow % 8 != 0) *out++ = packed;
  return out;
}

template <class T>
constexpr std::array<std::uint64_t, kWordsOf<T>> words_of(const T& shape) {
  std::array<std::uint64_t, kWordsOf<T>> words{};
  write_words(shape, words.data());
  return words;
}

/// Equal in every field. The field of `b` beside one of `a` lies where that one does.
template <class T>
bool same_fields(const T& a, const T& b) {
  bool same = true;
  T::visit(a, [&](const char*, const auto& field) {
    const auto offset = reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&a);
    const void* beside = reinterpret_cast<const char*>(&b) + offset;
    same = same && word_of(field) == word_of(*static_cast<std::remove_reference_t<decltype(field)>*>(beside));
  });
  return same;
}

}  // namespace shardline
