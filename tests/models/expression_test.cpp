// Expressions of files of quantisation: against std::regex, against Python, and what is too much of them.
#include "models/model/expression.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <regex>
#include <string>
#include <utility>

#include "models/model/checkpoint.hpp"
#include "models/model/model.hpp"
#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "sim/base/reader.hpp"

namespace shardline::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Expressions {
 public:
  explicit Expressions(RandomStream& random) : random_(random) {}

  std::string alternatives(int depth) {
    std::string out = sequence(depth);
    while (random_.below(3) == 0) out += "|" + sequence(depth);
    return out;
  }
  std::string text() {
    std::string out;
    for (std::uint64_t n = random_.below(10); n > 0; --n)
      out += one_of({"a", "b", "A", "B", "1", ".", "_", "-"});
    return out;
  }

 private:
  std::string one_of(std::initializer_list<const char*> names) {
    return names.begin()[random_.below(names.size())];
  }
  std::string sequence(int depth) {
    std::string out;
    for (std::uint64_t n = random_.below(4); n > 0; --n) {
      if (random_.below(8) == 0) {
        out += one_of({"^", "$", "\\b", "\\B"});
        continue;
      }
      out += atom(depth);
      if (random_.below(3) == 0)
        out += one_of({"*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0}", "{2,}", "{0,3}?"});
    }
    return out;
  }
  std::string atom(int depth) {
    if (depth > 0 && random_.below(3) == 0) return one_of({"(", "(?:"}) + alternatives(depth - 1) + ")";
    if (random_.below(4) == 0)
      return one_of({"[ab]", "[^ab]", "[A-b]", "[^.]", "[\\d_]", "[^\\w]", "[a-]", "[\\-1]"});
    return one_of({"a", "b", "B", "1", "_", "-", ".", "\\.", "\\d", "\\w", "\\D", "\\W", "\\x61"});
  }

  RandomStream& random_;
};

TEST(Expression, MatchesWhatTheStandardLibraryMatches) {
  RandomStream random(11, "expressions");
  Expressions expressions(random);
  int matched = 0, all = 0;
  for (int i = 0; i < 1000; ++i) {
    const bool either_case = i % 4 == 0;
    const std::string text = expressions.alternatives(2);
    const std::regex oracle(
        text, either_case ? std::regex::ECMAScript | std::regex::icase : std::regex::ECMAScript);
    const Expression ours((either_case ? "(?i)" : "") + text);
    ASSERT_EQ(ours.wrong() + ours.unread(), "") << text;
    for (int k = 0; k < 8; ++k, ++all) {
      const std::string name = expressions.text();
      const bool expected = std::regex_search(name, oracle, std::regex_constants::match_continuous);
      ASSERT_EQ(ours.matches(name), expected)
          << text << " of " << name << (either_case ? ", either case" : "");
      matched += expected ? 1 : 0;
    }
  }
  EXPECT_GT(matched, all / 5);
  EXPECT_LT(matched, all * 4 / 5);
}

// Where Python and ECMAScript differ, Python 3.11's answers.
TEST(Expression, IsReadAsPythonReadsIt) {
  const auto matches = [](const char* expression, const char* text) {
    const Expression e(expression);
    EXPECT_EQ(e.wrong() + e.unread(), "") << expression;
    return e.matches(text);
  };
  EXPECT_TRUE(matches("[]a]b", "]b"));
  EXPECT_FALSE(matches("[^]a]b", "]b"));
  EXPECT_TRUE(matches("[[:a]", ":"));
  EXPECT_TRUE(matches("a{", "a{"));
  EXPECT_TRUE(matches("a{x}", "a{x}"));
  EXPECT_TRUE(matches("a{}", "a{}"));
  EXPECT_TRUE(matches("a{,2}b", "aab"));
  EXPECT_FALSE(matches("a{,2}b", "aaab"));
  EXPECT_TRUE(matches("a]", "a]"));
  EXPECT_TRUE(matches("a}", "a}"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("(?i)[^a-c]", "B"));
  EXPECT_TRUE(matches("(?i)LAYERS\\.\\d+$", "layers.12"));
  EXPECT_FALSE(matches("layers\\.\\d+$", "layers.12.mlp"));
  for (const auto& [expression, why] : std::initializer_list<std::pair<const char*, const char*>>{
           {"a**", "a repetition of a repetition"},
           {"a{2}{3}", "a repetition of a repetition"},
           {"*a", "nothing to repeat, at character 1"},
           {"a|{2}", "nothing to repeat"},
           {"^*", "nothing to repeat"},
           {"(a", "a ( without its )"},
           {"a)", "a ) without its (, at character 2"},
           {"[a", "a [ without its ]"},
           {"[b-a]", "a range of no characters"},
           {"[\\w-a]", "a range of no characters"},
           {"a{3,2}", "at most fewer times than at least"},
           {"\\q", "\\q means nothing"},
           {"\\x1", "\\x without two hexadecimal digits"},
           {"a\\", "a \\ at the end"}})
    EXPECT_THAT(Expression(expression).wrong(), HasSubstr(why)) << expression;
}

TEST(Expression, WhatIsNotReadIsNamed) {
  const auto unread = [](const std::string& expression) { return Expression(expression).unread(); };
  EXPECT_EQ(unread("a(?<!b)"), "whose (?< is Python's alone");
  EXPECT_EQ(unread("a(?=b)"), "whose (?= looks ahead");
  EXPECT_EQ(unread("(a)\\1"), "whose \\1 refers back");
  EXPECT_EQ(unread("a*+"), "whose *+ is Python's alone");
  EXPECT_EQ(unread("\\Aa"), "whose \\A is Python's alone");
  EXPECT_EQ(unread("\xc3\xa9*"), "whose characters are not all ASCII");
}

std::string times(int n, const std::string& text) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

// std::regex compiles the first ones until its stack ends, and compares the others for ever.
TEST(Expression, NoneTakesForEver) {
  for (const std::string& text : {times(20'000, "("), times(20'000, "(") + "a" + times(20'000, ")"),
                                  times(30'000, "(?=)"), times(5'000, "a|")})
    EXPECT_EQ(Expression(text).unread(), "which is longer than 4096 characters");
  EXPECT_EQ(Expression(times(2'000, "(")).unread(), "whose groups nest deeper than 50 levels");
  EXPECT_EQ(Expression(times(50, "(") + "a" + times(50, ")")).unread(), "");
  for (const char* text : {"a{2001}", "(a{50}){50}", "((((a{10}){10}){10}){10}){10}", "(ab?){0,4294967296}"})
    EXPECT_EQ(Expression(text).unread(), "which repeats to more than 2000 steps") << text;
  const std::string name = times(20'000, "a.");
  for (const std::string& text : {std::string("(.*)*x"), std::string("(.|.)*z"), "(" + times(12, ".*") + ")q",
                                  times(600, ".*") + "q", std::string("(a?){300}a{300}b")}) {
    EXPECT_FALSE(Expression(text).matches(name)) << text;
    const Expression both(text + "|a\\.");
    EXPECT_TRUE(both.matches(name)) << text;
  }
}

// More positions than are kept: the 20 last characters say which one it is.
TEST(Expression, PositionsThatWereForgottenAreFoundAgain) {
  const Expression e("(a|b)*a(a|b){19}c");
  RandomStream random(3, "positions");
  int matched = 0;
  for (int i = 0; i < 400; ++i) {
    std::string name;
    for (int k = 0; k < 40; ++k) name += random.below(2) == 0 ? 'a' : 'b';
    const bool expected = name[20] == 'a';
    EXPECT_EQ(e.matches(name + "c"), expected) << name;
    matched += expected ? 1 : 0;
  }
  EXPECT_GT(matched, 100);
}

TEST(Expression, OfAFileThereIsAMostOfSteps) {
  Model m;
  m.architecture = "LlamaForCausalLM";
  set_layers(m, std::vector<Attention>(2), std::vector<FeedForward>(2, {.inner = 8}));
  const auto notes = [&](const std::string& ignored) {
    std::vector<std::string> out;
    Document document =
        Document::parse_json("config.json", R"({"quant_method": "compressed-tensors", "config_groups":
      {"a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}}, "ignore": [")" +
                                                ignored + "\"]}");
    const auto checkpoint = read_checkpoint(document.root(), m, out);
    document.finish();
    return out;
  };
  EXPECT_THAT(notes("re:" + times(20'000, "(")),
              ElementsAre(HasSubstr("((...\", which is longer than 4096")));
  EXPECT_THAT(notes(times(10'000, R"(re:a{1900}", ")") + "lm_head"),
              ElementsAre(HasSubstr("expressions of more than 200000 steps")));
}

}  // namespace
}  // namespace shardline::checkpoint
