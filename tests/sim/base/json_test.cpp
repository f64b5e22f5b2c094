// What is JSON and what is not, and where: against nlohmann-json, which reads the same texts another way.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "sim/base/error.hpp"
#include "sim/base/reader.hpp"

namespace shardline {
namespace {

std::string fault_of(const std::string& text) {
  try {
    Document::parse_json("c.json", text);
  } catch (const UserError& e) {
    const Location& where = e.diagnostics().front().where;
    return fmt::format("{}:{}: {}", where.line, where.column, e.diagnostics().front().what);
  }
  return "";
}

// Every text of up to five characters that numbers are made of.
TEST(Json, NumbersAreThoseOfTheStandard) {
  constexpr std::string_view kCharacters = "012-+.eE";
  std::size_t numbers = 0, all = 0;
  std::vector<std::string> open{""};
  while (!open.empty()) {
    const std::string text = std::move(open.back());
    open.pop_back();
    const std::string list = "[" + text + "]";
    const bool number = nlohmann::json::accept(list);
    EXPECT_EQ(fault_of(list).empty(), number) << list;
    numbers += number ? 1 : 0;
    ++all;
    if (text.size() == 5) continue;
    for (const char c : kCharacters) open.push_back(text + c);
  }
  EXPECT_EQ(all, 37'449u);  // 1 + 8 + 8^2 + ... + 8^5
  EXPECT_GT(numbers, 1'000u);
}

TEST(Json, EscapesAreThoseOfTheStandard) {
  const auto check = [](const std::string& escape) {
    const std::string text = fmt::format("{{\"a\": \"x{}y\"}}", escape);
    const auto expected = nlohmann::json::parse(text, nullptr, false);
    if (expected.is_discarded()) {
      EXPECT_NE(fault_of(text), "") << text;
    } else {
      EXPECT_EQ(Document::parse_json("c.json", text).root().at("a").text(), expected["a"].get<std::string>())
          << text;
    }
  };
  for (char c = 0x21; c < 0x7f; ++c) check(std::string("\\") + c);
  for (int c = 0; c < 0x10000; ++c) check(fmt::format("\\u{:04x}", c));
  check("\\ud83d\\ude00");
  check("\\ud83d\\ud83d");
  check("\\u00e");
  check("\t");
}

// A fault is where the word begins that fits nothing, not where it ends.
TEST(Json, AFaultStandsAtItsWord) {
  const auto at = [](const std::string& text) {
    const std::string fault = fault_of(text);
    return fault.substr(0, fault.find(": "));
  };
  EXPECT_EQ(at("{\"a\": 1 \"longer\": 2}"), "1:9");
  EXPECT_EQ(at("{\"a\": \"b\"\n  \"longer\": 2}"), "2:3");
  EXPECT_EQ(at("[1 234]"), "1:4");
  EXPECT_EQ(at("[1, -2.5e3 true]"), "1:12");
  EXPECT_EQ(at("[1 false]"), "1:4");
  EXPECT_EQ(at("[1   null]"), "1:6");
  EXPECT_EQ(at("{\"a\" {}}"), "1:6");
  EXPECT_EQ(at("{\"a\": [1, 2}"), "1:12");
  EXPECT_EQ(at("{\"caf\u00e9\": 1 \"caf\u00e9\": 2}"), "1:12");
  EXPECT_EQ(at("{\"a\": tru}"), "1:10");
  EXPECT_EQ(at("{\"a\": 1"), "1:8");
}

// Python's json module writes these; what else is wrong is said of the file as it is.
TEST(Json, InfinitiesHideNoOtherFault) {
  EXPECT_EQ(fault_of("{\"a\": Infinity, \"b\": -Infinity, \"c\": NaN}"), "");
  EXPECT_EQ(fault_of("{\"a\": Infinity, \"b\": 1 \"c\": NaN}"),
            "1:24: not JSON: syntax error while parsing object - unexpected string literal; expected '}'");
  EXPECT_EQ(
      fault_of("{\"a\": -Infinity,\n \"b\": [NaN, NaN,]}"),
      "2:17: not JSON: syntax error while parsing value - unexpected ']'; expected '[', '{', or a literal");
  EXPECT_EQ(
      fault_of("{\"Infinity \\\" NaN\": Infinity, 'b': 1}"),
      "1:31: not JSON: syntax error while parsing object key - invalid literal; expected string literal");
  for (const char* word :
       {"-NaN", "Infinity1", "xNaN", "NaNNaN", "+Infinity", "--Infinity", "nan", "infinity"})
    EXPECT_NE(fault_of(fmt::format("[{}]", word)), "") << word;
}

}  // namespace
}  // namespace shardline
