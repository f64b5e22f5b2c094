#include "sim/base/json_fault.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

#include "sim/base/cancel.hpp"

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
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& e) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ...; last read:
    // '...'": its own place and bytes of the file are said otherwise.
    std::string what = e.what();
    if (const auto at = what.find(": "); at != std::string::npos) what.erase(0, at + 2);
    if (const auto at = what.find("; last read:"); at != std::string::npos) {
      const auto expected = what.find("; expected ", at);
      what.erase(at, expected == std::string::npos ? std::string::npos : expected - at);
    }
    // `position` is behind the last byte that was read: that one fits nothing, or it ends a word that does
    // not.
    fault = JsonFault{position - std::min(position, unexpected(what, token)), "not JSON: " + what};
    return false;
  }

  std::optional<JsonFault> fault;  // of the text; or why the parser was stopped
  std::string limit;

 private:
  // Bytes of the word that stands where another was expected; 1 where no word was read to its end. `token` is
  // what was read of strings and numbers, and more than the word of all else.
  static std::size_t unexpected(std::string_view what, const std::string& token) {
    const auto is = [&](std::string_view name) {
      return what.find(fmt::format("unexpected {}", name)) != what.npos;
    };
    if (is("string literal") || is("number literal")) return std::max<std::size_t>(token.size(), 1);
    return is("true literal") || is("null literal") ? 4 : is("false literal") ? 5 : 1;
  }
  bool value() {
    check_();
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
  CancelCheck check_;
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

// Python's NaN, Infinity and -Infinity, outside of strings, as numbers of as many bytes, so that the parser
// sees the faults of all else, at their places.
std::string without_infinities(std::string text) {
  const auto letter = [&](std::size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
      continue;
    }
    for (const std::string_view word : {"NaN", "Infinity"}) {
      const bool whole = text.compare(i, word.size(), word) == 0 && !letter(i + word.size()) &&
                         (i == 0 || !letter(i - 1)) && (word != "NaN" || i == 0 || text[i - 1] != '-');
      if (whole) text.replace(i, word.size(), "1." + std::string(word.size() - 2, '0'));
    }
  }
  return text;
}

}  // namespace

std::optional<JsonFault> fault_of_json(const std::string& text) {
  Sax sax;
  nlohmann::json::sax_parse(without_infinities(text), &sax);
  if (!sax.limit.empty()) return JsonFault{too_deep(text), sax.limit};
  if (sax.fault) return sax.fault;
  const auto first = text.find_first_not_of(" \t\n");
  if (text[first] != '{' && text[first] != '[')
    return JsonFault{first, "expected a mapping, found a single value"};
  return std::nullopt;
}

}  // namespace shardline::detail
