// Every file in tests/bad/scenario, tests/bad/system and tests/bad/plan fails with exactly the message in its
// .expected file. Scenarios are read from their own folder, so that they can name files beside them.
#include "tests/support/bad_input.hpp"

#include "planner/scenario/scenario.hpp"

namespace shardline {
namespace {

Catalogs catalogs() {
  const auto root = testing::source_dir();
  return {root / "models" / "catalog", root / "hardware" / "catalog", root / "scenarios",
          root / "planner" / "engines"};
}

class WorkingFolder {
 public:
  explicit WorkingFolder(const std::filesystem::path& folder) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  ~WorkingFolder() { std::filesystem::current_path(before_); }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  std::filesystem::path before_;
};

TEST(BadInput, Scenario) {
  const WorkingFolder folder(testing::source_dir() / "tests" / "bad" / "scenario");
  testing::expect_messages("scenario", ".yaml", 40, [](const std::string& name, const std::string& text) {
    parse_scenario(name, text, catalogs());
  });
}

TEST(BadInput, System) {
  testing::expect_messages("system", ".yaml", 16, [](const std::string& name, const std::string& text) {
    parse_system(name, text, SHARDLINE_SOURCE_DIR "/hardware/catalog");
  });
}

TEST(BadInput, Plan) {
  testing::expect_messages("plan", ".txt", 15, [](const std::string&, const std::string& text) {
    parse_plan(text.substr(0, text.find('\n')));
  });
}

}  // namespace
}  // namespace shardline
