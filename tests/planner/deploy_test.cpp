// Launch lines of engines, and what they do not say.
#include "planner/engines/deploy.hpp"

#include <gmock/gmock.h>

#include <map>

#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using ::testing::Contains, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not, ::testing::Pair,
    ::testing::StartsWith, ::testing::UnorderedElementsAre;

std::vector<Deployment> of(const Case& c, const std::string& plan) {
  return deployments(c, parse_plan(plan));
}

// Plans that differ in dense_tp have the same options: a note tells apart those that the engine runs
// otherwise.
TEST(Deploy, OtherRanksOfDenseLayersAreNotedUnderAttentionDp) {
  Case r1 = decode_case("deepseek-r1", "gb200-nvl72", 100'000);
  const auto noted = [&](const std::string& plan) {
    std::map<std::string, std::string> out;
    for (const Deployment& d : of(r1, plan)) {
      for (const std::string& note : d.notes) {
        if (note.find("dense layers") != std::string::npos) out[d.engine] = note;
      }
    }
    return out;
  };
  const std::string trtllm = "TensorRT-LLM", whole = " runs the dense layers whole on every rank",
                    timed = "; this plan was timed with them ",
                    end = ", which no option sets: expect another time";
  const auto cut = [](int ranks) {
    return " runs the dense layers cut over " + std::to_string(ranks) + " ranks";
  };
  EXPECT_THAT(noted("dp_ep:dp=16,tpa=2,ep=32,batch=2"),
              UnorderedElementsAre(Pair(trtllm, trtllm + whole + timed + "cut over 2 ranks" + end),
                                   Pair("SGLang", "SGLang" + cut(32) + timed + "cut over 2 ranks" + end)));
  EXPECT_THAT(noted("dp_ep:dp=16,tpa=2,ep=32,dense_tp=32,batch=2"),
              UnorderedElementsAre(Pair(trtllm, trtllm + whole + timed + "cut over 32 ranks" + end),
                                   Pair("vLLM", "vLLM" + cut(2) + timed + "cut over 32 ranks" + end)));
  EXPECT_THAT(noted("dp_ep:dp=16,tpa=2,ep=32,dense_tp=1,batch=2"),
              UnorderedElementsAre(Pair("vLLM", "vLLM" + cut(2) + timed + "whole on every rank" + end)));
  EXPECT_THAT(noted("tensor:tpa=8,ep=8,batch=2"), IsEmpty());
  cut_layers(r1, 58, 0);  // experts alone
  EXPECT_THAT(noted("dp_ep:dp=16,tpa=2,ep=32,batch=2"), IsEmpty());
}

// SGLang has a flag for dense layers that every rank has for itself.
TEST(Deploy, SglangIsToldOfDenseLayersOnEachRank) {
  const Case r1 = decode_case("deepseek-r1", "gb200-nvl72", 100'000);
  const auto sglang = [&](const std::string& plan) { return of(r1, plan).back(); };
  const Deployment alone = sglang("dcp:dp=2,tpa=8,ep=16,dense_tp=1,batch=4,dcp=4");
  ASSERT_EQ(alone.engine, "SGLang");
  EXPECT_THAT(options_text(alone), HasSubstr(" --moe-dense-tp-size 1"));
  EXPECT_THAT(alone.notes, Not(Contains(HasSubstr("dense layers"))));
  const Deployment group = sglang("dcp:dp=2,tpa=8,ep=16,batch=4,dcp=4");
  EXPECT_THAT(options_text(group), Not(HasSubstr("dense")));
  EXPECT_THAT(
      group.notes,
      Contains(StartsWith(
          "SGLang runs the dense layers cut over 16 ranks; this plan was timed with them cut over 8 ranks")));
}

}  // namespace
}  // namespace shardline
