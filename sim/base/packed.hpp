// Values as bytes for another process of the same program, and back: to the bit. What a struct holds is said
// once, for both ways, by a function visit_fields(archive, value) beside it; written with a structured
// binding it does not compile once a field is added that it does not know.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/units.hpp"

namespace shardline {

template <class T>
concept PackedScalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class Packer {
 public:
  template <class... Ts>
  void operator()(const Ts&... values) {
    (put(values), ...);
  }
  std::string bytes() && { return std::move(out_); }

 private:
  template <PackedScalar T>
  void put(const T& value) {
    const std::size_t at = out_.size();
    out_.resize(at + sizeof value);
    std::memcpy(out_.data() + at, &value, sizeof value);
  }
  template <int A, int B, int C>
  void put(const Quantity<A, B, C>& value) {
    put(value.value);
  }
  void put(const std::string& text) {
    put(std::uint64_t{text.size()});
    out_ += text;
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(std::uint64_t{values.size()});
    for (const T& v : values) put(v);
  }
  template <class T, std::size_t N>
  void put(const std::array<T, N>& values) {
    for (const T& v : values) put(v);
  }
  template <class A, class B>
  void put(const std::pair<A, B>& value) {
    (*this)(value.first, value.second);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class T>
  requires(std::is_class_v<T>) void put(const T& value) { visit_fields(*this, value); }

  std::string out_;
};

/// Of bytes that Packer made of the same types: anything else is a fault of ours (checked).
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : left_(bytes) {}
  template <class... Ts>
  void operator()(Ts&... values) {
    (take(values), ...);
  }
  bool done() const { return left_.empty(); }

 private:
  std::string_view next(std::size_t size) {
    SL_CHECK(size <= left_.size(), "packed values are whole");
    const std::string_view out = left_.substr(0, size);
    left_.remove_prefix(size);
    return out;
  }
  template <PackedScalar T>
  void take(T& value) {
    std::memcpy(&value, next(sizeof value).data(), sizeof value);
  }
  template <int A, int B, int C>
  void take(Quantity<A, B, C>& value) {
    take(value.value);
  }
  void take(std::string& text) { text = next(length()); }
  template <class T>
  void take(std::vector<T>& values) {
    values.clear();
    for (std::uint64_t n = length(); n > 0; --n) take(values.emplace_back());
  }
  template <class T, std::size_t N>
  void take(std::array<T, N>& values) {
    for (T& v : values) take(v);
  }
  template <class A, class B>
  void take(std::pair<A, B>& value) {
    (*this)(value.first, value.second);
  }
  template <class T>
  void take(std::optional<T>& value) {
    bool there = false;
    take(there);
    if (there)
      take(value.emplace());
    else
      value.reset();
  }
  template <class T>
  requires(std::is_class_v<T>) void take(T& value) { visit_fields(*this, value); }
  std::uint64_t length() {
    std::uint64_t out = 0;
    take(out);
    return out;
  }

  std::string_view left_;
};

}  // namespace shardline
