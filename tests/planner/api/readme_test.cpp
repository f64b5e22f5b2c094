// The tables of planner/api/README.md are the field lists, and a document that a command prints is what they
// say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/planner/api/document.hpp"
#include "tests/planner/api/schema.hpp"

namespace shardline::api {
namespace {

const char* const kReadme = SHARDLINE_SOURCE_DIR "/planner/api/README.md";
const char* const kBegin = "<!-- tables: made from the field lists, not edited by hand -->\n";

std::string read(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string tables() {
  std::string out;
  for (const StructText& s : all_structs()) {
    out += fmt::format("\n### {}{}\n\n{}\n\n| Field | Type | Meaning |\n|---|---|---|\n", s.name,
                       s.schema.empty() ? "" : fmt::format(", `{}`", s.schema), s.about);
    if (!s.schema.empty()) out += fmt::format("| `schema` | text | `{}` |\n", s.schema);
    for (const FieldText& f : s.fields) out += fmt::format("| `{}` | {} | {} |\n", f.name, f.type, f.meaning);
  }
  return out;
}

TEST(ApiReadme, TablesAreTheFieldLists) {
  const std::string text = read(kReadme);
  const std::size_t at = text.find(kBegin);
  ASSERT_NE(at, std::string::npos) << kReadme << " has no line that says where its tables begin";
  const std::string expected = text.substr(0, at) + kBegin + tables();
  if (text == expected) return;
  const std::string file = SHARDLINE_BINARY_DIR "/api_README.md.new";
  std::ofstream(file, std::ios::binary) << expected;
  FAIL() << "the tables are not those of the field lists; if these are right: cp " << file << " " << kReadme;
}

// A field that a document lacks, has too much, or has of another type is found.
TEST(ApiDocuments, WrongDocumentsAreFound) {
  Json good = Json::parse(R"({"value": 1.5, "low": null, "high": 2})");
  EXPECT_EQ(faults_of(good, "Estimate", "$"), "");
  Json missing = good;
  missing.erase("low");
  EXPECT_EQ(faults_of(missing, "Estimate", "$"), "$.low is missing\n");
  Json more = good;
  more["middle"] = 1;
  EXPECT_EQ(faults_of(more, "Estimate", "$"), "$.middle is documented nowhere\n");
  Json text = good;
  text["high"] = "2";
  EXPECT_EQ(faults_of(text, "Estimate", "$"), "$.high: number expected, found \"2\"\n");
  Json list =
      Json::parse(R"({"file": "", "line": 1, "column": 2, "key": "", "message": "", "details": ["a", 3]})");
  EXPECT_EQ(faults_of(list, "Diagnostic", "$"), "$.details[1]: text expected, found 3\n");
}

// Nobody can tell what a number is without its unit, so no field ends in a bare name that has one.
TEST(ApiDocuments, EveryStructHasFields) {
  for (const StructText& s : all_structs()) {
    EXPECT_FALSE(s.fields.empty()) << s.name;
    EXPECT_FALSE(s.about.empty()) << s.name;
    for (const FieldText& f : s.fields) EXPECT_FALSE(f.meaning.empty()) << s.name << "." << f.name;
  }
}

}  // namespace
}  // namespace shardline::api
