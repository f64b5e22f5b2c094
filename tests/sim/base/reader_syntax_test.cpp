// Texts, limits and the traps of yaml-cpp: the whole of each message.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "sim/base/reader.hpp"

namespace shardline {
namespace {

/// The message of parsing `text` and reading nothing.
std::string syntax_of(const std::string& text) {
  try {
    Document::parse("t.yaml", text).finish();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

std::string nested(std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(ReaderSyntax, Keys) {
  EXPECT_EQ(syntax_of("a:\n  b: 1\n  c: 2\n  b: 3\n"),
            "t.yaml:4:3: duplicate key a.b\n    b: 3\n    ^\nfirst given at line 2\n");
  EXPECT_EQ(syntax_of("{a: 1, 'a': 2}"),
            "t.yaml:1:8: duplicate key a\n  {a: 1, 'a': 2}\n         ^\nfirst given at line 1\n");
  EXPECT_EQ(
      syntax_of("- {x: {y: 1, y: 2}}\n"),
      "t.yaml:1:14: duplicate key [0].x.y\n  - {x: {y: 1, y: 2}}\n               ^\nfirst given at line 1\n");
  EXPECT_EQ(syntax_of("a: &a {x: 1}\nb:\n  <<: *a\n"),
            "t.yaml:3:3: merge keys (<<) are not supported\n    <<: *a\n    ^\nwrite the merged keys out\n");
  EXPECT_EQ(syntax_of("\"<<\": 1\n"), "");
  EXPECT_EQ(syntax_of("? [a]\n: 1\n"), "t.yaml:1:3: a key must be text\n  ? [a]\n    ^\n");
  EXPECT_EQ(syntax_of("~: 1\n"), "t.yaml:1:1: a key must be text\n  ~: 1\n  ^\n");
  EXPECT_EQ(syntax_of("a: &x k\n*x : 1\n"), "t.yaml:2:1: a key must be text\n  *x : 1\n  ^\n");
  EXPECT_EQ(syntax_of("a: 1\nfoo\n"), "t.yaml:2:1: missing colon after foo\n  foo\n  ^\n");
  EXPECT_EQ(syntax_of("a: 1\n\"foo\"\n"),
            "t.yaml:2:1: syntax error: expected a key here (wrong indentation, or a missing colon?)\n"
            "  \"foo\"\n  ^\n");
  EXPECT_EQ(syntax_of("a: 1\nfoo :\n\"b\":\n'c' : # nothing\n"), "");
}

TEST(ReaderSyntax, Tags) {
  EXPECT_EQ(syntax_of("a: !!int 3\n"),
            "t.yaml:1:4: tags such as !!int are not supported\n  a: !!int 3\n     ^\n");
  EXPECT_EQ(syntax_of("a: !mine {b: 1}\n"),
            "t.yaml:1:4: tags such as !mine are not supported\n  a: !mine {b: 1}\n     ^\n");
  EXPECT_EQ(syntax_of("a: ! 3\n"), "t.yaml:1:4: tags such as ! are not supported\n  a: ! 3\n     ^\n");
  EXPECT_EQ(syntax_of("!!map {a: 1}\n"),
            "t.yaml:1:1: tags such as !!map are not supported\n  !!map {a: 1}\n  ^\n");
}

TEST(ReaderSyntax, Documents) {
  EXPECT_EQ(syntax_of(""), "t.yaml:1:1: empty document\n");
  EXPECT_EQ(syntax_of("# only\n"), "t.yaml:1:1: empty document\n  # only\n  ^\n");
  EXPECT_EQ(syntax_of("---\n"), "t.yaml:1:1: empty document\n  ---\n  ^\n");
  EXPECT_EQ(syntax_of("a: 1\n---\nb: 2\n"), "t.yaml:2:1: several documents in one file\n  ---\n  ^\n");
  EXPECT_EQ(syntax_of("{a: 1} b\n"),
            "t.yaml:1:8: text after the end of the document\n  {a: 1} b\n         ^\n");
  EXPECT_EQ(syntax_of("%YAML 1.2\n---\na: 1\n...\n"), "");
  EXPECT_EQ(syntax_of("\xef\xbb\xbf"
                      "a: 1\n"),
            "");  // a byte-order mark
}

TEST(ReaderSyntax, SyntaxErrors) {
  const auto error = [](int line, int column, const std::string& what, const std::string& source) {
    return fmt::format("t.yaml:{}:{}: {}\n  {}\n  {:>{}}\n", line, column, what, source, '^', column);
  };
  EXPECT_EQ(syntax_of("a: b: c\n"),
            error(1, 5,
                  "syntax error: unexpected colon (text that holds one needs quotes, or the line above lacks "
                  "its own)",
                  "a: b: c"));
  EXPECT_EQ(syntax_of("a: ]\n"),
            error(1, 4, "syntax error: closing bracket that matches no open one", "a: ]"));
  EXPECT_EQ(syntax_of("a: [1, 2\n"), error(1, 9, "syntax error: the text ends before } or ]", "a: [1, 2"));
  EXPECT_EQ(syntax_of("a: [\"b\" 1]\n"),
            error(1, 9, "syntax error: expected , or ] here, as a list is open", "a: [\"b\" 1]"));
  EXPECT_EQ(syntax_of("a: {b: 1]\n"),
            error(1, 9, "syntax error: closing bracket that matches no open one", "a: {b: 1]"));
  EXPECT_EQ(
      syntax_of("a: @x\n"),
      error(1, 4, "syntax error: unexpected character (text that starts with it needs quotes)", "a: @x"));
  EXPECT_EQ(
      syntax_of("a:\n  b: 1\n bad\n"),
      error(3, 2, "syntax error: expected a key here (wrong indentation, or a missing colon?)", " bad"));
  EXPECT_EQ(syntax_of("a: \"\\q\"\n"),
            error(1, 7, "syntax error: unknown escape character: q", "a: \"\\q\""));
  EXPECT_EQ(
      syntax_of("a: \"\\ud83d\\ude00\"\n"),
      error(1, 11, "syntax error: unsupported \\u escape (write characters beyond U+FFFF as themselves)",
            "a: \"\\ud83d\\ude00\""));
  EXPECT_EQ(syntax_of("a:\n\tb: 1\n"),
            "t.yaml:2:1: syntax error: tab in indentation: YAML indents with spaces\n"
            "   b: 1\n  ^\n");
  // yaml-cpp itself accepts these two at the end of a text.
  EXPECT_EQ(syntax_of("a: \"bc\n"), error(1, 4, "the quoted text is never closed", "a: \"bc"));
  EXPECT_EQ(syntax_of("a: 'it''s\n"), error(1, 4, "the quoted text is never closed", "a: 'it''s"));
  EXPECT_EQ(syntax_of("a: 'it''s'\nb: \"\\\"\"\nc: &x \"d\"\ne: |\n  \"\n"), "");
}

TEST(ReaderSyntax, Bytes) {
  EXPECT_EQ(syntax_of("a: \xff\n"), "t.yaml:1:4: byte 0xff is not UTF-8\n  a: ?\n     ^\n");
  EXPECT_EQ(syntax_of("a: \xc0\xaf\n"), "t.yaml:1:4: byte 0xc0 is not UTF-8\n  a: ??\n     ^\n");
  EXPECT_EQ(syntax_of("a: \xed\xa0\x80\n"),
            "t.yaml:1:4: byte 0xed is not UTF-8\n  a: \xed\xa0\x80\n     ^\n");
  EXPECT_EQ(syntax_of(std::string("a: b\0c", 6)),
            "t.yaml:1:5: control character 0x00 in the text\n  a: b?c\n      ^\n");
  EXPECT_EQ(syntax_of("a: b\x04"
                      "c: d\n"),
            "t.yaml:1:5: control character 0x04 in the text\n  a: b?c: d\n      ^\n");
  EXPECT_EQ(syntax_of("a: \"\\0\"\n"), "t.yaml:1:4: a text with a NUL character\n  a: \"\\0\"\n     ^\n");
  // Columns count characters; every kind of line end counts.
  EXPECT_EQ(syntax_of("x: 1\r\ny: 2\ré: {é: 1, é: 2}\n"),
            "t.yaml:3:11: duplicate key é.é\n  é: {é: 1, é: 2}\n            ^\nfirst given at line 3\n");
}

TEST(ReaderSyntax, Aliases) {
  const auto read = [](const std::string& text) -> std::string {
    try {
      const Document d = Document::parse("t.yaml", text);
      for (const std::string& key : d.root().keys()) {
        const Reader plan = d.root().at(key);
        plan.at("tp").integer(1, 64);
        plan.no_other_keys();
      }
      d.finish();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(read("prefill: &p {tp: 8}\ndecode: *p\n"), "");
  EXPECT_EQ(read("decode: {tp: &n 8}\nprefill: {tp: *n}\n"), "");
  // The fault of a shared value is shown where it stands, with the way to it.
  EXPECT_EQ(read("prefill: &p {tp: 8}\ndecode: &d\n  tp: 99\nthird: *d\n"),
            "t.yaml:3:7: decode.tp: expected 1 to 64, found 99\n    tp: 99\n        ^\n"
            "t.yaml:3:7: third.tp: expected 1 to 64, found 99\n    tp: 99\n        ^\nused through the alias "
            "at line 4\n");
  EXPECT_EQ(read("prefill: {tp: &n 8}\ndecode: *n\n"),
            "t.yaml:2:9: decode: expected a mapping, found 8\n  decode: *n\n          ^\n"
            "the alias stands for the value at line 1\n");
  EXPECT_EQ(syntax_of("a: *q\n"), "t.yaml:1:4: syntax error: unknown alias *q\n  a: *q\n     ^\n");
  EXPECT_EQ(syntax_of("a: &p [*p]\n"),
            "t.yaml:1:8: an alias of a value that contains it\n  a: &p [*p]\n         ^\n");
}

TEST(ReaderSyntax, AliasBombs) {
  std::string wide = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  std::string deep = "a0: &a0 [x]\n";
  for (int i = 1; i < 70; ++i) {
    const std::string name = fmt::format("a{}", i);
    const std::string last = fmt::format("*a{}", i - 1);
    std::string list = last;
    for (int k = 0; k < 9; ++k) list += fmt::format(", {}", last);
    if (i < 10) wide += fmt::format("{0}: &{0} [{1}]\n", name, list);
    deep += fmt::format("{0}: &{0} [{1}]\n", name, last);
  }
  // a0 holds 11 values and each next list 1 + 10 times as many, so the eighth alias in a5 is one too many.
  EXPECT_TRUE(syntax_of(wide).starts_with("t.yaml:6:45: more than 1000000 values, aliases expanded\n"))
      << syntax_of(wide);
  // Root, the list, and the 63 levels of a62.
  EXPECT_TRUE(syntax_of(deep).starts_with("t.yaml:64:12: nested deeper than 64 levels\n")) << syntax_of(deep);
}

TEST(ReaderSyntax, Depth) {
  EXPECT_EQ(syntax_of(nested(64)), "");
  EXPECT_TRUE(syntax_of(nested(65)).starts_with("t.yaml:1:65: nested deeper than 64 levels\n"));
  std::string block;
  for (std::size_t i = 0; i < 64; ++i) block += std::string(i, ' ') + "a:\n";
  EXPECT_EQ(syntax_of(block), "");
  EXPECT_TRUE(
      syntax_of(block + std::string(64, ' ') + "a: 1\n").starts_with("t.yaml:65:65: nested deeper than 64"));
  std::string dashes;
  for (int i = 0; i < 100'000; ++i) dashes += "- ";
  EXPECT_TRUE(syntax_of(dashes).find("nested deeper than 64 levels") != std::string::npos);
  EXPECT_TRUE(syntax_of(nested(100'000)).starts_with("t.yaml:1:10001: more than 10000 open brackets\n"));
}

TEST(ReaderSyntax, Size) {
  std::string text = "a: ";
  text.resize(std::size_t{16} << 20, 'x');
  EXPECT_EQ(syntax_of(text), "");
  EXPECT_EQ(syntax_of(text + "x"), "t.yaml: a text of 16777217 bytes; at most 16 MiB are read\n");
  std::string commas = "[";
  for (int i = 0; i < 2'000'000; ++i) commas += "1,";
  EXPECT_TRUE(
      syntax_of(commas + "]").starts_with("t.yaml:1:4000001: more than 2000000 brackets and commas\n"));
}

TEST(ReaderSyntax, Json) {
  const std::string text =
      "{\n\t\"name\": \"a\\tb\tc\",\n\t\"eps\":1e-05,\n\t\"theta\": 10000.0,\n\t\"tied\": "
      "true,\n\t\"scaling\": null,\n"
      "\t\"list\": [\n\t\t1,\n\t\t2\n\t]\n}\n";
  const Document d = Document::parse("config.json", text);
  const Reader r = d.root();
  EXPECT_EQ(r.at("name").text(), "a\tb\tc");
  EXPECT_EQ(r.at("eps").number(0, 1), 1e-05);
  EXPECT_EQ(r.at("theta").number(0, 1e9), 10000.0);
  EXPECT_TRUE(r.at("tied").boolean());
  EXPECT_TRUE(r.at("scaling").is_null());
  EXPECT_EQ(r.at("list").items().at(1).integer(0, 9), 2);
  r.no_other_keys();
  r.at("theta").integer(0, 9);
  try {
    d.finish();
    FAIL() << "accepted a fraction as an integer";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "config.json:4:11: theta: expected an integer, found 10000.0\n"
                 "   \"theta\": 10000.0,\n            ^\n");
  }
}

TEST(ReaderSyntax, TabsInJson) {
  for (const std::string text : {"\t{\"a\": 1}", "{\"a\": 1}\t\n\t", "{\"a\": 1\t,\t\"b\"\t:\ttrue\t}",
                                 "{\ta\t:\t1\t}", "\n\t\n{\n\t\"a\":\n\t\t{\n\t\t\"b\": 1\n\t\t}\n}\n"})
    EXPECT_EQ(syntax_of(text), "");
  EXPECT_EQ(syntax_of("{\n\t\"a\": 1\n\t\"b\": 2\n}\n"),
            "t.yaml:3:5: syntax error: expected , or } here, as a mapping is open\n   \"b\": 2\n      ^\n");
}

TEST(ReaderSyntax, Files) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "shardline_reader_test";
  std::filesystem::create_directories(folder);
  const std::filesystem::path file = folder / "a.yaml";
  const auto load = [](const std::filesystem::path& path) -> std::string {
    try {
      return fmt::format("gpus {}", Document::load(path).root().at("gpus").integer(0, 9));
    } catch (const UserError& error) {
      return error.what();
    }
  };
  std::ofstream(file) << "gpus: 4\n";
  EXPECT_EQ(load(file), "gpus 4");
  EXPECT_EQ(load(folder), "cannot read " + folder.string() + ": a directory\n");
  EXPECT_EQ(load(folder / "b.yaml"), "cannot read " + (folder / "b.yaml").string() + ": no such file\n");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace shardline
