// Text for a screen: lines that fit, words that a shell reads back.
#include "reports/terminal.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "reports/markdown.hpp"
#include "reports/table.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline {
namespace {

TEST(Terminal, WrapsBetweenWords) {
  EXPECT_EQ(wrapped("one two three", 0, "  "), "one two three\n");
  EXPECT_EQ(wrapped("one two three", 7, "  "), "one two\n  three\n");
  EXPECT_EQ(wrapped("one two three", 6, "  "), "one\n  two\n  three\n");
  EXPECT_EQ(wrapped("unbreakable word", 5, ""), "unbreakable\nword\n");
  // A number stays with its unit, and a word is none because it looks like one.
  EXPECT_EQ(wrapped("takes 34.7 ms, at most", 10, ""), "takes\n34.7 ms,\nat most\n");
  EXPECT_EQ(wrapped("is up to 12 % of 8 GPUs", 12, ""), "is up to\n12 % of\n8 GPUs\n");
  EXPECT_EQ(wrapped("plan B and 3 plans", 6, ""), "plan B\nand 3\nplans\n");
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

// Words with apostrophes, which shell_word() writes with a backslash between quotes, are not broken either.
TEST(Terminal, CommandsOfWordsWithApostrophesAreTheSameOverSeveralLines) {
  for (const std::string word : {"it's a 'small' file.yaml", "' '", "a'b c d", "\\ ' \\"}) {
    const std::string text =
        wrapped_command("printf '%s|' " + shell_word(word) + " --plan x -o out", 12, "  ");
    EXPECT_NE(text.find(" \\\n"), std::string::npos);
    FILE* pipe = popen(text.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string read;
    for (int c = 0; (c = std::fgetc(pipe)) != EOF;) read += static_cast<char>(c);
    EXPECT_EQ(pclose(pipe), 0) << text;
    EXPECT_EQ(read, word + "|--plan|x|-o|out|") << text;
  }
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
  const std::string least = t.text_within(26, kLeast);
  EXPECT_EQ(least.substr(0, least.find('\n')), "  time  rate  plan");
  EXPECT_NE(least.find("memory, 90 %;"), std::string::npos) << least;
}

std::size_t widest_line(const std::string& text) {
  std::size_t most = 0, at = 0;
  for (std::size_t end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    most = std::max(most, end - at);
  return most;
}

TEST(Table, HeadersWiderThanTheirCellsGoOnInFurtherLines) {
  Table t({"users per replica", "n", "what it is"});
  t.add({"3", "1", "a"});
  EXPECT_EQ(t.text_within(24, {}),
            "    users     what\n"
            "      per     it\n"
            "  replica  n  is\n"
            "        3  1  a\n");
}

TEST(Table, WideLastWordsStandBelowTheirRows) {
  Table t({"rank", "time", "90 %", "plan"});
  t.add({"1", "19.75 ms", "-12/+27 %", "helix:kvp=20,ep=20"});
  static constexpr std::array<std::string_view, 1> kLeast{"90 %"};
  EXPECT_EQ(t.text_within(32, kLeast),
            "  rank      time       90 %\n"
            "      plan\n"
            "     1  19.75 ms  -12/+27 %\n"
            "      helix:kvp=20,ep=20\n");
}

TEST(Table, WhatIsStillTooWideIsCutAndKeepsEveryCell) {
  Table t({"strategy", "kind", "8", "16", "32"});
  t.add({"ring", "exact", "41.00 s", "42.00 s", "43.00 s"});
  t.add({"star", "not", "44.00 s", "45.00 s", "46.00 s"});
  EXPECT_EQ(t.text_within(28, {}),
            "  strategy  kind         8\n"
            "  ring      exact  41.00 s\n"
            "  star      not    44.00 s\n"
            "\n"
            "  strategy  kind        16\n"
            "  ring      exact  42.00 s\n"
            "  star      not    45.00 s\n"
            "\n"
            "  strategy  kind        32\n"
            "  ring      exact  43.00 s\n"
            "  star      not    46.00 s\n");
}

// Whatever the table, no line is wider than asked for unless one word with its blanks is; nothing is lost.
TEST(Table, NoLineIsWiderThanAskedFor) {
  std::mt19937_64 rng(17);
  const auto upto = [&](std::size_t most) { return rng() % most + 1; };
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(round);
    const std::size_t columns = upto(9), rows = upto(5), width = 44 + upto(60);
    std::vector<std::vector<std::string>> cells(rows + 1);
    for (auto& row : cells) {
      for (std::size_t c = 0; c < columns; ++c) {
        std::string cell;
        for (std::size_t words = upto(6), w = 0; w < words; ++w)
          cell += (w > 0 ? " " : "") + std::string(upto(9), static_cast<char>('a' + rng() % 26));
        row.push_back(rng() % 2 == 0 ? cell : std::to_string(rng() % 100000));
      }
    }
    Table t(cells.front());
    for (std::size_t r = 1; r < cells.size(); ++r) t.add(cells[r]);
    const std::string text = t.text_within(width, {});
    EXPECT_LE(widest_line(text), width) << text;
    for (const auto& row : cells) {
      for (const std::string& cell : row) {
        for (std::size_t at = 0, end = 0; at < cell.size(); at = end + 1) {
          end = std::min(cell.find(' ', at), cell.size());
          EXPECT_NE(text.find(cell.substr(at, end - at)), std::string::npos) << cell << "\n" << text;
        }
      }
    }
  }
}

TEST(Markdown, ParagraphsAreWrappedAnewAndTablesDrawn) {
  const std::string text =
      "# Title\n\nA paragraph of\ntwo lines.\n- an item that is\n  longer\n\n| what | n |\n|------|--:|\n"
      "| GEMM | 3 |\n\n```\n$ as it is, however long that may be\n```\n";
  EXPECT_EQ(markdown_within(text, 0), text);
  EXPECT_EQ(markdown_within(text, 20),
            "# Title\n\nA paragraph of two\nlines.\n- an item that is\n  longer\n\n  what  n\n  GEMM  3\n\n"
            "```\n$ as it is, however long that may be\n```\n");
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
  EXPECT_EQ(t.text_within(22, {}),  // no room to read them in beside the names
            "  name\n"
            "      what it is\n"
            "  a\n"
            "      one two three\n"
            "      four five six\n"
            "      seven eight nine\n"
            "      ten\n"
            "  bb\n"
            "      eleven\n");
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
