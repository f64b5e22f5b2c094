// The examples of scenarios/README.md and hardware/README.md are valid.
#include <gtest/gtest.h>

#include <sstream>

#include "planner/scenario/scenario.hpp"
#include "tests/planner/support.hpp"
#include "tests/support/files.hpp"

namespace shardline {
namespace {

/// The fenced blocks of a Markdown file that are marked with `language`.
std::vector<std::string> blocks(const std::string& file, const std::string& language) {
  std::istringstream text(testing::read_file(source_path(file)));
  std::vector<std::string> out;
  bool inside = false;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("```")) {
      inside = !inside && line == "```" + language;
      if (inside) out.emplace_back();
    } else if (inside) {
      out.back() += line + "\n";
    }
  }
  return out;
}

TEST(Readme, ScenariosParse) {
  const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                          source_path("scenarios"), source_path("planner/engines")};
  const auto examples = blocks("scenarios/README.md", "yaml");
  EXPECT_EQ(examples.size(), 9u);
  for (const std::string& text : examples) {
    const Scenario s = parse_scenario("README.md", text, catalogs);
    EXPECT_FALSE(s.studies.empty());
  }
}

TEST(Readme, EveryKeyOfAScenarioIsDocumented) {
  const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                          source_path("scenarios"), source_path("planner/engines")};
  const std::string readme = testing::read_file(source_path("scenarios/README.md"));
  const std::string example = blocks("scenarios/README.md", "yaml").front();
  std::string examples;
  for (const std::string& text : blocks("scenarios/README.md", "yaml")) examples += "\n" + text;
  try {
    parse_scenario("README.md", example + "nothing: 1\n", catalogs);
    FAIL() << "no error";
  } catch (const UserError& e) {
    const std::string list = e.diagnostics()[0].details.at(0);  // "expected one of: name, ..."
    std::istringstream names(list.substr(list.find(": ") + 2));
    int count = 0;
    for (std::string name; std::getline(names >> std::ws, name, ',');) {
      ++count;
      EXPECT_NE(readme.find("\n| `" + name), std::string::npos) << name << " has no row in the table";
      EXPECT_NE(examples.find("\n" + name + ":"), std::string::npos) << name << " is not in an example";
    }
    EXPECT_GE(count, 24);
  }
}

TEST(Readme, PlansParseAndAreCanonical) {
  const auto examples = blocks("scenarios/README.md", "plan");
  ASSERT_EQ(examples.size(), 1u);
  std::istringstream lines(examples.front());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(to_string(parse_plan(line)), line);
  }
  EXPECT_EQ(count, 8);
}

TEST(Readme, SystemParses) {
  const auto examples = blocks("hardware/README.md", "yaml");
  ASSERT_EQ(examples.size(), 1u);
  EXPECT_EQ(parse_system("README.md", examples.front()).gpus(), 128);
}

}  // namespace
}  // namespace shardline
