// Launch lines of engines, and what they do not say.
#include "planner/engines/deploy.hpp"

#include <gmock/gmock.h>

#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using ::testing::Contains, ::testing::HasSubstr, ::testing::Not, ::testing::StartsWith;

std::vector<Deployment> of(const Case& c, const std::string& plan) {
  return deployments(c, parse_plan(plan));
}

// Plans that differ in dense_tp have the same lines: a note tells them apart.
TEST(Deploy, RanksOfDenseLayersAreNotedUnderAttentionDp) {
  const Case r1 = decode_case("deepseek-r1", "gb200-nvl72", 100'000);
  const auto ranks_noted = [&](const std::string& plan, const std::string& ranks) {
    const std::vector<Deployment> found = of(r1, plan);
    EXPECT_EQ(found.size(), 3u) << plan;
    for (const Deployment& d : found) {
      if (find(d.options, "--moe-dense-tp-size") != nullptr) continue;  // the next test's
      EXPECT_THAT(d.notes,
                  Contains("this plan's time has dense layers over " + ranks + "; no flag here sets that"))
          << plan << " " << d.engine;
    }
  };
  ranks_noted("dp_ep:dp=16,tpa=2,ep=32,batch=2", "2 ranks");
  ranks_noted("dp_ep:dp=16,tpa=2,ep=32,dense_tp=32,batch=2", "32 ranks");
  ranks_noted("dp_ep:dp=16,tpa=2,ep=32,dense_tp=1,batch=2", "1 rank");
  for (const Deployment& d : of(r1, "tensor:tpa=8,ep=8,batch=2"))
    EXPECT_THAT(d.notes, Not(Contains(StartsWith("this plan's time has dense layers"))));
  Case all_experts = r1;
  cut_layers(all_experts, 58, 0);
  for (const Deployment& d : of(all_experts, "dp_ep:dp=16,tpa=2,ep=32,batch=2"))
    EXPECT_THAT(d.notes, Not(Contains(StartsWith("this plan's time has dense layers"))));
}

// SGLang has a flag for dense layers that every rank has for itself.
TEST(Deploy, SglangIsToldOfDenseLayersOnEachRank) {
  const Case r1 = decode_case("deepseek-r1", "gb200-nvl72", 100'000);
  const auto sglang = [&](const std::string& plan) { return of(r1, plan).back(); };
  const Deployment alone = sglang("dcp:dp=2,tpa=8,ep=16,dense_tp=1,batch=4,dcp=4");
  ASSERT_EQ(alone.engine, "SGLang");
  EXPECT_THAT(lines(alone).front(), HasSubstr(" --moe-dense-tp-size 1"));
  EXPECT_THAT(alone.notes, Not(Contains(StartsWith("this plan's time has dense layers"))));
  const Deployment group = sglang("dcp:dp=2,tpa=8,ep=16,batch=4,dcp=4");
  EXPECT_THAT(lines(group).front(), Not(HasSubstr("dense")));
  EXPECT_THAT(group.notes, Contains(StartsWith("this plan's time has dense layers over 8 ranks")));
}

}  // namespace
}  // namespace shardline
