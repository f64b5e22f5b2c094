// Values that differ in one field, for structs that name their fields (models/ir/fields.hpp).
#pragma once

#include <cstddef>
#include <type_traits>

#include "models/ir/schedule.hpp"

namespace shardline::testing {

/// Another value of a field.
inline void change(bool& v) { v = !v; }
inline void change(Count& v) { v = v > 0 ? 2 * v : 1; }
inline void change(double& v) { v = v * 1.5 + 1; }
inline void change(Bytes& v) { v = v * 1.5 + Bytes(1); }
inline void change(Group& v) { v.size *= 2; }
template <class Enum>
requires std::is_enum_v<Enum>
void change(Enum& v) {
  std::size_t values = 2;
  if constexpr (std::is_same_v<Enum, OpKind>) values = kOpKinds;
  if constexpr (std::is_same_v<Enum, Dtype>)
    values = 3;  // those that every device of narrow types computes in
  v = static_cast<Enum>((static_cast<std::size_t>(v) + 1) % values);
}

/// f(name, other) for every field: `other` differs from `from` in it alone.
template <class T, class F>
void for_every_change(const T& from, F f) {
  for (std::size_t i = 0; i < kFieldsOf<T>; ++i) {
    T other = from;
    const char* changed = "";
    std::size_t at = 0;
    T::visit(other, [&](const char* name, auto& field) {
      if (at++ != i) return;
      change(field);
      changed = name;
    });
    f(changed, other);
  }
}

}  // namespace shardline::testing
