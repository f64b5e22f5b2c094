#include "sim/base/json_fault.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace shardline::detail {

namespace {

constexpr std::size_t kDeepest = 64, kMostValues = 1'000'000;

// Events of the parser, of which only the number and the depth count.
class Sax : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool key(string_t&) override { return true; }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ...; last read:
    // '...'": its own place and bytes of the file are said otherwise.
    std::string what = e.what();
    if (const auto at = what.find(": "); at != std::string::npos) what.erase(0, at + 2);
    if (const auto at = what.find("; last read:"); at != std::string::npos) {
      const auto expected = what.find("; expected ", at);
      what.erase(at, expected == std::string::npos ? std::string::npos : expected - at);
    }
    // Behind the last byte that was read, the first one that fits nothing.
    fault = JsonFault{position - std::min<std::size_t>(position, 1), "not JSON: " + what};
    return false;
  }

  std::optional<JsonFault> fault;  // of the text; or why the parser was stopped
  std::string limit;

 private:
  bool value() {
    if (++values_ > kMostValues) limit = fmt::format("more than {} values", kMostValues);
    return limit.empty();
  }
  bool open() {
    if (++depth_ > kDeepest) limit = fmt::format("nested deeper than {} levels", kDeepest);
    return value();
  }
  bool close() {
    --depth_;
    return true;
  }
  std::size_t depth_ = 0, values_ = 0;
};

// Where the brackets are one level too deep; quoted ones do not count.
std::size_t too_deep(const std::string& text) {
  std::size_t depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
      continue;
    }
    if ((text[i] == '{' || text[i] == '[') && ++depth > kDeepest) return i;
    if (text[i] == '}' || text[i] == ']') --depth;
  }
  return 0;
}

}  // namespace

std::optional<JsonFault> fault_of_json(const std::string& text) {
  Sax sax;
  nlohmann::json::sax_parse(text, &sax);
  if (!sax.limit.empty()) return JsonFault{too_deep(text), sax.limit};
  if (sax.fault) return sax.fault;
  const auto first = text.find_first_not_of(" \t\n");
  if (text[first] != '{' && text[first] != '[')
    return JsonFault{first, "expected a mapping, found a single value"};
  return std::nullopt;
}

}  // namespace shardline::detail
