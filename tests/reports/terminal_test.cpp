// Text for a screen: lines that fit, words that a shell reads back.
#include "reports/terminal.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "reports/table.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline {
namespace {

TEST(Terminal, WrapsBetweenWords) {
  EXPECT_EQ(wrapped("one two three", 0, "  "), "one two three\n");
  EXPECT_EQ(wrapped("one two three", 7, "  "), "one two\n  three\n");
  EXPECT_EQ(wrapped("one two three", 6, "  "), "one\n  two\n  three\n");
  EXPECT_EQ(wrapped("unbreakable word", 5, ""), "unbreakable\nword\n");
  EXPECT_EQ(wrapped("", 5, ""), "\n");
}

TEST(Terminal, MessagesAreWrappedButForSourceLines) {
  const std::string message = "a.yaml:1:2: unknown key\n  key: a long source line\n  ^\ndid you mean that?\n";
  EXPECT_EQ(wrapped_messages(message, 0), message);
  EXPECT_EQ(wrapped_messages(message, 80), message);
  EXPECT_EQ(wrapped_messages(message, 14),
            "a.yaml:1:2:\n  unknown key\n  key: a long source line\n  ^\ndid you mean\n  that?\n");
  EXPECT_EQ(wrapped_messages("no end of line", 20), "no end of line");
  EXPECT_EQ(wrapped_messages("", 20), "");
}

TEST(Terminal, WordsThatAShellReadsBack) {
  for (const std::string text :
       {"tensor:tpa=8,tpf=8,batch=4", "20 ms", "it's", "$HOME `id` \"x\"", "", "a\nb"}) {
    const std::string command = "printf %s " + shell_word(text);
    FILE* pipe = popen(command.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string read;
    for (int c = 0; (c = std::fgetc(pipe)) != EOF;) read += static_cast<char>(c);
    EXPECT_EQ(pclose(pipe), 0);
    EXPECT_EQ(read, text);
  }
  EXPECT_EQ(shell_word("tensor:tpa=8"), "tensor:tpa=8");
}

// A command over several lines is the same command: quoted words are not broken.
TEST(Terminal, CommandsOverSeveralLinesAreTheSame) {
  const std::string text =
      wrapped_command("printf '%s|' --ttl '20 ms and a bit' --engine 'vllm 0.24.0' last", 24, "  ");
  EXPECT_NE(text.find(" \\\n"), std::string::npos);
  EXPECT_NE(text.find("'20 ms and a bit'"), std::string::npos);
  FILE* pipe = popen(text.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string read;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) read += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_EQ(read, "--ttl|20 ms and a bit|--engine|vllm 0.24.0|last|");
}

TEST(Terminal, ColoursOnlyWhereAsked) {
  EXPECT_EQ(emphasised("x", Emphasis::bad, false), "x");
  EXPECT_EQ(emphasised("x", Emphasis::bad, true), "\033[31mx\033[0m");
}

TEST(Terminal, ColumnsAsTheEnvironmentSays) {
  setenv("COLUMNS", "72", 1);
  EXPECT_EQ(output_width(), 72u);
  for (const char* none : {"0", "-3", "wide", "72x"}) {
    setenv("COLUMNS", none, 1);
    EXPECT_NE(output_width(), 72u) << none;
  }
  unsetenv("COLUMNS");
}

TEST(Terminal, TablesLeaveOutTheirLeastImportantColumns) {
  Table t({"time", "90 %", "memory", "rate", "90 %", "plan"});
  t.add({"1 ms", "-1/+1 %", "10 GB", "100", "-2/+2 %", "tensor:tpa=8"});
  static constexpr std::array<std::string_view, 3> kLeast{"memory", "burst", "90 %"};
  EXPECT_EQ(t.text_within(0, kLeast), t.text());
  EXPECT_EQ(t.text_within(200, kLeast), t.text());
  const std::string some = t.text_within(50, kLeast);
  EXPECT_EQ(some.find("memory  "), std::string::npos);
  EXPECT_NE(some.find("90 %"), std::string::npos);
  EXPECT_NE(some.find("left out, for 50 columns: memory;"), std::string::npos);
  const std::string least = t.text_within(10, kLeast);
  EXPECT_EQ(least.substr(0, least.find('\n')), "  time  rate  plan");
  EXPECT_NE(least.find("left out, for 10 columns: memory, 90 %;"), std::string::npos);
}

TEST(Table, WordsOfTheLastColumnGoOnInFurtherLines) {
  Table t({"name", "what it is"});
  t.add({"a", "one two three four five six seven eight nine ten"});
  t.add({"bb", "eleven"});
  EXPECT_EQ(t.text_within(36, {}),
            "  name  what it is\n"
            "  a     one two three four five six\n"
            "        seven eight nine ten\n"
            "  bb    eleven\n");
  EXPECT_EQ(t.text_within(20, {}), t.text());  // no room to read them in
  EXPECT_EQ(t.text_within(0, {}), t.text());
  Table numbers({"name", "n"});
  numbers.add({"a", "1"});
  EXPECT_EQ(numbers.text_within(4, {}), numbers.text());
}

TEST(Terminal, LinesOfNotesAreWrappedBehindTheirBlanks) {
  const std::string text = "  costs: one two three four five\nshort\n";
  EXPECT_EQ(wrapped_lines(text, 0), text);
  EXPECT_EQ(wrapped_lines(text, 80), text);
  EXPECT_EQ(wrapped_lines(text, 24), "  costs: one two three\n    four five\nshort\n");
}

}  // namespace
}  // namespace shardline
