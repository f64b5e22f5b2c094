#include "reports/threshold_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "reports/json.hpp"
#include "sim/base/error.hpp"

namespace shardline {
namespace {

/// A C++ string literal in one line; safe at the end of a // comment too, as it ends with a quote.
std::string literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\' || c == '?')  // "??/" would be a trigraph
      out += fmt::format("\\{}", c);
    else if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\{:03o}", static_cast<unsigned>(byte));
    else
      out += c;
  }
  return out + "\"";
}

/// As a double, never an int.
std::string real(double value) {
  const std::string text = number_text(value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

template <class T>
std::string rows(const std::vector<T>& values, std::size_t per_row) {
  std::string out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % per_row == 0) out += "\n   ";
    out += fmt::format(" {},", values[i]);
  }
  return out;
}

std::string line(const ThresholdLine& l) {
  return fmt::format("{{{}, {}, {}}}", l.fresh, l.miss, l.constant);
}

std::string ring_data(const ThresholdRing& r) {
  return fmt::format(
             R"(
// N = {0}: {1} lines of T by {2} miss rates, {3} bytes; one count is {4} in ln(pass-Q time / pass-KV time).
// The fitted rule: {6} ln T + {7} ln m + {8} > 0.
// T of the lines:{5}
)",
             r.ranks, r.lines.size(), r.miss_nodes, r.values.size() + 4 * r.lines.size(), number_text(r.step),
             [&] {
               std::string out;
               for (std::size_t i = 0; i < r.fresh.size(); ++i)
                 out += fmt::format("{}{}", i % 12 == 0 ? "\n//   " : " ", r.fresh[i]);
               return out;
             }(),
             number_text(r.empirical.alpha), number_text(r.empirical.beta), number_text(r.empirical.gamma)) +
         fmt::format("inline constexpr std::int32_t kLines{}[] = {{{}\n}};\n", r.ranks, rows(r.lines, 9)) +
         fmt::format("inline constexpr std::int8_t kValues{}[] = {{{}\n}};\n", r.ranks,
                     rows(r.values, static_cast<std::size_t>(r.miss_nodes)));
}

constexpr std::string_view kIntroduction = R"(
// Should ring attention pass KV blocks or Q blocks (arXiv 2411.01783)? Needs C++17 and nothing else; every
// function can be evaluated at compile time and takes
//   cp             ranks N of the ring; 1 or less answers pass_kv, as nothing is passed
//   new_tokens     T of the whole request; 0 or less answers pass_kv, as nothing is computed
//   cached_tokens  P, already in the cache; negative counts as 0
// select() looks ln(pass-Q time / pass-KV time) up, measured by simulation, bilinear in log2 T and log2(1/m),
// m = T/(T+P). Outside its range the nearest edge decides; for other N the table whose N is nearest on a log
// scale (the smaller of two). It and the empirical rules decide in integers, alike on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardline_thresholds {

enum class RingVariant { pass_kv, pass_q };
)";

constexpr std::string_view kArithmetic = R"(
namespace detail {

/// 2^24 log2(x) for x > 0, rounded down: below the true log2 by less than 2^-24 + 2^-29.
constexpr std::int64_t log2_fixed(std::int64_t x) {
  int whole = 0;
  for (int shift = 32; shift > 0; shift /= 2)
    if ((x >> (whole + shift)) > 0) whole += shift;
  std::uint64_t m = static_cast<std::uint64_t>(x);
  m = whole > 31 ? m >> (whole - 31) : m << (31 - whole);  // in [1, 2), 31 digits after the point
  std::int64_t log = whole;
  for (int digit = 0; digit < 24; ++digit) {  // each squaring brings one digit
    m = (m * m) >> 31;
    const std::uint64_t carry = m >> 32;
    m >>= carry;
    log = 2 * log + static_cast<std::int64_t>(carry);
  }
  return log;
}

constexpr std::int64_t clamp(std::int64_t x, std::int64_t low, std::int64_t high) {
  return x < low ? low : x > high ? high : x;
}

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 61;

/// log2 T and log2(1/m); T > 0.
struct Place {
  std::int64_t fresh, miss;
};
constexpr Place place(std::int64_t new_tokens, std::int64_t cached_tokens) {
  const std::int64_t t = clamp(new_tokens, 1, kMaxTokens);
  const std::int64_t fresh = log2_fixed(t);
  return {fresh, log2_fixed(t + clamp(cached_tokens, 0, kMaxTokens)) - fresh};
}

constexpr RingVariant variant(bool pass_kv) { return pass_kv ? RingVariant::pass_kv : RingVariant::pass_q; }

/// pass_kv if fresh * log2 T + miss * log2 m + constant > 0.
struct Line {
  std::int64_t fresh, miss, constant;
};
constexpr bool pass_kv(const Line& line, std::int64_t new_tokens, std::int64_t cached_tokens) {
  const Place at = place(new_tokens, cached_tokens);
  return line.fresh * at.fresh - line.miss * at.miss + line.constant > 0;
}

struct Table {
  int ranks, miss_per_octave, miss_nodes, line_count;
  const std::int32_t* lines;  // 2^24 log2 T, ascending
  const std::int8_t* values;  // line by line
  Line empirical, in_context;
};
constexpr bool pass_kv(const Table& table, std::int64_t new_tokens, std::int64_t cached_tokens) {
  const Place at = place(new_tokens, cached_tokens);
  const std::int64_t x = clamp(at.fresh, table.lines[0], table.lines[table.line_count - 1]);
  int above = 1;  // the first line at or above x, of those but the lowest
  for (int last = table.line_count - 1; above < last;) {
    const int middle = above + (last - above) / 2;
    if (table.lines[middle] < x)
      above = middle + 1;
    else
      last = middle;
  }
  const std::int64_t y =
      clamp(at.miss * table.miss_per_octave, 0, static_cast<std::int64_t>(table.miss_nodes - 1) << 24);
  const std::int64_t j = clamp(y >> 24, 0, table.miss_nodes - 2);
  const std::int64_t part = (y - (j << 24)) >> 8;  // of 65536
  const std::int8_t* corner = table.values + static_cast<std::ptrdiff_t>((above - 1) * table.miss_nodes + j);
  const std::int64_t low = corner[0] * (65536 - part) + corner[1] * part;
  const std::int64_t high =
      corner[table.miss_nodes] * (65536 - part) + corner[table.miss_nodes + 1] * part;
  return low * (table.lines[above] - x) + high * (x - table.lines[above - 1]) >= 0;
}
)";

constexpr std::string_view kRules = R"(
constexpr const Table& nearest(int cp) {
  const Table* best = kTables;
  for (const Table& table : kTables)
    if (static_cast<std::int64_t>(cp) * cp > static_cast<std::int64_t>(best->ranks) * table.ranks) best = &table;
  return *best;
}

constexpr bool nothing(int cp, std::int64_t new_tokens) { return cp <= 1 || new_tokens <= 0; }

constexpr bool analytic(int cp, std::int64_t new_tokens, std::int64_t cached_tokens, bool all_to_all) {
  const double t = static_cast<double>(clamp(new_tokens, 1, kMaxTokens));
  const double p = static_cast<double>(clamp(cached_tokens, 0, kMaxTokens));
  if (t >= cp * kKvHiddenTokensPerRank) return true;
  const double ratio = all_to_all ? kMessageRatio - t / (cp * kAllToAllTokensPerRank) : kMessageRatio;
  return t / (t + p) >= ratio;
}

}  // namespace detail

/// By the table.
constexpr RingVariant select(int cp, std::int64_t new_tokens, std::int64_t cached_tokens) {
  return detail::variant(detail::nothing(cp, new_tokens) ||
                         detail::pass_kv(detail::nearest(cp), new_tokens, cached_tokens));
}

/// Algorithm 1: pass-KV if T >= N C N_KV e / (2 N_H BW) (Eq. 2) or m >= 2 N_KV/N_H (Eq. 1).
constexpr RingVariant algorithm_1(int cp, std::int64_t new_tokens, std::int64_t cached_tokens) {
  return detail::variant(detail::nothing(cp, new_tokens) ||
                         detail::analytic(cp, new_tokens, cached_tokens, false));
}

/// Algorithm 5: as algorithm_1, the second threshold lower by 4 T BW / (N C e) (Eq. 5).
constexpr RingVariant algorithm_5(int cp, std::int64_t new_tokens, std::int64_t cached_tokens) {
  return detail::variant(detail::nothing(cp, new_tokens) ||
                         detail::analytic(cp, new_tokens, cached_tokens, true));
}

/// Appendix D's form, fitted to this model and system; its line is that of the nearest N.
constexpr RingVariant empirical(int cp, std::int64_t new_tokens, std::int64_t cached_tokens) {
  return detail::variant(detail::nothing(cp, new_tokens) ||
                         detail::pass_kv(detail::nearest(cp).empirical, new_tokens, cached_tokens));
}

/// Appendix D with the coefficients printed in the paper, for comparison; the same for every N.
constexpr RingVariant appendix_d(int cp, std::int64_t new_tokens, std::int64_t cached_tokens) {
  return detail::variant(detail::nothing(cp, new_tokens) ||
                         detail::pass_kv(detail::kAppendixD, new_tokens, cached_tokens));
}
)";

constexpr std::string_view kInContext = R"(
/// Appendix D's form, fitted to the steps of recorded prompts (kContext), each weighted by what a wrong choice
/// costs all who wait for it. Ask it at each step: with the step's new tokens, and all before them.
constexpr RingVariant in_context(int cp, std::int64_t new_tokens, std::int64_t cached_tokens) {
  return detail::variant(detail::nothing(cp, new_tokens) ||
                         detail::pass_kv(detail::nearest(cp).in_context, new_tokens, cached_tokens));
}
)";

constexpr std::string_view kCrossingType = R"(
/// Of requests of so many tokens, new and cached: the miss rate at which both variants take as long, and those
/// from and to which either may be the faster one (kInterval).
struct Crossing {
  int cp;
  std::int64_t total_tokens;
  double miss_rate, lowest_miss_rate, most_miss_rate;
};
)";

std::string crossings(const std::vector<ThresholdRing>& rings) {
  std::string out;
  for (const ThresholdRing& r : rings) {
    if (!r.crossing) continue;
    out += fmt::format("    {{{}, {}, {}, {}, {}}},\n", r.ranks, r.crossing->total, real(r.crossing->miss),
                       real(r.crossing->lowest), real(r.crossing->most));
  }
  if (out.empty()) return out;
  return fmt::format("{}inline constexpr Crossing kCrossings[] = {{\n{}}};\n", kCrossingType, out);
}

}  // namespace

std::string threshold_header(const ThresholdRules& rules) {
  SL_CHECK(!rules.rings.empty(), "a header has a table");
  const ThresholdProvenance& from = rules.provenance;
  std::string out = fmt::format("// Written by shardline {}\n", literal(from.version));
  for (const auto& [name, text] : {std::pair{"model", &from.model},
                                   {"system", &from.system},
                                   {"ranges", &from.ranges},
                                   {"precision", &from.precision},
                                   {"engine", &from.engine},
                                   {"interval", &from.interval},
                                   {"context", &from.context},
                                   {"command", &from.command}})
    out += fmt::format("//   {:<9}  {}\n", name, literal(*text));
  out += "//";
  out += kIntroduction;
  out += "\n";
  for (const auto& [name, text] : {std::pair{"kModel", &from.model},
                                   {"kSystem", &from.system},
                                   {"kRanges", &from.ranges},
                                   {"kPrecision", &from.precision},
                                   {"kEngine", &from.engine},
                                   {"kInterval", &from.interval},
                                   {"kContext", &from.context},
                                   {"kCommand", &from.command},
                                   {"kVersion", &from.version}})
    out += fmt::format("inline constexpr const char* {} = {};\n", name, literal(*text));
  std::vector<int> sizes;
  for (const ThresholdRing& r : rules.rings) sizes.push_back(r.ranks);
  out += fmt::format("inline constexpr int kCpSizes[] = {{{}\n}};\n", rows(sizes, 16));
  out += fmt::format("inline constexpr double kKvHiddenTokensPerRank = {};\n", real(rules.kv_hidden_tokens));
  out += fmt::format("inline constexpr double kMessageRatio = {};\n", real(rules.message_ratio));
  out += fmt::format("inline constexpr double kAllToAllTokensPerRank = {};\n", real(rules.all_to_all_tokens));
  out += crossings(rules.rings);
  out += kArithmetic;
  for (const ThresholdRing& r : rules.rings) out += ring_data(r);
  out += "\ninline constexpr Table kTables[] = {\n";
  for (const ThresholdRing& r : rules.rings)
    out += fmt::format("    {{{0}, {1}, {2}, {3}, kLines{0}, kValues{0}, {4}, {5}}},\n", r.ranks,
                       r.miss_per_octave, r.miss_nodes, r.lines.size(), line(r.empirical),
                       line(r.in_context.value_or(r.empirical)));
  out += fmt::format("}};\ninline constexpr Line kAppendixD = {};\n", line(rules.appendix_d));
  out += kRules;
  const auto in_context = [](const ThresholdRing& r) { return r.in_context.has_value(); };
  const bool all = std::all_of(rules.rings.begin(), rules.rings.end(), in_context);
  SL_CHECK(all || std::none_of(rules.rings.begin(), rules.rings.end(), in_context),
           "rules in context are of all rings or of none");
  if (all) out += kInContext;
  out += "\n}  // namespace shardline_thresholds\n";
  return out;
}

}  // namespace shardline
