// vLLM's scheduler in runs of blocks and with requests that are counted together, against the plain one.
#include "tests/planner/requests/blockwise_vllm.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "planner/requests/vllm_scheduler.hpp"
#include "sim/base/random.hpp"
#include "tests/planner/requests/random_play.hpp"
#include "tests/planner/requests/random_vllm.hpp"
#include "tests/planner/requests/schedule_text.hpp"
#include "tests/planner/requests/traces.hpp"

namespace shardline {
namespace {

struct Totals {
  std::uint64_t preemptions = 0, found = 0, steps = 0, events = 0;
};

TEST(BlockwiseVllm, R4RunsOfBlocksAreBlocks) {
  Totals all;
  const BentStepTimes times;
  for (std::uint64_t seed = 0; seed < 500 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "blockwise");
    const VllmKnobs knobs = random_vllm(random);
    const auto requests = bursts_of_texts(random);
    VllmScheduler runs(knobs);
    BlockwiseVllm blocks(knobs);
    const bool jump = random.below(2) == 0;
    const Played a = play(requests, runs, times, jump), b = play(requests, blocks, times, jump);
    expect_equal(a, b);
    EXPECT_EQ(a.served.most_held, b.served.most_held);
    EXPECT_EQ(runs.pool().available(), knobs.num_gpu_blocks);
    EXPECT_EQ(runs.pool().filled(), blocks.pool().filled());
    all.preemptions += b.served.preemptions;
    all.found += b.served.found_tokens;
    all.steps += b.served.steps;
    all.events += b.served.events;
  }
  EXPECT_GT(all.preemptions, 1000U);
  EXPECT_GT(all.found, 500'000U);
  EXPECT_GT(all.steps, all.events + all.events / 4);
}

// Step by step, what each computes; requests come between.
TEST(BlockwiseVllm, R4EachStepIsTheSame) {
  for (std::uint64_t seed = 0; seed < 300 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "each step");
    const VllmKnobs knobs = random_vllm(random);
    VllmScheduler runs(knobs);
    BlockwiseVllm blocks(knobs);
    for (const TraceRequest& r : bursts_of_texts(random)) {
      ASSERT_EQ(runs.add(r), blocks.add(r));
      const auto steps = static_cast<int>(random.below(random.below(3) == 0 ? 60 : 3));
      ASSERT_EQ(steps_of(runs, steps), steps_of(blocks, steps));
      ASSERT_EQ(runs.pool().available(), blocks.pool().available());
      ASSERT_EQ(runs.running(), blocks.running());
      ASSERT_EQ(runs.waiting(), blocks.waiting());
      ASSERT_EQ(runs.steps_alike() > 1, blocks.steps_alike() > 1);
    }
    ASSERT_EQ(steps_of(runs, 100'000), steps_of(blocks, 100'000));
    EXPECT_EQ(runs.preemptions(), blocks.preemptions());
  }
}

// A part of the recorded trace in caches in which little, some and all of it has room.
TEST(BlockwiseVllm, R4TheConversationTraceIsServedAlike) {
  std::optional<std::string> text = testing::recorded("mooncake_conversation.csv");
  if (!text) GTEST_SKIP() << "SHARDLINE_TRACES names no folder with mooncake_conversation.csv.gz";
  text->replace(0, text->find('\n'), "arrival_ms,input_tokens,output_tokens,block_ids");
  auto requests = testing::read_all("mooncake_conversation.csv", *text);
  requests.resize(1500);
  const LinearStepTimes times(
      {Seconds(0.012), Seconds(2e-5), Seconds(1.2e-8), Seconds(2e-5), Seconds(4e-10)});
  for (const std::uint32_t blocks : {10'000U, 40'000U, 400'000U}) {
    SCOPED_TRACE(blocks);
    VllmKnobs knobs;
    knobs.max_model_len = 131'072;
    knobs.num_gpu_blocks = blocks;
    VllmScheduler fast(knobs);
    BlockwiseVllm slow(knobs);
    const Played a = play(requests, fast, times, true), b = play(requests, slow, times, true);
    expect_equal(a, b);
    EXPECT_EQ(a.served.most_held, b.served.most_held);
    EXPECT_EQ(fast.pool().filled(), slow.pool().filled());
    EXPECT_GT(b.served.found_tokens, 100'000U);
  }
}

}  // namespace
}  // namespace shardline
