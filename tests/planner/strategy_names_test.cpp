// Who may know which strategy a plan is of: the table, a strategy's own file, and studies that ask about one.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "planner/strategies/strategy.hpp"

namespace shardline {
namespace {

// Lines of code, without comments, of the sources below a folder.
template <class F>
int for_each_line(const std::filesystem::path& folder, F f) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension();
    if (extension != ".cpp" && extension != ".hpp") continue;
    std::ifstream file(entry.path());
    std::string line;
    ++files;
    for (int n = 1; std::getline(file, line); ++n)
      f(entry.path(), line.substr(0, line.find("//")),
        [&] { return entry.path().string() + ":" + std::to_string(n); });
  }
  return files;
}

// Who asks which strategy a plan is of must be changed for every new one; what it wants to know is a trait.
TEST(Strategies, NothingComparesAnIdentityOutsideTheTable) {
  const std::regex asks(
      R"(([!=]=\s*(strategy_id|id_of)\()|((strategy_id|id_of)\([^()]*\)\s*[!=]=)|(case\s+StrategyId)|(strategy\.name\s*==)|(to_string\([^()]*\)\s*[!=]=\s*"))");
  const std::filesystem::path root = SHARDLINE_SOURCE_DIR;
  int read = 0;
  for (const char* folder : {"models", "hardware", "planner", "calibrate", "reports", "cuda_probe"})
    read += for_each_line(root / folder, [&](const auto& path, const std::string& line, auto where) {
      if (path.filename() != "table.cpp" && std::regex_search(line, asks))
        ADD_FAILURE() << where() << ": " << line;
    });
  EXPECT_GT(read, 200);
  EXPECT_TRUE(std::regex_search(std::string("if (p.strategy == strategy_id(\"helix\")"), asks));
  EXPECT_TRUE(std::regex_search(std::string("if (to_string(p.strategy) == \"helix\")"), asks));
}

// What makes, searches and runs schedules does not know any strategy's name, in whatever way it would
// compare: neither the text nor the row's symbol. A strategy's file knows its own.
TEST(Strategies, NothingBelowStudiesNamesAStrategy) {
  std::string names, symbols;
  std::map<std::string, std::string> symbol_of;
  for (const Strategy* s : strategies()) {
    std::string symbol = "k";
    bool upper = true;
    for (const char* c = s->name; *c != '\0'; ++c) {
      if (*c != '_') symbol += upper ? static_cast<char>(std::toupper(*c)) : *c;
      upper = *c == '_';
    }
    symbol_of[symbol] = s->name;
    names += (names.empty() ? "" : "|") + std::string(s->name);
    symbols += (symbols.empty() ? "" : "|") + symbol;
  }
  const std::regex name("\"(" + names + ")[:\"]|strategy_id\\("), symbol("\\b(" + symbols + ")\\b");
  const std::filesystem::path root = SHARDLINE_SOURCE_DIR;
  int read = 0;
  for (const char* folder : {"planner/plan", "planner/layers", "planner/search", "planner/scenario",
                             "planner/engines", "cuda_probe/execute", "cuda_probe/kernels"})
    read += for_each_line(root / folder, [&](const auto&, const std::string& line, auto where) {
      if (std::regex_search(line, name) || std::regex_search(line, symbol))
        ADD_FAILURE() << where() << ": " << line;
    });
  EXPECT_GT(read, 80);
  std::set<std::string> own;
  for_each_line(root / "planner/strategies", [&](const auto& path, const std::string& line, auto where) {
    const std::string file = path.stem();
    if (!find_strategy(file) && file != "table" && path.extension() == ".cpp" &&
        std::regex_search(line, name))
      ADD_FAILURE() << where() << ": " << line;
    std::smatch found;
    if (file == "table" || !std::regex_search(line, found, symbol)) return;
    own.insert(file);
    EXPECT_EQ(symbol_of[found[1]], file) << where() << ": " << line;
  });
  EXPECT_EQ(own.size(), strategies().size());  // the symbols are those that the files use
  EXPECT_TRUE(std::regex_search(std::string("  return p.strategy == id_of(kKvRunahead);"), symbol));
  EXPECT_TRUE(std::regex_search(std::string("  if (s.name == \"helix\"sv)"), name));
}

}  // namespace
}  // namespace shardline
