#include "sim/base/error.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/base/harmless.hpp"

namespace shardline {
namespace {

Diagnostic at(int line, int column, std::string source) {
  Diagnostic d;
  d.where.file = "t.yaml";
  d.where.line = line;
  d.where.column = column;
  d.where.source_line = std::move(source);
  d.what = "wrong";
  return d;
}

TEST(Error, WholeMessage) {
  Diagnostic d = at(2, 3, "  kv_paralel: 8");
  d.what = "unknown key plan.kv_paralel";
  d.details = {"expected one of: kv_parallel, tp_attention", "did you mean kv_parallel?"};
  EXPECT_EQ(to_string(d),
            "t.yaml:2:3: unknown key plan.kv_paralel\n"
            "    kv_paralel: 8\n"
            "    ^\n"
            "expected one of: kv_parallel, tp_attention\n"
            "did you mean kv_parallel?\n");
}

TEST(Error, NearestNamesInEitherCaseAndAmongOtherLetters) {
  const std::vector<std::string> names{"fp4", "fp8", "bf16", "fp8_block", "trtllm"};
  EXPECT_EQ(nearest_name("FP8", names), "fp8");
  EXPECT_EQ(nearest_name("TRTLLM", names), "trtllm");
  EXPECT_EQ(nearest_name("nvfp4", names), "fp4");
  EXPECT_EQ(nearest_name("fp8_e4m3", names), "");  // less than half of it
  EXPECT_EQ(nearest_name("fp8_blok", names), "fp8_block");
  EXPECT_EQ(nearest_name("int4", names), "");
}

TEST(Error, WithoutPlace) {
  EXPECT_STREQ(UserError("no such file").what(), "no such file\n");
  Diagnostic d = at(0, 0, "");
  EXPECT_EQ(to_string(d), "t.yaml: wrong\n");
}

TEST(Error, CarriesEveryFault) {
  const UserError error({at(1, 1, "a"), at(2, 1, "b")});
  EXPECT_EQ(error.diagnostics().size(), 2U);
  EXPECT_STREQ(error.what(), "t.yaml:1:1: wrong\n  a\n  ^\nt.yaml:2:1: wrong\n  b\n  ^\n");
}

TEST(Error, CaretStandsUnderTheColumn) {
  EXPECT_EQ(to_string(at(1, 3, "\tab")), "t.yaml:1:3: wrong\n   ab\n    ^\n");    // a tab is one cell
  EXPECT_EQ(to_string(at(1, 4, "é: x")), "t.yaml:1:4: wrong\n  é: x\n     ^\n");  // two bytes, one cell
  EXPECT_EQ(to_string(at(1, 4, "漢: x")),
            "t.yaml:1:4: wrong\n  漢: x\n      ^\n");  // one character, two cells
  EXPECT_EQ(to_string(at(1, 3, "a\xcc\x81x")),
            "t.yaml:1:3: wrong\n  a\xcc\x81x\n   ^\n");                        // a combining accent
  EXPECT_EQ(to_string(at(1, 99, "ab")), "t.yaml:1:99: wrong\n  ab\n    ^\n");  // never far off the line
}

TEST(Error, NothingHarmfulIsPrinted) {
  EXPECT_EQ(to_string(at(1, 1, "a\x1b[31m\xff\xe2\x80\xae")), "t.yaml:1:1: wrong\n  a?[31m??\n  ^\n");
  Diagnostic d = at(1, 1, "a");
  d.what = "line\nbreak";
  d.details = {"be\al"};
  EXPECT_EQ(to_string(d), "t.yaml:1:1: line?break\n  a\n  ^\nbe?l\n");
}

// Every code point of two and three bytes that a terminal obeys is escaped, all others are as they were; so
// are broken ones, of which nothing may be swallowed.
TEST(Error, JsonIsEscapedWhereATerminalWouldObey) {
  const auto utf8 = [](unsigned c) {
    std::string out;
    const auto put = [&](unsigned byte) { out += static_cast<char>(byte); };
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xc0 | c >> 6), put(0x80 | (c & 0x3f));
    } else {
      put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
    }
    return out;
  };
  int escaped = 0;
  for (unsigned c = 0x20; c < 0x10000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    const std::string text = "\"" + utf8(c) + "\"", shown = harmless_json(text);
    const bool obeyed = harmless(utf8(c)) == "?" && c != '?';
    escaped += obeyed;
    ASSERT_EQ(shown, obeyed ? fmt::format("\"\\u{:04x}\"", c) : text) << c;
  }
  EXPECT_EQ(escaped, 1 + 32 + 2 + 7 + 4 + 1);
  for (const char* broken : {"\"\xe2\"", "\"\xe2\x80\"", "\"\xc2\"", "\"\xef\xbb\"", "\xe2\x80"})
    EXPECT_EQ(harmless_json(broken), broken);
}

TEST(Error, LinesStayWhereTheirTextIsHarmless) {
  EXPECT_EQ(harmless_lines("a\x1b[1m\nb\r\n\nc"), "a?[1m\nb?\n\nc");
  EXPECT_EQ(harmless_lines("one\n"), "one\n");
  EXPECT_EQ(harmless_lines(""), "");
}

TEST(Error, LongWordsAndLinesLoseTheirMiddle) {
  const auto said = [](const std::string& what) { return std::string(UserError(what).what()); };
  const std::string path = "/" + std::string(999, 'd');
  EXPECT_EQ(said("cannot write " + path), "cannot write " + path + "\n");
  EXPECT_EQ(said("unknown command " + std::string(60000, 'n') + "!  x"),
            "unknown command " + std::string(500, 'n') + "... (59251 bytes left out) ..." +
                std::string(249, 'n') + "!  x\n");
  // A character is not cut: 500 and 250 are within one of two bytes, and of three.
  std::string two = "a", three;
  for (int i = 0; i < 1000; ++i) two += "é", three += "漢";
  const std::string both = said(two + " " + three);
  EXPECT_EQ(harmless_lines(both), both);
  EXPECT_NE(both.find("é... (1252 bytes left out) ...é"), std::string::npos) << both;
  std::string words;
  while (words.size() < 60000) words += "gpus=[1] ";
  const std::string line = said(words);
  EXPECT_LT(line.size(), 3100U);
  EXPECT_NE(line.find("bytes left out"), std::string::npos);
  Diagnostic d;
  d.what = "x";
  d.details = {std::string(1001, 'y')};
  EXPECT_LT(to_string(d).size(), 800U);
}

TEST(Error, LongLinesAreCutAroundTheCaret) {
  const std::string line = std::string(300, 'x') + "!" + std::string(300, 'y');
  EXPECT_EQ(to_string(at(1, 301, line)),
            "t.yaml:1:301: wrong\n"
            "  ..." +
                std::string(50, 'x') + "!" + std::string(49, 'y') +
                "...\n"
                "  " +
                std::string(53, ' ') + "^\n");
  EXPECT_EQ(to_string(at(1, 1, std::string(101, 'x'))),
            "t.yaml:1:1: wrong\n  " + std::string(100, 'x') + "...\n  ^\n");
  EXPECT_EQ(to_string(at(1, 1, std::string(100, 'x'))),
            "t.yaml:1:1: wrong\n  " + std::string(100, 'x') + "\n  ^\n");
  Diagnostic part = at(1, 1001, "abc");
  part.where.source_column = 1000;
  part.where.source_cut = true;
  EXPECT_EQ(to_string(part), "t.yaml:1:1001: wrong\n  ...abc...\n      ^\n");
}

// A name with all parts of another is nearer than one of fewer edits: what is missing is a version.
TEST(Error, NearestNamesWithAllParts) {
  const std::vector<std::string> names{"llama-30b", "llama-3.1-405b", "llama-3.1-70b", "llama-7b",
                                       "llama-3-8b-1m"};
  EXPECT_EQ(nearest_name("llama3-70b", names), "llama-3.1-70b");
  EXPECT_EQ(nearest_name("Llama-70B", names), "llama-3.1-70b");
  EXPECT_EQ(nearest_name("llama_3_70b", names), "llama-3.1-70b");
  EXPECT_EQ(nearest_name("llama-31b", names), "llama-30b");  // no name has 31b
  EXPECT_EQ(nearest_name("llama", names), "");               // of all of them
}

TEST(Error, NearestName) {
  const std::vector<std::string> names = {"kv_parallel", "tp_attention", "ring", "gpus"};
  EXPECT_EQ(nearest_name("kv_paralel", names), "kv_parallel");
  EXPECT_EQ(nearest_name("rign", names), "ring");  // a transposition is one edit
  EXPECT_EQ(nearest_name("gups", names), "gpus");
  EXPECT_EQ(nearest_name("rinngg", names), "ring");  // two of six
  EXPECT_EQ(nearest_name("xing", names), "ring");    // one of four
  EXPECT_EQ(nearest_name("xyng", names), "");        // two of four
  EXPECT_EQ(nearest_name("ri", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("ring", names), "ring");
  EXPECT_EQ(nearest_name("abc", {}), "");
  const std::vector<std::string> tied = {"abx", "aby"};
  EXPECT_EQ(nearest_name("abz", tied), "abx");  // the first of equals
  EXPECT_EQ(nearest_name(std::string(1'000'000, 'x'), names), "");
}

TEST(Error, ExpectedOneOf) {
  const std::vector<std::string> names = {"helix", "ring"};
  EXPECT_EQ(expected_one_of("helx", names),
            (std::vector<std::string>{"expected one of: helix, ring", "did you mean helix?"}));
  EXPECT_EQ(expected_one_of("zzz", names), std::vector<std::string>{"expected one of: helix, ring"});
  EXPECT_TRUE(expected_one_of("a", {}).empty());
}

TEST(Error, CheckNamesItsCondition) {
  SL_CHECK(1 + 1 == 2, "arithmetic holds");
  try {
    SL_CHECK(1 + 1 == 3, "arithmetic fails");
    FAIL() << "the check passed";
  } catch (const std::logic_error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("internal check failed: arithmetic fails (1 + 1 == 3)"), std::string::npos) << what;
    EXPECT_NE(what.find("error_test.cpp:"), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace shardline
