#include "planner/scenario/asked_amounts.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "planner/scenario/scenario_parts.hpp"
#include "sim/base/error.hpp"

namespace shardline {

Seconds asked_time(const std::string& name, const std::string& text, bool or_zero) {
  if (or_zero && text == "0") return Seconds(0);
  if (!text.empty() && text.find_first_not_of("0123456789.") == std::string::npos) {
    const auto tried = parse_quantity<Seconds>(text + " ms");
    const auto* const time = std::get_if<Seconds>(&tried);
    if (time == nullptr || *time <= Seconds(0))
      throw UserError(fmt::format("{} {}: expected a positive time with its unit, for instance {} \"20 ms\"",
                                  name, text, name));
    throw UserError(fmt::format("{} {}: expected a time with its unit, {} \"{} ms\" or {} \"{} s\"", name,
                                text, name, text, name, text));
  }
  const auto parsed = parse_quantity<Seconds>(text);
  if (const auto* fault = std::get_if<std::string>(&parsed))
    throw UserError(
        {Diagnostic{{}, name + " " + text + ": " + *fault, {"units of time: us, ms, s, min, h"}}});
  const Seconds time = std::get<Seconds>(parsed);
  if (time < Seconds(0) || (time == Seconds(0) && !or_zero))
    throw UserError(name + " " + text + ": expected a positive time");
  return time;
}

long long asked_tokens(const std::string& name, const std::string& text) {
  const bool unit = text.find("token") != std::string::npos;
  const auto parsed = parse_tokens(unit ? text : text + " tokens");
  if (std::holds_alternative<std::string>(parsed)) {
    const auto as_written = parse_tokens(text);  // "GB" is no unit of tokens, and "GB tokens" nobody wrote
    throw UserError(fmt::format(
        "{} {}: {}", name, text,
        std::get<std::string>(unit || !std::holds_alternative<std::string>(as_written) ? parsed
                                                                                       : as_written)));
  }
  const long long count = std::get<long long>(parsed);
  if (count < 1 || count > scenario_parts::kLongest)
    throw UserError(fmt::format("{} {}: expected 1 to {} tokens", name, text, scenario_parts::kLongest));
  return count;
}

long long asked_count(const std::string& name, const std::string& text) {
  if (const std::optional<long long> count = count_of(text)) return *count;
  throw UserError({Diagnostic{{},
                              fmt::format("{}: expected a whole number, found {}", name, text),
                              {"for instance 1000, or 1K, which is 1024"}}});
}

Bytes asked_bytes(const std::string& name, const std::string& text) {
  const auto parsed = parse_quantity<Bytes>(text);
  if (const auto* fault = std::get_if<std::string>(&parsed))
    throw UserError(
        {Diagnostic{{}, name + " " + text + ": " + *fault, {"for instance " + name + " \"16 GB\""}}});
  const Bytes bytes = std::get<Bytes>(parsed);
  if (bytes <= Bytes(0)) throw UserError(name + " " + text + ": expected a positive size");
  return bytes;
}

double asked_rate(const std::string& name, const std::string& text) {
  const std::size_t slash = text.find('/');
  std::string number = text.substr(0, slash);
  // As answers say it: "5 requests/s".
  for (const char* const word : {" requests", " request", " req"}) {
    if (number.ends_with(word)) number.resize(number.size() - std::string_view(word).size());
  }
  const std::string per = slash == std::string::npos ? "s" : text.substr(slash + 1);
  double rate = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rate);
  const double seconds = per == "s" || per == "sec" ? 1 : per == "min" ? 60 : per == "h" ? 3600 : 0;
  if (error != std::errc{} || end != number.data() + number.size() || !(rate > 0) || !std::isfinite(rate) ||
      seconds == 0)
    throw UserError(
        fmt::format("{} {}: expected requests by time, for instance {} \"5/s\", \"300/min\" or "
                    "\"2000/h\"",
                    name, text, name));
  return rate / seconds;
}

}  // namespace shardline
