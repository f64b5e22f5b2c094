// TensorRT-LLM's servers of models whose layers keep states [R23].
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/requests/trtllm_scheduler.hpp"
#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "tests/planner/requests/plain_trtllm_drafts.hpp"
#include "tests/planner/requests/random_play.hpp"
#include "tests/planner/requests/schedule_text.hpp"
#include "tests/support/loads.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TrtllmKnobs small(std::uint32_t slots) {
  TrtllmKnobs k;
  k.disable_overlap_scheduler = true;
  k.enable_block_reuse = false;
  k.tokens_per_block = 4;
  k.max_seq_len = 16;
  k.blocks = 64;
  k.state_slots = slots;
  return k;
}

// Three slots, one of which pads CUDA graphs: the third waits until the first is done, for all its blocks are
// free, and nobody goes past it, as the first that does not fit ends the search.
TEST(TrtllmStates, R23WhoBeginsNeedsASlot) {
  TrtllmScheduler s(small(3));
  s.add(asks(7, 2));
  s.add(asks(7, 4));
  s.add(asks(5, 2));
  s.add(asks(3, 1));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 7+0 7+0", "2 decode (14)", "1 decode (8), 5+0",
                                "2 decode (14)", "0 decode (0), 3+0"}));
}

// A prompt in parts has its slot from the first part on, and none is asked for the second: 4 of 7 tokens, and
// the other begins only when the first, of one token, has left.
TEST(TrtllmStates, R23PartsOfAPromptHaveOneSlot) {
  TrtllmKnobs k = small(2);
  k.enable_chunked_prefill = true;
  k.max_num_tokens = 4;
  TrtllmScheduler s(k);
  s.add(asks(7, 1));
  s.add(asks(2, 1));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 4+0", "0 decode (0), 3+4", "0 decode (0), 2+0"}));
}

// With the overlap scheduler a slot is free when the step with the last token has ended: the second begins in
// the step that is decided behind it.
TEST(TrtllmStates, R23SlotsAreFreeAtTheEndOfTheLastStep) {
  TrtllmKnobs k = small(2);
  k.disable_overlap_scheduler = false;
  TrtllmScheduler s(k);
  s.add(asks(4, 2));
  s.add(asks(5, 1));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 4+0", "1 decode (4)", "0 decode (0), 5+0"}));
}

TEST(TrtllmStates, R23WhatIsNotPlayedIsRefused) {
  TrtllmKnobs k = small(9);
  k.enable_block_reuse = true;
  EXPECT_THAT([&] { TrtllmScheduler{k}; },
              ThrowsMessage<UserError>(HasSubstr("saves one of each mamba_state_cache_interval tokens")));
  k.enable_block_reuse = false;
  k.capacity_scheduler_policy = TrtllmPolicy::max_utilization;
  EXPECT_THAT([&] { TrtllmScheduler{k}; },
              ThrowsMessage<UserError>(HasSubstr("counts slots of them by the tokens of prompts")));
  k.state_slots = 0;
  EXPECT_NO_THROW(TrtllmScheduler{k});
}

TrtllmKnobs random_knobs(RandomStream& random) {
  TrtllmKnobs k;
  if (random.below(5) == 0) k.capacity_scheduler_policy = TrtllmPolicy::static_batch;
  if (random.below(3) == 0) k.context_chunking_policy = TrtllmChunking::equal_progress;
  k.disable_overlap_scheduler = random.below(3) == 0;
  k.enable_chunked_prefill = random.below(3) > 0;
  k.enable_block_reuse = false;
  k.max_batch_size = 1U << random.below(6);
  k.max_num_tokens = k.enable_chunked_prefill ? 64U << random.below(6) : 2048U << random.below(2);
  k.batch_wait_timeout_iters = random.below(3) == 0 ? 5 : 0;
  k.batch_wait_max_tokens_ratio = random.below(2) == 0 ? 0.5 : 0;
  k.tokens_per_block = 4U << random.below(5);
  k.max_seq_len = 2048;
  const std::uint32_t longest = k.max_seq_len / k.tokens_per_block;
  k.blocks = longest + static_cast<std::uint32_t>(random.below(8 * longest));
  return k;
}

// As many slots as the engine has are never too few; of fewer, as it never has, all are counted as the engine
// counts them. SHARDLINE_WHOLE=1 plays 4,000 loads.
TEST(TrtllmStates, R23EqualTheExecutorsLoopWithBothWindows) {
  const BentStepTimes times;
  const std::uint64_t seeds = testing::loads(400);
  std::uint64_t fewer = 0, differ = 0, steps = 0;
  for (std::uint64_t seed = 0; seed < seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "states of trtllm");
    TrtllmKnobs knobs = random_knobs(random);
    const auto requests = random_requests(random, 1900);
    const bool all = random.below(2) == 0;
    knobs.state_slots = all ? knobs.max_batch_size + 1 : 2 + static_cast<std::uint32_t>(random.below(4));
    TrtllmScheduler fast(knobs);
    PlainTrtllmDrafts plain(knobs, {});
    const Played a = play(requests, fast, times, random.below(2) == 0),
                 b = play(requests, plain, times, false);
    expect_same(a, b);
    EXPECT_EQ(fast.pool().available(), knobs.blocks);
    EXPECT_EQ(plain.pool().available(), knobs.blocks);
    EXPECT_EQ(plain.states().available(), knobs.state_slots - 1) << "the one of padding stays";
    knobs.state_slots = 0;
    TrtllmScheduler without(knobs);
    const Played c = play(requests, without, times, true);
    if (all) expect_same(a, c);
    fewer += all ? 0 : 1;
    differ += a.served.end == c.served.end ? 0 : 1;
    steps += a.served.steps;
  }
  if (testing::kSanitized) return;  // a part of the loads
  EXPECT_GT(fewer, seeds / 3);
  EXPECT_GT(differ, seeds / 10) << "slots decide who begins";
  EXPECT_GT(steps, 100 * seeds);
}

}  // namespace
}  // namespace shardline
