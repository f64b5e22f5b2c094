#include "sim/base/units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <system_error>

namespace shardline {
namespace {

/// One spelling: value = number * 10^exponent * factor (factor: powers of 1024, 60, 3600 or 1/8).
struct Unit {
  std::string_view name;
  int exponent = 0;
  double factor = 1;
  bool printed = true;  // candidates of to_string
};

struct Dimension {
  std::string_view expected;  // completes "expected ..."
  std::span<const Unit> units;
};

constexpr double kKi = 1024;
constexpr double kMi = kKi * kKi;
constexpr double kGi = kMi * kKi;
constexpr double kTi = kGi * kKi;
constexpr double kBit = 0.125;

// Within each table the printed units ascend.
constexpr std::array kTimeUnits = {
    Unit{"ns", -9},           Unit{"us", -6}, Unit{"ms", -3}, Unit{"s", 0}, Unit{"min", 0, 60, false},
    Unit{"h", 0, 3600, false}};
constexpr std::array kByteUnits = {Unit{"B", 0},
                                   Unit{"kB", 3},
                                   Unit{"MB", 6},
                                   Unit{"GB", 9},
                                   Unit{"TB", 12},
                                   Unit{"PB", 15},
                                   Unit{"KB", 3, 1, false},
                                   Unit{"KiB", 0, kKi, false},
                                   Unit{"MiB", 0, kMi, false},
                                   Unit{"GiB", 0, kGi, false},
                                   Unit{"TiB", 0, kTi, false}};
constexpr std::array kBandwidthUnits = {Unit{"B/s", 0},
                                        Unit{"kB/s", 3},
                                        Unit{"MB/s", 6},
                                        Unit{"GB/s", 9},
                                        Unit{"TB/s", 12},
                                        Unit{"PB/s", 15},
                                        Unit{"KB/s", 3, 1, false},
                                        Unit{"KiB/s", 0, kKi, false},
                                        Unit{"MiB/s", 0, kMi, false},
                                        Unit{"GiB/s", 0, kGi, false},
                                        Unit{"TiB/s", 0, kTi, false},
                                        Unit{"b/s", 0, kBit, false},
                                        Unit{"kb/s", 3, kBit, false},
                                        Unit{"Mb/s", 6, kBit, false},
                                        Unit{"Gb/s", 9, kBit, false},
                                        Unit{"Tb/s", 12, kBit, false}};
constexpr std::array kFlopUnits = {
    Unit{"FLOP", 0},           Unit{"kFLOP", 3},           Unit{"MFLOP", 6},
    Unit{"GFLOP", 9},          Unit{"TFLOP", 12},          Unit{"PFLOP", 15},
    Unit{"exp", 0, 1, false},  Unit{"kexp", 3, 1, false},  Unit{"Mexp", 6, 1, false},
    Unit{"Gexp", 9, 1, false}, Unit{"Texp", 12, 1, false}, Unit{"Pexp", 15, 1, false}};
constexpr std::array kFlopRateUnits = {
    Unit{"FLOP/s", 0},           Unit{"kFLOP/s", 3},           Unit{"MFLOP/s", 6},
    Unit{"GFLOP/s", 9},          Unit{"TFLOP/s", 12},          Unit{"PFLOP/s", 15},
    Unit{"exp/s", 0, 1, false},  Unit{"kexp/s", 3, 1, false},  Unit{"Mexp/s", 6, 1, false},
    Unit{"Gexp/s", 9, 1, false}, Unit{"Texp/s", 12, 1, false}, Unit{"Pexp/s", 15, 1, false}};

template <class Q>
Dimension dimension();
template <>
Dimension dimension<Seconds>() {
  return {"a time such as \"4 us\"", kTimeUnits};
}
template <>
Dimension dimension<Bytes>() {
  return {"a size such as \"186 GB\"", kByteUnits};
}
template <>
Dimension dimension<BytesPerSecond>() {
  return {"a bandwidth such as \"450 GB/s\"", kBandwidthUnits};
}
template <>
Dimension dimension<Flops>() {
  return {"an amount of work such as \"3 TFLOP\"", kFlopUnits};
}
template <>
Dimension dimension<FlopsPerSecond>() {
  return {"a rate such as \"10 PFLOP/s\"", kFlopRateUnits};
}

bool digit(char c) { return c >= '0' && c <= '9'; }
bool blank(char c) { return c == ' ' || c == '\t'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

/// Printable and short, for messages.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 24));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return text.size() > 24 ? out + "..." : out;
}

/// A decimal number and what follows it, or what is wrong (completing "found ...").
struct Split {
  std::string_view number;
  std::string_view unit;
  std::string fault;
};

Split split(std::string_view text) {
  Split s;
  text = trimmed(text);
  if (text.empty()) return {{}, {}, "nothing"};
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc::result_out_of_range) return {{}, {}, "a number outside the range of a double"};
  if (code != std::errc{}) return {{}, {}, fmt::format("\"{}\"", shown(text))};
  s.number = text.substr(0, static_cast<std::size_t>(end - text.data()));
  s.unit = trimmed(text.substr(s.number.size()));
  if (!std::isfinite(value)) return {{}, {}, fmt::format("\"{}\"", shown(text))};
  const std::string_view digits = s.number.substr(s.number.front() == '-' ? 1 : 0);
  if (digits == "0" && (s.unit.starts_with('x') || s.unit.starts_with('X')))
    return {{}, {}, "a hexadecimal number"};
  if (digits.size() > 1 && digits[0] == '0' && digit(digits[1]))
    return {{}, {}, "a number with a leading zero"};
  return s;
}

/// The text without the commas of a number whose digits are written in threes, as counts are printed:
/// "32,768 tokens".
std::string without_grouping(std::string_view text) {
  text = trimmed(text);
  const std::string_view number =
      text.substr(0, std::min(text.find_first_not_of("0123456789,"), text.size()));
  std::size_t comma = number.find(',');
  if (comma == 0 || comma > 3) return std::string(text);
  std::string out(number.substr(0, comma));
  for (; comma < number.size(); comma += 4) {
    const std::string_view three = number.substr(comma + 1, 3);
    if (number[comma] != ',' || three.size() < 3 || three.find(',') != std::string_view::npos)
      return std::string(text);
    out += three;
  }
  return out + std::string(text.substr(number.size()));
}

/// number * 10^exponent with one rounding; infinite if it overflows. `number` has been read by split().
double scaled(std::string_view number, int exponent) {
  const std::size_t e = number.find_first_of("eE");
  std::string text(number.substr(0, e));
  int own = 0;
  if (e != std::string_view::npos) {
    std::string_view tail = number.substr(e + 1);
    if (tail.starts_with('+')) tail.remove_prefix(1);
    const auto [end, code] = std::from_chars(tail.data(), tail.data() + tail.size(), own);
    if (code != std::errc{} || std::abs(own) > 1'000'000) return 0;  // only a zero can have such an exponent
  }
  text += fmt::format("e{}", own + exponent);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc{}) return value;
  return own + exponent > 0 ? std::numeric_limits<double>::infinity() : 0;
}

std::variant<double, std::string> parse(std::string_view text, const Dimension& dimension) {
  const auto wrong = [&](std::string_view found) {
    return fmt::format("expected {}, found {}", dimension.expected, found);
  };
  const Split s = split(text);
  if (!s.fault.empty()) return wrong(s.fault);
  if (s.unit.empty()) return wrong("a number without a unit");
  for (const Unit& unit : dimension.units) {
    if (unit.name != s.unit) continue;
    const double value = scaled(s.number, unit.exponent) * unit.factor;
    // A time of "1e-320 us" is none: where zero stands for nothing at all it would pass as that.
    const bool vanished =
        value == 0 &&
        s.number.substr(0, s.number.find_first_of("eE")).find_first_of("123456789") != std::string_view::npos;
    if (!std::isfinite(value) || vanished) return wrong("a number outside the range of a double");
    return value;
  }
  if (s.unit.size() > 1 && s.unit.front() == ',' && digit(s.unit[1]) &&
      s.unit.find(',', 1) == std::string_view::npos)
    return wrong(fmt::format("a comma: write \"{}.{}\"", s.number, shown(s.unit.substr(1))));
  return wrong(fmt::format("the unit \"{}\"", shown(s.unit)));
}

/// Works on decimal digits, so that no division can round a second time.
std::string print(double value, int significant, std::span<const Unit> units) {
  const auto base = [&] {
    std::size_t i = 0;
    while (units[i].exponent != 0) ++i;
    return units[i].name;
  }();
  if (!std::isfinite(value)) return fmt::format("{} {}", value, base);
  if (value == 0) return fmt::format("0 {}", base);
  const int count = std::min(std::max(significant, 1), 17);
  const std::string text = fmt::format("{:.{}e}", std::abs(value), count - 1);
  const std::size_t e = text.find('e');
  std::string digits = text.substr(0, 1);
  if (e > 2) digits += text.substr(2, e - 2);
  while (digits.size() > 1 && digits.back() == '0') digits.pop_back();
  int exponent = 0;
  const char* tail = text.data() + e + 1;
  std::from_chars(*tail == '+' ? tail + 1 : tail, text.data() + text.size(), exponent);

  const Unit* best = nullptr;
  for (const Unit& unit : units)
    if (unit.printed && (best == nullptr || unit.exponent <= exponent)) best = &unit;
  const int point = exponent - best->exponent + 1;  // digits before the decimal point
  const std::string sign = value < 0 ? "-" : "";
  if (point < -3 || point > 15) {
    if (digits.size() > 1) digits.insert(digits.begin() + 1, '.');
    return fmt::format("{}{}e{} {}", sign, digits, exponent, base);
  }
  if (point <= 0) {
    digits = fmt::format("0.{:0>{}}", digits, digits.size() + static_cast<std::size_t>(-point));
  } else if (const auto whole = static_cast<std::size_t>(point); digits.size() > whole) {
    digits.insert(digits.begin() + point, '.');
  } else {
    digits.append(whole - digits.size(), '0');
  }
  return fmt::format("{}{} {}", sign, digits, best->name);
}

}  // namespace

template <class Q>
std::variant<Q, std::string> parse_quantity(std::string_view text) {
  std::variant<double, std::string> result = parse(text, dimension<Q>());
  if (const double* value = std::get_if<double>(&result)) return Q(*value);
  return std::get<std::string>(std::move(result));
}

template <class Q>
std::string to_string(Q quantity, int digits) {
  return print(quantity.value, digits, dimension<Q>().units);
}

template std::variant<Seconds, std::string> parse_quantity(std::string_view);
template std::variant<Bytes, std::string> parse_quantity(std::string_view);
template std::variant<BytesPerSecond, std::string> parse_quantity(std::string_view);
template std::variant<Flops, std::string> parse_quantity(std::string_view);
template std::variant<FlopsPerSecond, std::string> parse_quantity(std::string_view);
template std::string to_string(Seconds, int);
template std::string to_string(Bytes, int);
template std::string to_string(BytesPerSecond, int);
template std::string to_string(Flops, int);
template std::string to_string(FlopsPerSecond, int);

std::variant<long long, std::string> parse_tokens(std::string_view text) {
  const auto wrong = [](std::string_view found) {
    return fmt::format("expected a count of tokens such as \"128Ki tokens\", found {}", found);
  };
  const std::string digits = without_grouping(text);
  const Split s = split(digits);
  if (!s.fault.empty()) return wrong(s.fault);
  // Lengths of sequences are named in powers of two, with or without "i": a 128K context is 131,072 tokens.
  static constexpr std::array kPrefixes = {Unit{"", 0},        Unit{"k", 0, kKi}, Unit{"K", 0, kKi},
                                           Unit{"M", 0, kMi},  Unit{"G", 0, kGi}, Unit{"Ki", 0, kKi},
                                           Unit{"Mi", 0, kMi}, Unit{"Gi", 0, kGi}};
  std::string_view prefix = s.unit;
  if (prefix.ends_with("tokens")) {
    prefix.remove_suffix(6);
  } else if (prefix.ends_with("token")) {
    prefix.remove_suffix(5);
  } else {
    const bool known = std::any_of(kPrefixes.begin(), kPrefixes.end(),
                                   [&](const Unit& unit) { return unit.name == s.unit; });
    // Nothing is proposed that would be refused in turn.
    if (known) {
      if (auto tried = parse_tokens(digits + " tokens"); std::holds_alternative<std::string>(tried))
        return tried;
    }
    const std::string instead =
        known ? fmt::format(": write \"{} tokens\"", shown(trimmed(text))) : std::string();
    if (s.unit.empty()) return wrong("a number without a unit" + instead);
    return wrong(fmt::format("the unit \"{}\"{}", shown(s.unit), instead));
  }
  prefix = trimmed(prefix);
  for (const Unit& unit : kPrefixes) {
    if (unit.name != prefix) continue;
    constexpr std::string_view kTooMany = "more tokens than 64 bits hold";
    const double value = scaled(s.number, unit.exponent) * unit.factor;
    // Whole numbers stay exact beyond 2^53.
    long long whole = 0;
    const auto [end, code] = std::from_chars(s.number.data(), s.number.data() + s.number.size(), whole);
    if (code == std::errc{} && end == s.number.data() + s.number.size()) {
      const auto factor = static_cast<long long>(unit.factor * std::pow(10.0, unit.exponent));
      if (__builtin_mul_overflow(whole, factor, &whole)) return wrong(kTooMany);
      return whole;
    }
    if (!(std::abs(value) < 0x1p63)) return wrong(kTooMany);
    if (value != std::floor(value)) return wrong("a fraction of a token");
    return static_cast<long long>(value);
  }
  return wrong(fmt::format("the unit \"{}\"", shown(s.unit)));
}

std::optional<long long> count_of(std::string_view text) {
  if (text.empty() || text.front() < '0' || text.front() > '9' || text.ends_with("token") ||
      text.ends_with("tokens") || text.find_first_of("eE") != std::string_view::npos)
    return std::nullopt;
  const auto count = parse_tokens(std::string(text) + " tokens");
  const auto* const whole = std::get_if<long long>(&count);
  return whole == nullptr ? std::nullopt : std::optional(*whole);
}

}  // namespace shardline
