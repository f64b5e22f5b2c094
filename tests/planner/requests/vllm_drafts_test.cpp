// vLLM's scheduler with drafts [R16]: schedules by hand, and the engine's own loops on random loads.
#include "planner/requests/vllm_drafts.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/random.hpp"
#include "tests/planner/requests/draft_laws.hpp"
#include "tests/planner/requests/plain_drafts.hpp"
#include "tests/planner/requests/random_play.hpp"
#include "tests/planner/requests/random_vllm.hpp"
#include "tests/planner/requests/schedule_text.hpp"

namespace shardline {
namespace {

// Of each k tokens of a step P(A > j) is what the law says, to five standard errors of 200,000 draws; and
// fewer drafts of a step are the first of all.
TEST(DraftLaw, R16TokensHaveTheLawOfAcceptedDrafts) {
  constexpr std::uint32_t kDraws = 200'000;
  for (const int k : {1, 3, 7}) {
    const DraftLaw drafts = draft_law(k, 0.8, 0.9);
    const std::vector<double> want = survival_of(0.8, 0.9, k);
    std::vector<std::uint32_t> more(static_cast<std::size_t>(k));
    for (std::uint32_t n = 0; n < kDraws; ++n) {
      const std::uint32_t a = drafts.tokens(7, n, static_cast<std::uint32_t>(k));
      for (std::uint32_t j = 1; j < a; ++j) ++more[j - 1];
      ASSERT_EQ(drafts.tokens(7, n, 1), std::min(a, 2U));
    }
    for (std::size_t j = 0; j < want.size(); ++j)
      EXPECT_NEAR(more[j] / double{kDraws}, want[j], 5 * std::sqrt(want[j] * (1 - want[j]) / kDraws));
  }
}

// Of another request or seed other tokens come; of the same the same, whoever asks.
TEST(DraftLaw, R16EachRequestHasAStreamOfItsOwn) {
  int alike = 0, same_seed = 0;
  for (std::uint32_t n = 0; n < 1000; ++n) {
    EXPECT_EQ(draft_law(3, 0.7, 0.9).tokens(5, n, 3), draft_law(3, 0.7, 0.9).tokens(5, n, 3));
    alike += draft_law(3, 0.7, 0.9).tokens(5, n, 3) == draft_law(3, 0.7, 0.9).tokens(6, n, 3) ? 1 : 0;
    same_seed += draft_law(3, 0.7, 0.9).tokens(5, n, 3) == draft_law(3, 0.7, 0.9, 2).tokens(5, n, 3) ? 1 : 0;
  }
  EXPECT_LT(alike, 500);
  EXPECT_LT(same_seed, 500);
  EXPECT_EQ(DraftLaw().drafts(), 0U);
  EXPECT_EQ(DraftLaw().tokens(1, 1, 0), 1U);
}

// All three drafts of each step are accepted: a prompt of 6 tokens yields one, then come 4, 4 and the last 2
// of 11. Each step finds what those before computed: 6, 10 and 14 tokens.
TEST(VllmDrafts, R16WithAllAcceptedEachStepYieldsOneAndAllDrafts) {
  VllmDraftScheduler s(
      {.async_scheduling = false, .block_size = 4, .max_model_len = 64, .num_gpu_blocks = 64},
      draft_law(3, 1, 1));
  s.add(asks(6, 11));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 6+0", "1 decode (6)", "1 decode (10)", "1 decode (14)"}));
  EXPECT_EQ(s.pool().available(), 64U);
}

// With async scheduling the step after the one that ends an answer is decided before: a row in vain, unless
// one token was lacking. Of 10 tokens 1, 4, 4 are known when the last step begins, which is the only one
// then.
TEST(VllmDrafts, R16AsyncSchedulingComputesARowInVain) {
  const VllmKnobs knobs{.block_size = 4, .max_model_len = 64, .num_gpu_blocks = 64};
  VllmDraftScheduler s(knobs, draft_law(3, 1, 1));
  s.add(asks(6, 9));  // 1, 4, 4, and four more that nobody wants
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 6+0", "1 decode (6)", "1 decode (10)", "1 decode (14)"}));
  VllmDraftScheduler t(knobs, draft_law(3, 1, 1));
  t.add(asks(6, 10));  // 1, 4, 4, and one of four
  EXPECT_EQ(steps_of(t), (Steps{"0 decode (0), 6+0", "1 decode (6)", "1 decode (10)", "1 decode (14)"}));
}

// A budget of 10 tokens is two requests with four rows each and two of the third's; it verifies one draft.
// The prompts of 2 tokens each are computed together before.
TEST(VllmDrafts, R16TheBudgetCountsAllRows) {
  VllmDraftScheduler s({.async_scheduling = false,
                        .max_num_batched_tokens = 10,
                        .block_size = 4,
                        .max_model_len = 64,
                        .num_gpu_blocks = 64},
                       draft_law(3, 1, 1));
  for (int i = 0; i < 3; ++i) s.add(asks(2, 9));
  // Two have 1 + 4 + 4 tokens then; the third has 1 + 2 + 2, and 4 more in a step of its own.
  EXPECT_EQ(steps_of(s),
            (Steps{"0 decode (0), 2+0 2+0 2+0", "3 decode (6)", "3 decode (16)", "1 decode (6)"}));
}

// Blocks of 4 tokens; a prompt of 5 takes two. Its first step that decodes computes rows 5 to 8 and has room
// for three more: 12 tokens, three blocks. All are rejected, so that it knows 7 tokens: the next step's 6 to
// 9 and three more are 13, a fourth block; those of rejected drafts stay.
TEST(VllmDrafts, R16BlocksHaveRoomForDraftsToCome) {
  VllmDraftScheduler s({.async_scheduling = false,
                        .enable_prefix_caching = false,
                        .block_size = 4,
                        .max_model_len = 64,
                        .num_gpu_blocks = 16},
                       draft_law(3, 1e-300, 1));
  s.add(asks(5, 8));
  std::vector<std::uint32_t> held;
  while (s.schedule()) {
    held.push_back(16 - s.pool().available());
    s.finish_steps();
  }
  EXPECT_EQ(held, (std::vector<std::uint32_t>{2, 3, 4, 4, 4, 4, 5, 5}));
}

// Of a text of 12 tokens in blocks of 4 two full blocks could be found, all but the last token; the module
// needs the second one's hidden states, so that one is.
TEST(VllmDrafts, R16ABlockLessIsFound) {
  VllmDraftScheduler s(
      {.async_scheduling = false, .block_size = 4, .max_model_len = 32, .num_gpu_blocks = 64},
      draft_law(1, 0.5, 1));
  s.add(asks(12, 1, {1, 2, 3}), 4);
  s.add(asks(12, 1, {1, 2, 3}), 4);
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 12+0 8+4"}));
}

VllmKnobs draft_knobs(RandomStream& random) {
  VllmKnobs k = random_vllm(random);
  if (random.below(8) == 0) k.long_prefill_token_threshold = 3;
  if (random.below(3) > 0) return k;
  k.num_gpu_blocks -= (k.max_model_len - 320) / k.block_size;
  k.max_model_len = 320;
  return k;
}

// In which step each request is done, what was held over time, and all gaps between chunks.
TEST(VllmDrafts, R16EqualTheEnginesOwnLoops) {
  std::uint64_t preemptions = 0, found = 0, tokens = 0;
  const BentStepTimes times;
  for (std::uint64_t seed = 0; seed < 400 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "drafts");
    const VllmKnobs knobs = draft_knobs(random);
    const auto requests = bursts_of_texts(random);
    const DraftLaw drafts = random_law(random);
    VllmDraftScheduler fast(knobs, drafts);
    PlainVllmDrafts plain(knobs, drafts);
    const Played a = play(requests, fast, times, random.below(2) == 0),
                 b = play(requests, plain, times, false);
    expect_equal(a, b);
    EXPECT_EQ(a.served.most_held, b.served.most_held);
    EXPECT_EQ(fast.pool().available(), knobs.num_gpu_blocks);
    EXPECT_EQ(fast.pool().filled(), plain.pool().filled());
    preemptions += b.served.preemptions;
    found += b.served.found_tokens;
    tokens += b.served.answer_tokens;
  }
  EXPECT_GT(preemptions, 1000U);
  EXPECT_GT(found, 100'000U);
  EXPECT_GT(tokens, 900'000U);
}

// Step by step, what each computes; requests come between.
TEST(VllmDrafts, R16EachStepIsTheSame) {
  for (std::uint64_t seed = 0; seed < 200 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "each step with drafts");
    const VllmKnobs knobs = draft_knobs(random);
    const DraftLaw drafts = random_law(random);
    VllmDraftScheduler fast(knobs, drafts);
    PlainVllmDrafts plain(knobs, drafts);
    for (const TraceRequest& r : bursts_of_texts(random)) {
      ASSERT_EQ(fast.add(r), plain.add(r));
      const auto steps = static_cast<int>(random.below(random.below(3) == 0 ? 60 : 3));
      ASSERT_EQ(steps_of(fast, steps), steps_of(plain, steps));
      ASSERT_EQ(fast.pool().available(), plain.pool().available());
      ASSERT_EQ(fast.running(), plain.running());
      ASSERT_EQ(fast.waiting(), plain.waiting());
    }
    ASSERT_EQ(steps_of(fast, 100'000), steps_of(plain, 100'000));
    EXPECT_EQ(fast.preemptions(), plain.preemptions());
  }
}

}  // namespace
}  // namespace shardline
