// reports/glossary.md has a row for every word by which a step's time is divided.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "hardware/cost/kernel_cost.hpp"
#include "models/ir/schedule.hpp"

namespace shardline {
namespace {

// "| merge, `kvp` (of a plan) | ... |" has the words merge and kvp.
std::set<std::string> glossary_words() {
  std::ifstream in(std::string(SHARDLINE_SOURCE_DIR) + "/reports/glossary.md");
  std::set<std::string> out;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| ")) continue;
    std::string cell = line.substr(2, line.find(" |") - 2);
    std::erase(cell, '`');
    cell = cell.substr(0, cell.find(" ("));
    std::istringstream words(cell);
    for (std::string word; std::getline(words >> std::ws, word, ',');) out.insert(word);
  }
  return out;
}

TEST(Glossary, HasEveryPartKindAndLimitOfAStep) {
  const std::set<std::string> words = glossary_words();
  ASSERT_GT(words.size(), 100u);
  for (std::size_t i = 0; i < static_cast<std::size_t>(Part::count); ++i)
    EXPECT_TRUE(words.contains(std::string(to_string(static_cast<Part>(i)))))
        << to_string(static_cast<Part>(i));
  for (std::size_t i = 0; i < kOpKinds; ++i)
    EXPECT_TRUE(words.contains(std::string(to_string(static_cast<OpKind>(i)))))
        << to_string(static_cast<OpKind>(i));
  for (std::size_t i = 0; i < kLimits; ++i)
    EXPECT_TRUE(words.contains(std::string(to_string(static_cast<Limit>(i)))))
        << to_string(static_cast<Limit>(i));
  for (std::size_t i = 1; i < kBases; ++i)  // the first is of nothing
    EXPECT_TRUE(words.contains(std::string(to_string(static_cast<Basis>(i)))))
        << to_string(static_cast<Basis>(i));
}

TEST(Glossary, WordsAreThoseBeforeAParenthesis) {
  const std::set<std::string> words = glossary_words();
  EXPECT_TRUE(words.contains("burst"));  // "| burst (column) |"
  EXPECT_FALSE(words.contains("no such word"));
}

}  // namespace
}  // namespace shardline
