// What is written as a scalar is read as the text that it was.
#include "sim/base/yaml_scalar.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/base/reader.hpp"

namespace shardline {
namespace {

std::string read(const std::string& scalar) {
  Document document = Document::parse("t.yaml", "words: {of: " + scalar + ", rows: 1}\nof: " + scalar + "\n");
  const std::string in_braces = document.root().at("words").at("of").text();
  EXPECT_EQ(document.root().at("words").at("rows").integer(0, 9), 1);
  EXPECT_EQ(document.root().at("of").text(), in_braces);
  document.finish();
  return in_braces;
}

// Two of each, so that whatever follows a character is escaped, too.
std::vector<std::string> texts() {
  const std::vector<std::string> parts = {
      "",      "a",    "\"",   "\\", "'", "\n",  "\t",  " ",   ":",        ": ",
      " #",    "#",    "{",    "}",  "[", "]",   ",",   "&",   "*",        "!",
      "|",     ">",    "%",    "@",  "`", "-",   "- ",  "?",   "~",        "null",
      "true",  "1e3",  "/",    "./", "=", "\\n", "---", "...", "\xc3\xa9", "\xe2\x82\xac",
      "\\x0a", "NULL", "Null", "<<"};
  std::vector<std::string> out;
  for (const std::string& a : parts) {
    for (const std::string& b : parts) out.push_back(a + b);
  }
  return out;
}

TEST(YamlScalar, IsReadAsTheText) {
  for (const std::string& text : texts()) {
    EXPECT_EQ(read(yaml_quoted(text)), text);
    EXPECT_EQ(read(yaml_word(text)), text);
  }
}

TEST(YamlScalar, NamesAndPathsAreNotQuoted) {
  for (const std::string plain :
       {"h200_hgx8", "gb200-nvl72", "models/a.yaml", "./a.b/c", "DeepSeek-V3.2", "n"})
    EXPECT_EQ(yaml_word(plain), plain);
  for (const std::string text : {"", "../a", "1b", "a b", "a\"b", "null", "~", "-a"})
    EXPECT_EQ(yaml_word(text), yaml_quoted(text));
}

TEST(YamlScalar, CharactersThatNoFileMayHaveAreEscaped) {
  EXPECT_EQ(yaml_quoted(std::string("\0\x1b\x7f", 3)), "\"\\x00\\x1b\\x7f\"");
  EXPECT_EQ(yaml_quoted("a\nb\tc"), "\"a\\x0ab\\x09c\"");
}

}  // namespace
}  // namespace shardline
