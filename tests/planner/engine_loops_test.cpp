// planner/engines: what the measured loops of a profile were.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "planner/engines/profile.hpp"
#include "planner/scenario/shipped.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

// What the bands are of: loops of InferenceMAX and of AIConfigurator's gap analysis, at most eight GPUs.
TEST(EngineLoops, BandsAreOfMeasuredLoops) {
  for (const std::string& name : engine_names(shipped_catalogs().engines)) {
    const MeasuredLoops l = load_engine(engine_name(name), shipped_catalogs().engines).error.loops;
    EXPECT_TRUE(l.input.holds(1000)) << name;
    EXPECT_FALSE(l.input.holds(32'768)) << name;
    EXPECT_TRUE(l.gpus.holds(8)) << name;
    EXPECT_FALSE(l.gpus.holds(16)) << name;
    EXPECT_FALSE(l.users.holds(1)) << name;
  }
  const MeasuredRange range{1000, 8000};
  EXPECT_TRUE(range.holds(8080));
  EXPECT_FALSE(range.holds(8081));
  EXPECT_TRUE(range.holds(990));
  EXPECT_FALSE(range.holds(989));
}

TEST(EngineLoops, FaultsOfMeasuredLoopsAreLocated) {
  std::ifstream file(shipped_catalogs().engines / "vllm.yaml");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto says = [&](const std::string& loops) {
    std::string changed = text;
    const std::size_t at = changed.find("    loops: "), end = changed.find('\n', at);
    changed.replace(at, end - at, "    loops: " + loops);
    try {
      parse_engine("x.yaml", changed);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(says("{input: [1, 2], output: [1, 2], users: [1, 2], gpus: [1, 2]}"), "");
  EXPECT_THAT(says("{input: [2, 1], output: [1, 2], users: [1, 2], gpus: [1, 2]}"),
              HasSubstr("host.error.loops.input: the least is more than the most"));
  EXPECT_THAT(says("{input: [1, 2, 3], output: [1, 2], users: [1, 2], gpus: [1, 2]}"),
              HasSubstr("host.error.loops.input: expected two numbers"));
  EXPECT_THAT(says("{input: [1, 2], output: [1, 2], users: [1, 2]}"), HasSubstr("gpus"));
}

}  // namespace
}  // namespace shardline
