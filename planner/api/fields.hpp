// The field list of a result struct, once: JSON, its documentation (README.md beside this file) and bindings
// derive from it. Standard library only, like all public headers of this folder.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>

namespace shardline::api {

/// Specialised beside each struct T: `name`; `about`, a sentence; `schema`, of a struct that is a whole
/// document ("shardline.sweep/1"), else null; and `visit(field)`, which calls field(name, &T::member,
/// meaning) for every member in the order of the document. Forgetting a member does not compile
/// (every_member_listed).
template <class T>
struct Fields;

namespace detail {

template <class T>
inline constexpr bool is_optional = false;
template <class T>
requires requires { typename T::value_type; } && requires(T t) {
  t.has_value();
}
inline constexpr bool is_optional<T> = true;

// Stands for a value of any type when members are counted; optional takes it by a constructor of its own.
struct AnyMember {
  template <class T>
  requires(!is_optional<T>) operator T() const;
};

template <class T, class... Members>
constexpr std::size_t member_count() {
  if constexpr (requires { T{Members{}..., AnyMember{}}; }) {
    return member_count<T, Members..., AnyMember>();
  } else {
    return sizeof...(Members);
  }
}

template <class T>
constexpr std::size_t field_count() {
  std::size_t count = 0;
  Fields<T>::visit([&](const char*, auto, const char*) { ++count; });
  return count;
}

}  // namespace detail

/// Whether the field list of T has as many fields as T has members.
template <class T>
inline constexpr bool every_member_listed = detail::member_count<T>() == detail::field_count<T>();

}  // namespace shardline::api
