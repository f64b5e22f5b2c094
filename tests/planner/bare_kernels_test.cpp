// The profile `ideal`: bare kernels, of which every output says that there is no engine around them.
#include "planner/scenario/bare_kernels.hpp"

#include <gmock/gmock.h>

#include <string>

#include "planner/scenario/engine_keys.hpp"
#include "planner/scenario/shipped.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using ::testing::Contains, ::testing::HasSubstr, ::testing::Not, ::testing::StartsWith;

TEST(BareKernels, AreAProfileThatIsNoEngine) {
  const EngineProfile bare = bare_kernels();
  EXPECT_EQ(bare.name, kIdealEngine);
  EXPECT_EQ(bare.version, "");
  EXPECT_EQ(bare.host.step, Seconds(0));
  EXPECT_EQ(bare_kernels_text(), "ideal (bare kernels, nothing of what an engine adds around them)");
  const std::filesystem::path folder = shipped_catalogs().engines;
  EXPECT_THAT(engine_names(folder), Not(Contains(StartsWith("ideal"))));
  EXPECT_EQ(load_engines(folder).size(), engine_names(folder).size());
}

// The same reader: keys of engines are none of its.
TEST(BareKernels, HaveNothingAroundThem) {
  const std::string own =
      "name: ideal\ntitle: bare kernels\nassumes: [nothing]\n"
      "fuses: {elementwise: false, split_merge: true, why: a test}\n";
  const EngineProfile other = parse_engine("ideal.yaml", own);
  const Kernels with = scenario_parts::kernels_of(&other), without = scenario_parts::kernels_of(nullptr);
  EXPECT_TRUE(with.separate_elementwise && with.fused_split_merge);
  EXPECT_FALSE(without.separate_elementwise || without.fused_split_merge);
  try {
    parse_engine("ideal.yaml", own + "memory: {of: total}\n");
    ADD_FAILURE() << "memory is of engines";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("unknown key memory"));
  }
  EXPECT_THROW(load_engine(kIdealEngine, "2", shipped_catalogs().engines), UserError);
}

}  // namespace
}  // namespace shardline
