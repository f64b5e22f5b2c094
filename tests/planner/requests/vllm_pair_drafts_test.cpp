// Pairs of vLLM's pools with drafts [R16], against the engine's own loops, and by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "planner/requests/group_times.hpp"
#include "planner/requests/pair.hpp"
#include "tests/planner/requests/pair_case.hpp"
#include "tests/planner/requests/plain_pair.hpp"
#include "tests/support/loads.hpp"

namespace shardline {
namespace {

// SHARDLINE_WHOLE=1 plays 4,000 loads.
void expect_the_plain_loops(bool groups) {
  const std::uint64_t seeds = testing::loads(400);
  std::uint64_t preempted = 0, found = 0, still = 0, local = 0, dummies = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    PairCase c = with_drafts(random_pair(seed), seed);
    if (groups) c = with_groups(std::move(c), seed);
    const BentStepTimes times;
    PlainPair slow = plain(c, times);
    const std::optional<PlayedPair> both = played_like(slow, c, seed);
    if (!both) {
      ++still;
      continue;
    }
    ASSERT_FALSE(::testing::Test::HasFailure()) << seed;
    for (const auto& [came, b] : both->answers) {
      found += b.found;
      preempted += b.preempted;
    }
    local += both->run.local_prefills;
    std::uint64_t mine = 0;
    for (const auto* pool : {&both->run.prefill, &both->run.decode})
      for (const ServedRequests& s : *pool) mine += s.dummies;
    ASSERT_EQ(mine, slow.dummies) << seed;
    dummies += mine;
  }
  if (testing::kSanitized) return;  // a part of the loads
  // The loads are such that all of it happens.
  EXPECT_GT(found, 0U);
  EXPECT_GT(preempted, 0U);
  EXPECT_GT(local, 100U);
  EXPECT_GT(still, 0U);
  EXPECT_LT(still, seeds / 3);
  EXPECT_EQ(dummies > 0, groups);
}
TEST(VllmPairDrafts, R16PlayIsThePlainStepper) { expect_the_plain_loops(false); }
TEST(VllmPairDrafts, R19GroupsAreThePlainLoopsOfAllOfThem) { expect_the_plain_loops(true); }

// Who begins anew on another replica draws as it did first.
void expect_the_failing_loops(bool groups) {
  const std::uint64_t seeds = testing::loads(400);
  std::uint64_t retried = 0, failed = 0, recomputed = 0, still = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    PairCase c = with_drafts(failing_case(seed), seed);
    if (groups) c = with_groups(std::move(c), seed, false);
    const BentStepTimes times;
    PlainPair slow = plain(c, times);
    const std::optional<PlayedPair> both = failing_like(slow, c, seed);
    if (!both) {
      ++still;
      continue;
    }
    ASSERT_FALSE(::testing::Test::HasFailure()) << seed;
    const PlayedPair& fast = *both;
    retried += fast.run.retried;
    failed += fast.run.failed_loads;
    recomputed += fast.run.recomputed;
  }
  if (testing::kSanitized) return;  // a part of the loads
  EXPECT_GT(retried, seeds);
  EXPECT_GT(failed, seeds / 8);
  EXPECT_GT(recomputed, seeds / 16);
  EXPECT_LT(still, seeds / 3);
}
TEST(VllmPairDrafts, R15FailuresAreThePlainStepper) { expect_the_failing_loops(false); }
TEST(VllmPairDrafts, R19FailuresOfGroupsAreThePlainLoops) { expect_the_failing_loops(true); }

// As Pair.R12OneRequestByHand, three drafts, all accepted: the prompt's last token is computed again in a
// step without any, which drafts the first three.
PairCase by_hand() {
  PairCase c;
  c.prefill.max_model_len = c.decode.max_model_len = 700;
  c.links = {Seconds(0.001), Seconds(1e-5)};
  c.law = draft_law(3, 1, 1);
  return c;
}
double step(std::uint32_t cached) {
  StepBatch b;
  b.decodes = 1;
  b.cached = b.longest = cached;
  return BentStepTimes().of(b).value;
}
double handed_over(std::uint32_t tokens) {
  StepBatch prompt;
  prompt.prompts.push_back({tokens, 0});
  return 0.002 + BentStepTimes().of(prompt).value + 0.002 + 0.001 + tokens * 1e-5;
}

TEST(VllmPairDrafts, R16OneRequestByHand) {
  for (const bool async : {false, true}) {
    PairCase c = by_hand();
    c.decode.async_scheduling = async;
    c.requests = {{Seconds(0), 100, 9, {}}};
    const PlayedPair a = played(c);
    ASSERT_EQ(a.answers.size(), 1U);
    const AnsweredRequest& x = a.answers.begin()->second;
    const double first = handed_over(100) + step(99);
    EXPECT_NEAR(x.first.value, first, 1e-14) << async;
    EXPECT_NEAR(x.last.value, first + step(100) + step(104), 1e-14) << async;
    std::uint64_t steps = 0;
    for (const ServedRequests& s : a.run.decode) steps += s.steps;
    EXPECT_EQ(steps, async ? 4U : 3U) << "working ahead there is one in vain";
    EXPECT_EQ(a.run.prefill.front().steps, 1U) << "one token of answer verifies none";
  }
}

// Two caches of 23 blocks fill all 46, and the first step of either needs one more for its drafts: none of
// them ever begins, as in the engine (vllm-project/vllm#57104, a later one keeps some back). Without drafts
// both do.
TEST(VllmPairDrafts, R16CachesThatLeaveNoRoomForDraftsStandStill) {
  for (const bool drafts : {false, true}) {
    PairCase c = by_hand();
    if (!drafts) c.law.reset();
    c.decode.num_gpu_blocks = 46;
    c.requests = {{Seconds(0), 366, 2, {}}, {Seconds(0.0001), 366, 2, {}}};
    // Both are read before either has begun.
    c.links.token = Seconds(1e-3);
    c.senders = 2;
    if (drafts)
      EXPECT_THROW(played(c), PairStops);
    else
      EXPECT_EQ(played(c).answers.size(), 2U);
  }
}

// A prompt that stays, in parts, beside a cache of 23 blocks that is read, of 46: its last part would need a
// 24th for its drafts, so that it loses all, and begins again, for ever once nobody reads any more.
TEST(VllmPairDrafts, R16PartsThatAreComputedForEverAreSaid) {
  PairCase c = by_hand();
  c.decode.num_gpu_blocks = 46;
  c.decode.max_num_batched_tokens = 64;
  c.decode.max_num_seqs = 1;
  c.decode.enable_prefix_caching = false;  // else all but a little is found again
  c.max_local_prefill = 367;
  c.links.token = Seconds(1e-2);
  c.requests = {{Seconds(0), 368, 2, {}}, {Seconds(1), 367, 2, {}}};
  try {
    played(c);
    ADD_FAILURE() << "expected to be said";
  } catch (const PairStops& e) {
    EXPECT_NE(std::string(e.what()).find("again and again"), std::string::npos) << e.what();
  }
}

// The same without drafts, of a prompt that begins with room for a part of it.
TEST(VllmPairDrafts, R12PartsOfWhatNeverFitsAreSaid) {
  PairCase c = by_hand();
  c.law.reset();
  c.decode.num_gpu_blocks = 46;
  c.decode.max_num_batched_tokens = 64;
  c.decode.max_num_seqs = 1;
  c.decode.enable_prefix_caching = false;
  c.decode.scheduler_reserve_full_isl = false;
  c.max_local_prefill = 300;
  c.links.token = Seconds(1e-2);
  c.requests = {{Seconds(0), 600, 2, {}}, {Seconds(1), 300, 2, {}}};
  try {
    played(c);
    ADD_FAILURE() << "expected to be said";
  } catch (const PairStops& e) {
    EXPECT_NE(std::string(e.what()).find("again and again"), std::string::npos) << e.what();
  }
}

// A prompt that is found here, all but its last block, which a module needs the hidden states of: so much
// less is read.
TEST(VllmPairDrafts, R16OneBlockLessIsFound) {
  for (const bool drafts : {false, true}) {
    PairCase c = by_hand();
    if (!drafts) c.law.reset();
    c.requests = {{Seconds(0), 512, 2, {7}}, {Seconds(1), 512, 2, {7}}};
    const PlayedPair a = played(c);
    EXPECT_EQ(a.run.tokens_read, 512U + (drafts ? 32U : 16U));
    EXPECT_EQ(a.answers.rbegin()->second.found, drafts ? 480U : 496U);
  }
}

}  // namespace
}  // namespace shardline
