// Physical quantities with compile-time dimensions. No raw double with a unit in its name crosses a public
// interface; raw doubles live only inside solvers and at file edges.
#pragma once

#include <compare>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace shardline {

/// A double with dimension time^T * bytes^B * operations^F. Operations are floating-point operations on a
/// tensor unit, or exponentials on a special-function unit.
template <int T, int B, int F>
struct Quantity {
  double value = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(double v) : value(v) {}

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator-() const { return Quantity(-value); }
  constexpr Quantity& operator+=(Quantity o) {
    value += o.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    value -= o.value;
    return *this;
  }
  constexpr Quantity& operator*=(double k) {
    value *= k;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value + b.value); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value - b.value); }
  friend constexpr Quantity operator*(Quantity a, double k) { return Quantity(a.value * k); }
  friend constexpr Quantity operator*(double k, Quantity a) { return Quantity(k * a.value); }
  friend constexpr Quantity operator/(Quantity a, double k) { return Quantity(a.value / k); }
};

/// A ratio of equal dimensions is a plain number.
template <int T, int B, int F>
constexpr double operator/(Quantity<T, B, F> a, Quantity<T, B, F> b) {
  return a.value / b.value;
}

template <int T1, int B1, int F1, int T2, int B2, int F2>
requires(T1 != T2 || B1 != B2 || F1 != F2) constexpr auto operator/(Quantity<T1, B1, F1> a,
                                                                    Quantity<T2, B2, F2> b) {
  return Quantity<T1 - T2, B1 - B2, F1 - F2>(a.value / b.value);
}

template <int T1, int B1, int F1, int T2, int B2, int F2>
constexpr auto operator*(Quantity<T1, B1, F1> a, Quantity<T2, B2, F2> b) {
  if constexpr (T1 + T2 == 0 && B1 + B2 == 0 && F1 + F2 == 0) {
    return a.value * b.value;
  } else {
    return Quantity<T1 + T2, B1 + B2, F1 + F2>(a.value * b.value);
  }
}

template <int T, int B, int F>
constexpr auto operator/(double k, Quantity<T, B, F> a) {
  return Quantity<-T, -B, -F>(k / a.value);
}

using Seconds = Quantity<1, 0, 0>;
using PerSecond = Quantity<-1, 0, 0>;
using Bytes = Quantity<0, 1, 0>;
using BytesPerSecond = Quantity<-1, 1, 0>;
using Flops = Quantity<0, 0, 1>;  // floating-point operations (or exponentials)
using FlopsPerSecond = Quantity<-1, 0, 1>;

constexpr Seconds microseconds(double v) { return Seconds(v * 1e-6); }
constexpr Seconds milliseconds(double v) { return Seconds(v * 1e-3); }
constexpr Bytes gigabytes(double v) { return Bytes(v * 1e9); }
constexpr BytesPerSecond gigabytes_per_second(double v) { return BytesPerSecond(v * 1e9); }

/// Reads "4 us", "900 GB/s", "186 GB", "10 PFLOP/s", "5 Texp/s" (SI prefixes k M G T P; Ki Mi Gi Ti for
/// bytes; "Gb/s" is gigabits). A missing or foreign unit is an error; the string alternative says what was
/// expected. Defined for Seconds, Bytes, BytesPerSecond, Flops, FlopsPerSecond.
template <class Q>
std::variant<Q, std::string> parse_quantity(std::string_view text);

/// Shortest text with the best prefix and `digits` significant digits: "450 GB/s", "6.82 us".
template <class Q>
std::string to_string(Q quantity, int digits = 4);

/// A count of tokens: "1000000 tokens", "1 token", "128K tokens" or "128Ki tokens" (131072), "1M tokens" or
/// "1Mi tokens" (1048576). K, M and G are powers of two, as contexts are named.
std::variant<long long, std::string> parse_tokens(std::string_view text);
/// A count as people write it on a command line, without "tokens": "1K" is 1,024. Nothing: it is none.
std::optional<long long> count_of(std::string_view text);

}  // namespace shardline
