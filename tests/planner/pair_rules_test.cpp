// Every rule of which two servers an engine hands caches between [P21], by a pair that it refuses and the
// nearest that it lets pass.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "planner/engines/launch_rules.hpp"
#include "tests/planner/launchable.hpp"

namespace shardline {
namespace {

using namespace testing;

struct PairTry {
  const char *engine, *rule, *prompts, *answers, *paired_prompts, *paired_answers, *model = kR1;
};

// Servers that an engine hands no caches between, and the nearest that it does.
const std::vector<PairTry> kPairTries{
    {"vllm", "pair_stages", "pipeline:pp=2,batch=1", "tensor:tpa=8,batch=1", "tensor:tpa=2,batch=1",
     "tensor:tpa=8,batch=1"},
    {"vllm", "pair_ranks", "tensor:tpa=8,ep=8,batch=1", "tensor:tpa=4,ep=4,batch=4",
     "tensor:tpa=4,ep=4,batch=1", "tensor:tpa=8,ep=8,batch=4", kQwen},  // 4 KV heads
    {"vllm", "pair_ranks", "dp_ep:dp=2,tpa=6,ep=12,batch=1", "tensor:tpa=4,ep=4,batch=4",
     "tensor:tpa=8,ep=8,batch=1", "tensor:tpa=4,ep=4,batch=4"},  // latents
    {"sglang", "pair_ranks", "dp_ep:dp=2,tpa=6,ep=12,batch=1", "dp_ep:dp=4,tpa=4,ep=16,batch=4",
     "dp_ep:dp=2,tpa=8,ep=16,batch=1", "dp_ep:dp=4,tpa=4,ep=16,batch=4"},
    {"vllm", "pair_dcp", "tensor:tpa=8,ep=8,batch=1", "dcp:tpa=8,ep=8,dcp=8,batch=4",
     "tensor:tpa=8,ep=8,batch=1", "tensor:tpa=8,ep=8,batch=4"},
    {"vllm", "pair_dcp", "tensor:tpa=8,ep=8,batch=1", "dcp:tpa=8,ep=8,dcp=2,exchange=a2a,batch=4",
     "tensor:tpa=8,ep=8,batch=1", "dp_ep:dp=8,ep=8,batch=4"},
    {"sglang", "pair_stages", "tensor:tpa=8,batch=1", "pipeline:pp=2,batch=1", "pipeline:pp=2,batch=1",
     "pipeline:pp=2,batch=1"},
    {"trtllm", "pair_helix", "helix:kvp=4,tpa=2,ep=8,batch=1,value_up=after",
     "helix:kvp=4,tpa=2,ep=8,batch=4,value_up=after", "tensor:tpa=8,ep=8,batch=1",
     "helix:kvp=4,tpa=2,ep=8,batch=4,value_up=after"},
    {"vllm", "pair_drafts", "tensor:tpa=8,ep=8,batch=1", "tensor:tpa=8,ep=8,batch=4,drafts=1",
     "tensor:tpa=8,ep=8,batch=1,drafts=1", "tensor:tpa=8,ep=8,batch=4,drafts=1"},
    {"sglang", "pair_drafts", "tensor:tpa=8,ep=8,batch=1", "dp_ep:dp=8,ep=8,batch=4,drafts=3",
     "tensor:tpa=8,ep=8,batch=1,drafts=3", "tensor:tpa=8,ep=8,batch=4,drafts=3"},
    {"trtllm", "pair_drafts", "tensor:tpa=8,ep=8,batch=1,drafts=3", "dp_ep:dp=8,ep=8,batch=4",
     "tensor:tpa=8,ep=8,batch=1,drafts=3", "dp_ep:dp=8,ep=8,batch=4,drafts=3"},
    {"vllm", "pair_state_drafts", "tensor:tpa=8,ep=8,batch=1,drafts=1", "tensor:tpa=8,ep=8,batch=4,drafts=1",
     "tensor:tpa=8,ep=8,batch=1", "tensor:tpa=8,ep=8,batch=4", kQwen35},
    {"trtllm", "pair_state_drafts", "tensor:tpa=8,ep=8,batch=1,drafts=2",
     "tensor:tpa=8,ep=8,batch=4,drafts=2", "tensor:tpa=8,ep=8,batch=1", "tensor:tpa=8,ep=8,batch=4",
     kQwen35}};

TEST(Launchable, EveryRuleOfPairsRefusesOneAndLetsTheNearestPass) {
  for (const PairTry& t : kPairTries) {
    SCOPED_TRACE(fmt::format("{} {}: {} and {}", t.engine, t.rule, t.prompts, t.answers));
    const auto tried = [&](const char* prompts, const char* answers) {
      const Case c = case_of(t.engine, {t.model, kGb, prompts});
      return does_not_pair(*profile(t.engine), c, parse_plan(prompts), parse_plan(answers));
    };
    const auto refusal = tried(t.prompts, t.answers);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->rule, t.rule);
    EXPECT_FALSE(tried(t.paired_prompts, t.paired_answers));
  }
  for (const LaunchRules* rules : launch_rules()) {
    for (const PairRule& rule : rules->pairs) {
      const auto of = [&](const PairTry& t) {
        return t.engine == std::string_view(rules->engine) && t.rule == std::string_view(rule.id);
      };
      EXPECT_TRUE(std::any_of(kPairTries.begin(), kPairTries.end(), of)) << rules->engine << " " << rule.id;
    }
  }
}

}  // namespace
}  // namespace shardline
