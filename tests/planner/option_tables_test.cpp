// [P20] The tables of engines' options say of each row where it was read, and a default of its type.
#include <gmock/gmock.h>

#include <cctype>
#include <regex>
#include <set>
#include <string>
#include <utility>

#include "planner/engines/profile.hpp"
#include "tests/planner/engine_options.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

// A file with a line or a symbol, and the version that it was read in: a commit or a tag, of TensorRT-LLM the
// candidates that the stored versions lie between (engine_options/README.md).
bool names_a_place(const std::string& source) {
  static const std::regex place(
      R"((^|[ ;])[\w./-]+\.(py|md|sh|cu|cuh|hpp)(:[\w./-]+)?(@[0-9a-f]{10,}|@v\d[\d.]*| \(1\.3\.0rc))");
  return std::regex_search(source, place);
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// "0 (=128)" is 0; what is set by the program itself has no value of the type.
bool fits(const std::string& type, const std::string& whole) {
  const std::string value = whole.substr(0, whole.find(" ("));
  for (const char* none : {"", "None", "REQUIRED", "deprecated"}) {
    if (value == none) return true;
  }
  if (type == "section") return true;  // a mapping, in words
  if (type == "json") return value == "dict" || value.ends_with("Config()");
  if (type == "flag" || type == "bool") return lower(value) == "true" || lower(value) == "false";
  return is_of_type(value, type);
}

TEST(OptionTables, P20EveryRowHasASourceAndADefaultOfItsType) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    const OptionTable table(engine);
    EXPECT_GT(table.size(), 70u);
    std::set<std::pair<std::string, std::string>> seen;
    for (const auto& [name, row] : table.rows()) {
      SCOPED_TRACE(std::string(engine) + " " + row.kind + " " + name);
      EXPECT_TRUE(names_a_place(row.source)) << row.source;
      EXPECT_TRUE(fits(row.type, row.otherwise)) << row.type << ": " << row.otherwise;
      EXPECT_TRUE(std::regex_search(row.since, std::regex(R"(^(<= )?\d+\.\d+)"))) << row.since;
      EXPECT_TRUE(seen.emplace(row.kind, name).second) << "twice";
    }
  }
  EXPECT_FALSE(names_a_place("docs.vllm.ai, vllm serve"));
  EXPECT_FALSE(names_a_place("vllm/envs.py"));
  EXPECT_FALSE(fits("int", "many") || fits("enum:a|b", "c") || fits("flag", "1"));
}

}  // namespace
}  // namespace shardline
