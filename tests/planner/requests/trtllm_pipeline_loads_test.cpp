// TensorRT-LLM's pipelines [R38] on random loads: against all ranks' loops, and what must hold of any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "planner/requests/trtllm_scheduler.hpp"
#include "tests/planner/requests/plain_trtllm_pipeline.hpp"
#include "tests/planner/requests/random_play.hpp"
#include "tests/planner/requests/random_vllm.hpp"
#include "tests/planner/requests/schedule_text.hpp"
#include "tests/planner/requests/staged_times.hpp"
#include "tests/support/loads.hpp"

namespace shardline {
namespace {

TrtllmKnobs random_stages_of_trtllm(RandomStream& random) {
  TrtllmKnobs k;
  k.capacity_scheduler_policy =
      random.below(4) == 0 ? TrtllmPolicy::static_batch : TrtllmPolicy::guaranteed_no_evict;
  k.context_chunking_policy =
      random.below(3) == 0 ? TrtllmChunking::equal_progress : TrtllmChunking::first_come_first_served;
  k.disable_overlap_scheduler = random.below(2) == 0;
  k.enable_chunked_prefill = random.below(4) > 0;
  k.enable_block_reuse = random.below(4) > 0;
  k.max_batch_size = random.below(4) == 0 ? 64 : 1U << random.below(5);
  k.max_num_tokens = k.enable_chunked_prefill ? 64U << random.below(6) : 2048U << random.below(2);
  k.batch_wait_timeout_iters = random.below(4) == 0 ? 5 : 0;
  k.batch_wait_max_tokens_ratio = random.below(2) == 0 ? 0.5 : 0;
  k.tokens_per_block = 4U << random.below(5);
  k.max_seq_len = 2048;
  const std::uint32_t longest = k.max_seq_len / k.tokens_per_block;
  k.blocks = longest + static_cast<std::uint32_t>(random.below(1 + random.below(3 * longest)));
  k.pipeline_parallel_size = 2 + static_cast<std::uint32_t>(random.below(4));
  return k;
}

struct SeenLoops {
  std::uint64_t plays = 0, ends = 0, found = 0, batches = 0, chunks = 0, waited = 0, merged = 0;
};

void compare_with_loops(std::uint64_t seed, SeenLoops& seen) {
  RandomStream random(seed, "trtllm pipeline");
  const TrtllmKnobs knobs = random_stages_of_trtllm(random);
  const StagedTimes times = random_stages(random, knobs.pipeline_parallel_size);
  const std::vector<TraceRequest> requests = bursts_of_texts(random);
  PlainTrtllmPipeline plain(knobs, times);
  TrtllmScheduler scheduler(knobs);
  std::vector<AnsweredRequest> expected;
  try {
    expected = by_number(plain.play(requests));
  } catch (const UserError&) {
    ++seen.ends;
    EXPECT_THROW(play(requests, scheduler, times, true), UserError);
    return;
  }
  const Played played = play(requests, scheduler, times, true);
  ASSERT_NO_FATAL_FAILURE(expect_answers(by_number(played.answers), expected));
  EXPECT_EQ(played.served.steps, plain.batches);
  EXPECT_EQ(scheduler.pool().available(), knobs.blocks);  // every block was given back
  EXPECT_EQ(plain.available(), knobs.blocks);
  ++seen.plays;
  seen.found += played.served.found_tokens;
  seen.batches += plain.batches;
  seen.chunks += plain.chunks;
  seen.waited += plain.waited;
  seen.merged += plain.merged;
}

TEST(TrtllmPipeline, R38PlaysAreAllRanksLoops) {
  SeenLoops seen;
  const std::uint64_t seeds = testing::loads(440);
  for (std::uint64_t seed = 0; seed < seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    compare_with_loops(seed, seen);
  }
  RecordProperty("plays", static_cast<int>(seen.plays));
  RecordProperty("ends", static_cast<int>(seen.ends));
  RecordProperty("found", static_cast<int>(seen.found));
  RecordProperty("batches", static_cast<int>(seen.batches));
  RecordProperty("chunks", static_cast<int>(seen.chunks));
  RecordProperty("waited", static_cast<int>(seen.waited));
  RecordProperty("merged", static_cast<int>(seen.merged));
  if (testing::kSanitized) return;  // a part of the loads
  EXPECT_GE(seen.plays, 400U);
  EXPECT_GT(seen.found, 100'000U);
  EXPECT_GT(seen.batches, 10'000U);
  EXPECT_GT(seen.chunks, 1000U);
  EXPECT_GT(seen.waited, 1000U);
  EXPECT_GT(seen.merged, 100U);
}

// Every token has been computed once, and intervals between them add up to requests' times.
TEST(TrtllmPipeline, R38TokensAndTimesAddUp) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "sums of looks");
    TrtllmKnobs knobs = random_stages_of_trtllm(random);
    knobs.enable_block_reuse = false;  // the engine stands still in few loads with it
    const StagedTimes times = random_stages(random, knobs.pipeline_parallel_size);
    const std::vector<TraceRequest> requests = bursts_of_texts(random);
    TrtllmScheduler scheduler(knobs);
    const Played p = play(requests, scheduler, times, true);
    EXPECT_EQ(p.answers.size(), requests.size());
    expect_sums(p);
  }
}

// Nobody is in a step while a token of it is under way, no step has more than max_batch_size requests, nor
// are more than all stages have places for begun.
TEST(TrtllmPipeline, R38NobodyIsInTwoStepsWithATokenUnderWay) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "under way");
    TrtllmKnobs knobs = random_stages_of_trtllm(random);
    knobs.enable_block_reuse = false;
    TrtllmScheduler s(knobs);
    std::uint64_t tokens = 0, asked = 0;
    for (int i = 0; i < 40; ++i) {
      const auto answer = static_cast<std::int64_t>(1 + random.below(60));
      s.add(asks(static_cast<std::int64_t>(1 + random.below(300)), answer));
      asked += static_cast<std::uint64_t>(answer);
    }
    std::uint32_t rows = 0;  // of steps that are decided
    while (s.running() + s.waiting() > 0) {
      while (random.below(4) > 0 && s.schedule()) {
        EXPECT_LE(s.back().decodes + s.back().prompts.size(), knobs.max_batch_size);
        rows += s.back().decodes;
      }
      EXPECT_LE(s.running(), std::size_t{knobs.max_batch_size} * knobs.pipeline_parallel_size);
      EXPECT_LE(rows, s.running());
      if (s.decided() == 0) continue;
      rows -= s.front().decodes;
      tokens += s.finish_steps().named.size();
    }
    EXPECT_EQ(tokens, asked);
    EXPECT_EQ(s.pool().available(), knobs.blocks);
  }
}

}  // namespace
}  // namespace shardline
