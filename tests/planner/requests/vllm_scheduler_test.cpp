// Schedules of hand-made requests, each step derived from vLLM's source (see vllm_scheduler.hpp).
#include "planner/requests/vllm_scheduler.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "tests/planner/requests/schedule_text.hpp"

namespace shardline {
namespace {

// A budget of 10 tokens: a prompt of 14 takes 10; then its last 4, and 6 of the next one's 7; then one
// token of the first beside the last of the second; both decode; the second, with two tokens, is done first.
TEST(VllmScheduler, R4PromptsInPartsRideOnDecodingSteps) {
  VllmScheduler s({.async_scheduling = false,
                   .max_num_batched_tokens = 10,
                   .block_size = 4,
                   .max_model_len = 32,
                   .num_gpu_blocks = 64});
  s.add(asks(14, 4));
  s.add(asks(7, 2));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 10+0", "0 decode (0), 4+10 6+0", "1 decode (14), 1+6",
                                "2 decode (22)", "1 decode (16)"}));
  EXPECT_EQ(s.pool().available(), 64U);
}

// Requests that run come before those that wait, which begin in order while there are places.
TEST(VllmScheduler, R4PlacesAreLimited) {
  VllmScheduler s({.async_scheduling = false,
                   .max_num_seqs = 2,
                   .block_size = 4,
                   .max_model_len = 32,
                   .num_gpu_blocks = 64});
  for (int i = 0; i < 3; ++i) s.add(asks(4, i == 0 ? 2 : 3));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 4+0 4+0", "2 decode (8)", "1 decode (5), 4+0", "1 decode (4)",
                                "1 decode (5)"}));
}

// A part of a long prompt is at most the threshold, so that another prompt begins beside it.
TEST(VllmScheduler, R4LongPromptsLeaveRoom) {
  VllmScheduler s({.async_scheduling = false,
                   .max_num_batched_tokens = 16,
                   .long_prefill_token_threshold = 6,
                   .block_size = 4,
                   .max_model_len = 32,
                   .num_gpu_blocks = 64});
  s.add(asks(14, 1));
  s.add(asks(5, 1));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 6+0 5+0", "0 decode (0), 6+6", "0 decode (0), 2+12"}));
}

// Without chunks the first prompt that exceeds what is left of the budget ends the step, and those behind
// wait.
TEST(VllmScheduler, R4WholePromptsInOrder) {
  VllmScheduler s({.async_scheduling = false,
                   .max_num_batched_tokens = 16,
                   .enable_chunked_prefill = false,
                   .block_size = 4,
                   .max_model_len = 16,
                   .num_gpu_blocks = 64});
  s.add(asks(10, 1));
  s.add(asks(8, 1));
  s.add(asks(2, 1));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 10+0", "0 decode (0), 8+0 2+0"}));
}

// A prompt longer than a step, without chunks, would wait for ever: such a server does not start.
TEST(VllmScheduler, R4WholePromptsFitAStep) {
  VllmKnobs knobs{.max_num_batched_tokens = 16, .enable_chunked_prefill = false, .max_model_len = 17};
  try {
    const VllmScheduler s(knobs);
    FAIL() << "it starts";
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(),
                 "without chunked prefill max_num_batched_tokens 16 must be at least max_model_len 17\n");
  }
  knobs.enable_chunked_prefill = true;
  EXPECT_NO_THROW(VllmScheduler{knobs});
}

// 4 blocks of 4 tokens. Both prompts of 7 take 2 each, full with their 8th token. In the step that computes
// token 9 the first needs a block: the second loses its two, the first takes one, and nobody begins in that
// step. Two of its blocks were free then; the second comes back as 8 or more tokens need 3 with the 9th
// known: it must wait until the first, at its 11 tokens, is done. Its first block (4 tokens) is still found.
TEST(VllmScheduler, R4TheLastLosesItsBlocksAndIsComputedAnew) {
  VllmScheduler s(
      {.enable_prefix_caching = false, .block_size = 4, .max_model_len = 16, .num_gpu_blocks = 4});
  s.add(asks(7, 4));
  s.add(asks(7, 4));
  // 7 + 7; 8th tokens; 9th of the first only, whose answer has 3 of 4 tokens now; its last; the other's 9
  // tokens anew, which are 3 blocks; its last token.
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 7+0 7+0", "2 decode (14)", "1 decode (8)", "1 decode (9)",
                                "0 decode (0), 9+0", "1 decode (9)"}));
  EXPECT_EQ(s.preemptions(), 1U);
}

// With prefixes its two full blocks went to the end of the queue; the first took one from the front, which is
// the second's second block: one is found.
TEST(VllmScheduler, R4WhatIsLeftOfAPreemptedRequestIsFound) {
  VllmScheduler s({.async_scheduling = false, .block_size = 4, .max_model_len = 16, .num_gpu_blocks = 4});
  s.add(asks(7, 4));
  s.add(asks(7, 4));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 7+0 7+0", "2 decode (14)", "1 decode (8)", "1 decode (9)",
                                "0 decode (0), 5+4", "1 decode (9)"}));
}

// 12 tokens of 3 blocks of text are found but for the last block, of which a token must be computed.
TEST(VllmScheduler, R4ThePrefixOfATextIsFound) {
  VllmScheduler s({.async_scheduling = false, .block_size = 4, .max_model_len = 32, .num_gpu_blocks = 64});
  s.add(asks(12, 1, {1, 2, 3}), 4);
  s.add(asks(12, 1, {1, 2, 3}), 4);
  s.add(asks(12, 1, {1, 5, 3}), 4);
  // Blocks are full when the step is decided: those who come in the same step find them.
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 12+0 4+8 8+4"}));
}

// A prompt of 3 blocks where 2 are free: admitted by its first part only if the whole need not fit.
TEST(VllmScheduler, R4TheWholePromptMustFit) {
  for (const bool whole : {true, false}) {
    SCOPED_TRACE(whole);
    VllmScheduler s({.async_scheduling = false,
                     .max_num_batched_tokens = 8,
                     .scheduler_reserve_full_isl = whole,
                     .block_size = 4,
                     .max_model_len = 16,
                     .num_gpu_blocks = 4});
    s.add(asks(5, 2));
    s.add(asks(11, 1));
    ASSERT_TRUE(s.schedule());
    EXPECT_EQ(text_of(s.front()), whole ? "0 decode (0), 5+0" : "0 decode (0), 5+0 3+0");
  }
}

TEST(VllmScheduler, R4AWatermarkIsKeptWhileOthersRun) {
  VllmScheduler s({.async_scheduling = false,
                   .watermark = 0.5,
                   .block_size = 4,
                   .max_model_len = 16,
                   .num_gpu_blocks = 4});
  s.add(asks(12, 2));  // 3 of 4: nobody runs
  s.add(asks(3, 1));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 12+0", "1 decode (12)", "0 decode (0), 3+0"}));
}

// A place for one: the second begins a step after the first's last, which was decided before that one ended;
// in between the engine has nothing to do. A decoding step is decided before the token that it computes is
// known.
TEST(VllmScheduler, R4StepsAreDecidedBeforeTheOneBeforeHasEnded) {
  VllmScheduler s({.max_num_seqs = 1, .block_size = 4, .max_model_len = 32, .num_gpu_blocks = 64});
  s.add(asks(4, 3));
  s.add(asks(5, 1));
  ASSERT_TRUE(s.schedule());
  ASSERT_TRUE(s.schedule());  // its second token
  EXPECT_EQ(text_of(s.front()), "0 decode (0), 4+0");
  s.finish_steps();
  ASSERT_TRUE(s.schedule());  // its third
  EXPECT_EQ(text_of(s.front()), "1 decode (4)");
  s.finish_steps();
  EXPECT_FALSE(s.schedule());  // nothing of the first is left to decide, and it has the place
  EXPECT_EQ(text_of(s.front()), "1 decode (5)");
  s.finish_steps();
  ASSERT_TRUE(s.schedule());
  EXPECT_EQ(text_of(s.front()), "0 decode (0), 5+0");
}

// As R4TheLastLosesItsBlocksAndIsComputedAnew: the second loses its blocks when step 3 is decided, as step 2
// with its second token is still in flight. That token is kept: 9 tokens are computed anew.
TEST(VllmScheduler, R4ATokenInFlightSurvivesTheLossOfBlocks) {
  VllmScheduler s(
      {.enable_prefix_caching = false, .block_size = 4, .max_model_len = 16, .num_gpu_blocks = 4});
  s.add(asks(7, 4));
  s.add(asks(7, 4));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 7+0 7+0", "2 decode (14)", "1 decode (8)", "1 decode (9)",
                                "0 decode (0), 9+0", "1 decode (9)"}));
  EXPECT_EQ(s.preemptions(), 1U);
}

TEST(VllmScheduler, WhatCannotBeServedIsRefused) {
  EXPECT_THROW(
      VllmScheduler({.async_scheduling = false, .block_size = 4, .max_model_len = 17, .num_gpu_blocks = 4}),
      UserError);
  VllmScheduler s({.async_scheduling = false, .block_size = 4, .max_model_len = 16, .num_gpu_blocks = 4});
  EXPECT_FALSE(s.add(asks(16, 1)));
  ASSERT_TRUE(s.add(asks(14, 100)));  // cut to 2 tokens
  EXPECT_EQ(steps_of(s).size(), 2U);
}

}  // namespace
}  // namespace shardline
