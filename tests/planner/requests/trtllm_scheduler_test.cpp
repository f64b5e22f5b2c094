// Schedules of hand-made requests, each step derived from TensorRT-LLM's source (see trtllm_scheduler.hpp).
#include "planner/requests/trtllm_scheduler.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "tests/planner/requests/schedule_text.hpp"

namespace shardline {
namespace {

TrtllmKnobs small(std::uint32_t blocks) {
  TrtllmKnobs k;
  k.disable_overlap_scheduler = true;
  k.tokens_per_block = 4;
  k.max_seq_len = 16;
  k.blocks = blocks;
  return k;
}

// 13 tokens are 4 of 6 blocks; 9 are 3, which do not fit beside them however few are in use, and nobody
// behind is tried.
TEST(TrtllmScheduler, R9NobodyIsEverEvicted) {
  TrtllmScheduler s(small(6));
  s.add(asks(7, 6));
  s.add(asks(7, 2));
  s.add(asks(3, 1));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 7+0", "1 decode (7)", "1 decode (8)", "1 decode (9)",
                                "1 decode (10)", "1 decode (11)", "0 decode (0), 7+0 3+0", "1 decode (7)"}));
  EXPECT_EQ(s.pool().available(), 6U);
}

// Parts are whole blocks but for the last: 8 of 14 tokens where 10 fit; then the last 6 and 4 of the next
// one; its last 3 beside the first's token.
TEST(TrtllmScheduler, R9PartsInOrder) {
  TrtllmKnobs k = small(64);
  k.max_seq_len = 32;
  k.enable_chunked_prefill = true;
  k.max_num_tokens = 10;
  TrtllmScheduler s(k);
  s.add(asks(14, 3));
  s.add(asks(7, 2));
  EXPECT_EQ(steps_of(s),
            (Steps{"0 decode (0), 8+0", "0 decode (0), 6+8 4+0", "1 decode (14), 3+4", "2 decode (22)"}));
}

// A block of each in turn: 4 and 4 of 10; 4 and the last 3; the last 6 beside a token.
TEST(TrtllmScheduler, R9EqualProgress) {
  TrtllmKnobs k = small(64);
  k.max_seq_len = 32;
  k.enable_chunked_prefill = true;
  k.context_chunking_policy = TrtllmChunking::equal_progress;
  k.max_num_tokens = 10;
  TrtllmScheduler s(k);
  s.add(asks(14, 3));
  s.add(asks(7, 2));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 4+0 4+0", "0 decode (0), 4+4 3+4", "1 decode (7), 6+8",
                                "1 decode (14)", "1 decode (15)"}));
}

// Whole prompts, in order: the second exceeds what is left, and the third is not tried. A prompt above
// max_num_tokens is refused.
TEST(TrtllmScheduler, R9WholePrompts) {
  TrtllmKnobs k = small(64);
  k.max_num_tokens = 10;
  TrtllmScheduler s(k);
  s.add(asks(7, 2));
  s.add(asks(7, 1));
  s.add(asks(2, 1));
  EXPECT_FALSE(s.add(asks(11, 1)));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 7+0", "1 decode (7), 7+0 2+0"}));
}

// 4 blocks, both prompts take 2. The first needs one for its 9th token: the second is paused; its first block
// is still found when it begins anew with the 9 tokens that it has, once the first is done: 3 blocks do not
// fit before.
TEST(TrtllmScheduler, R9TheLastIsPaused) {
  TrtllmKnobs k = small(4);
  k.capacity_scheduler_policy = TrtllmPolicy::max_utilization;
  for (const bool reuse : {true, false}) {
    k.enable_block_reuse = reuse;
    TrtllmScheduler s(k);
    s.add(asks(7, 4));
    s.add(asks(7, 4));
    EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 7+0 7+0", "2 decode (14)", "1 decode (8)", "1 decode (9)",
                                  reuse ? "0 decode (0), 5+4" : "0 decode (0), 9+0", "1 decode (9)"}));
    EXPECT_EQ(s.preemptions(), 1U);
    EXPECT_EQ(s.pool().available(), 4U);
  }
  // Under the other policy, one after the other.
  k.capacity_scheduler_policy = TrtllmPolicy::guaranteed_no_evict;
  TrtllmScheduler s(k);
  s.add(asks(7, 4));
  s.add(asks(7, 4));
  EXPECT_EQ(steps_of(s).size(), 8U);
  EXPECT_EQ(s.preemptions(), 0U);
}

// Five blocks. With the overlap scheduler the second is paused while its second token is under way, with 8
// that are known: of these 7 count as computed (releaseBlocks: "Only (length - 1) tokens of the sequence have
// their kv-state recorded"), so that one block of them is found, not two.
TEST(TrtllmScheduler, R9OfWhoIsPausedAllButTheLastTokenIsFound) {
  TrtllmKnobs k = small(5);
  k.disable_overlap_scheduler = false;
  k.capacity_scheduler_policy = TrtllmPolicy::max_utilization;
  TrtllmScheduler s(k);
  s.add(asks(7, 4));
  s.add(asks(7, 4));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 7+0 7+0", "2 decode (14)", "1 decode (8)", "1 decode (9)",
                                "0 decode (0), 5+4", "1 decode (9)"}));
}

// With the overlap scheduler the second is paused while its only step is under way, for a block that it
// needs beside the first. It begins anew when that one is done, and finds the first block of its text. What
// it computed can be found from the end of its prompt on: then the third needs one block, which there is,
// beside the two that it shares.
TEST(TrtllmScheduler, R9WhoIsPausedDuringAStepStoresItsNextPrompt) {
  TrtllmKnobs k = small(4);
  k.disable_overlap_scheduler = false;
  k.capacity_scheduler_policy = TrtllmPolicy::max_utilization;
  TrtllmScheduler s(k);
  s.add(asks(7, 4), 4);
  s.add(asks(8, 6, {1, 2}), 4);
  s.add(asks(9, 1, {1, 2, 3}), 4);
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 7+0 8+0", "1 decode (7)", "1 decode (8)", "1 decode (9)",
                                "0 decode (0), 5+4", "1 decode (9)", "1 decode (10), 1+8", "1 decode (11)",
                                "1 decode (12)"}));
}

// Prompts that begin as one that is about to be computed wait for it, and find all but the block of their
// last token.
TEST(TrtllmScheduler, R9EqualPromptsWaitForTheFirst) {
  TrtllmScheduler s(small(64));
  s.add(asks(12, 1, {1, 2, 3}), 4);
  s.add(asks(12, 1, {1, 2, 3}), 4);
  s.add(asks(12, 1, {1, 5, 3}), 4);
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 12+0", "0 decode (0), 4+8 8+4"}));
}

// What is found takes none of a step's tokens: 12 + 4 + 8 of 12.
TEST(TrtllmScheduler, R9FoundTokensTakeNoRoomInAStep) {
  TrtllmKnobs k = small(64);
  k.max_num_tokens = 12;
  TrtllmScheduler s(k);
  s.add(asks(12, 1, {1, 2, 3}), 4);
  steps_of(s);
  s.add(asks(12, 1, {1, 2, 3}), 4);
  s.add(asks(12, 1, {1, 5, 3}), 4);
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 4+8 8+4"}));
}

// Prompts wait two steps for more of them, but only beside requests that decode.
TEST(TrtllmScheduler, R9PromptsWaitForMore) {
  TrtllmKnobs k = small(64);
  k.max_num_tokens = 100;
  k.batch_wait_timeout_iters = 2;
  k.batch_wait_max_tokens_ratio = 1;
  TrtllmScheduler s(k);
  s.add(asks(8, 6));
  EXPECT_EQ(steps_of(s, 1), (Steps{"0 decode (0), 8+0"}));
  s.add(asks(8, 1));
  EXPECT_EQ(steps_of(s, 3), (Steps{"1 decode (8)", "1 decode (9)", "1 decode (10), 8+0"}));
}

// Nobody begins while any decodes.
TEST(TrtllmScheduler, R9StaticBatches) {
  TrtllmKnobs k = small(64);
  k.capacity_scheduler_policy = TrtllmPolicy::static_batch;
  k.max_batch_size = 2;
  TrtllmScheduler s(k);
  s.add(asks(4, 3));
  s.add(asks(4, 1));
  s.add(asks(4, 2));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 4+0 4+0", "1 decode (4)", "1 decode (5)", "0 decode (0), 4+0",
                                "1 decode (4)"}));
}

// With overlap nothing is computed in vain, but the place of a request is free two steps after its last
// token was decided.
TEST(TrtllmScheduler, R9PlacesUnderOverlap) {
  TrtllmKnobs k = small(64);
  k.disable_overlap_scheduler = false;
  k.max_batch_size = 1;
  TrtllmScheduler s(k);
  s.add(asks(4, 2));
  s.add(asks(5, 1));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 4+0", "1 decode (4)", "0 decode (0), 5+0"}));
}

// Both the first and the third compute a block of one text, as the third begins while the first's step is
// under way: the first's is found, and the third's next one behind it. When the first and the second are done
// 7 of 11 blocks are free, the one that is found the third of them, and the third has all 4 of its own. Of
// the last one's 4 blocks 3 are counted, as one is held; but the fourth's prompt, of 4, takes the one before
// that, so that nothing is found.
TEST(TrtllmScheduler, R9TheEngineEndsWhereTextThatWasCountedIsLost) {
  for (const bool fits : {true, false}) {
    TrtllmKnobs k = small(fits ? 12 : 11);
    k.disable_overlap_scheduler = false;
    TrtllmScheduler s(k);
    s.add(asks(5, 1, {1, 2}), 4);
    s.add(asks(13, 3), 4);
    s.add(asks(9, 7, {1, 2, 3}), 4);
    EXPECT_EQ(steps_of(s, 5), (Steps{"0 decode (0), 5+0 13+0", "1 decode (13), 9+0", "2 decode (23)",
                                     "1 decode (10)", "1 decode (11)"}));
    EXPECT_EQ(s.pool().available(), fits ? 8U : 7U);
    s.add(asks(13, 1), 4);
    s.add(asks(13, 1, {1, 2, 7, 8}), 4);
    if (fits)
      EXPECT_EQ(steps_of(s).size(), 3U);
    else
      EXPECT_THROW(steps_of(s), EngineStops);
  }
}

TEST(TrtllmScheduler, WhatCannotBeServedIsRefused) {
  EXPECT_THROW(TrtllmScheduler{small(3)}, UserError);  // 16 tokens are 4 blocks
  TrtllmScheduler s(small(4));
  EXPECT_FALSE(s.add(asks(16, 1)));
  ASSERT_TRUE(s.add(asks(14, 100)));  // cut to 2 tokens
  EXPECT_EQ(steps_of(s).size(), 2U);
  TrtllmKnobs k = small(4);
  k.enable_chunked_prefill = true;
  k.max_num_tokens = 3;
  EXPECT_THROW(TrtllmScheduler{k}, UserError);
}

}  // namespace
}  // namespace shardline
