// Jumps of SGLang's and TensorRT-LLM's schedulers, against every step by itself; a static batch in closed
// form.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "planner/requests/sglang_scheduler.hpp"
#include "planner/requests/trtllm_scheduler.hpp"
#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "tests/planner/requests/random_play.hpp"
#include "tests/planner/requests/random_sglang.hpp"

namespace shardline {
namespace {

struct Sums {
  std::uint64_t steps = 0, events = 0, preemptions = 0, found = 0, failed = 0, played = 0;
  void add(const Played& p) {
    ++played;
    steps += p.served.steps;
    events += p.served.events;
    preemptions += p.served.preemptions;
    found += p.served.found_tokens;
  }
};

TEST(SglangJumps, R8JumpsAreSteps) {
  Sums sums;
  const BentStepTimes times;
  for (std::uint64_t seed = 0; seed < 1000 && !::testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "sglang");
    const SglangKnobs knobs = random_sglang(random);
    const auto requests = random_requests(random, seed % 2 == 0 ? 200 : 1900);
    SglangScheduler jumping(knobs), stepping(knobs);
    std::string failed, failed_too;
    Played jumps, all;
    try {
      jumps = play(requests, jumping, times, true);
    } catch (const UserError& e) {
      failed = e.what();
    }
    try {
      all = play(requests, stepping, times, false);
    } catch (const UserError& e) {
      failed_too = e.what();
    }
    ASSERT_EQ(failed, failed_too);
    ASSERT_EQ(failed.find("no request goes on"), std::string::npos) << failed;
    sums.failed += failed.empty() ? 0 : 1;
    if (!failed.empty()) continue;
    expect_same(jumps, all);
    EXPECT_EQ(jumps.answers.size(), requests.size());
    EXPECT_EQ(jumping.available_pages(), jumping.pages());  // every page was given back
    EXPECT_EQ(jumping.new_token_ratio(), stepping.new_token_ratio());
    sums.add(jumps);
  }
  EXPECT_GT(sums.played, 950U);
  EXPECT_GT(sums.steps, 2 * sums.events);
  EXPECT_GT(sums.preemptions, 100U);
  EXPECT_GT(sums.found, 100'000U);
}

TrtllmKnobs trtllm_knobs(RandomStream& random) {
  TrtllmKnobs k;
  const std::uint64_t policy = random.below(5);
  k.capacity_scheduler_policy = policy == 0   ? TrtllmPolicy::static_batch
                                : policy <= 2 ? TrtllmPolicy::max_utilization
                                              : TrtllmPolicy::guaranteed_no_evict;
  k.context_chunking_policy =
      random.below(3) == 0 ? TrtllmChunking::equal_progress : TrtllmChunking::first_come_first_served;
  k.disable_overlap_scheduler = random.below(2) == 0;
  k.enable_chunked_prefill = random.below(3) > 0;
  k.enable_block_reuse = random.below(4) > 0;
  k.max_batch_size = 1U << random.below(6);
  k.max_num_tokens = k.enable_chunked_prefill ? 64U << random.below(6) : 2048;
  k.batch_wait_timeout_iters = random.below(3) == 0 ? 5 : 0;
  k.batch_wait_max_tokens_ratio = random.below(2) == 0 ? 0.5 : 0;
  k.tokens_per_block = 16U << random.below(3);
  k.max_seq_len = 2048;
  k.blocks = 2048 / k.tokens_per_block + static_cast<std::uint32_t>(random.below(200));
  return k;
}

TEST(TrtllmJumps, R9JumpsAreSteps) {
  Sums sums;
  const BentStepTimes times;
  for (std::uint64_t seed = 0; seed < 1000 && !::testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "trtllm");
    const TrtllmKnobs knobs = trtllm_knobs(random);
    const auto requests = random_requests(random, seed % 2 == 0 ? 200 : 1900);
    TrtllmScheduler jumping(knobs), stepping(knobs);
    const Played jumps = play(requests, jumping, times, true), all = play(requests, stepping, times, false);
    expect_same(jumps, all);
    EXPECT_EQ(jumps.answers.size(), requests.size());
    EXPECT_EQ(jumping.pool().available(), knobs.blocks);  // every block was given back
    EXPECT_EQ(jumping.running() + jumping.waiting(), 0U);
    if (knobs.capacity_scheduler_policy != TrtllmPolicy::max_utilization) {
      EXPECT_EQ(jumps.served.preemptions, 0U);
    }
    sums.add(jumps);
  }
  EXPECT_GT(sums.steps, 2 * sums.events);
  EXPECT_GT(sums.preemptions, 100U);
  EXPECT_GT(sums.found, 100'000U);
}

// Those that decode are looked at together where a step has tokens for all that may be active, else one by
// one. Of fewer requests than either there is no difference, to the bit.
TEST(TrtllmJumps, R9TogetherIsOneByOne) {
  Sums sums;
  const BentStepTimes times;
  for (std::uint64_t seed = 0; seed < 500 && !::testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "trtllm together");
    TrtllmKnobs knobs = trtllm_knobs(random);
    if (knobs.capacity_scheduler_policy == TrtllmPolicy::max_utilization) continue;
    const auto requests = random_requests(random, seed % 2 == 0 ? 200 : 1900);
    knobs.max_batch_size = knobs.max_num_tokens;
    ASSERT_GE(knobs.max_batch_size, requests.size());
    TrtllmScheduler together(knobs);
    ++knobs.max_batch_size;
    TrtllmScheduler one_by_one(knobs);
    const bool jump = random.below(2) == 0;
    const Played a = play(requests, together, times, jump), b = play(requests, one_by_one, times, jump);
    ASSERT_EQ(a.answers.size(), b.answers.size());
    for (std::size_t i = 0; i < a.answers.size(); ++i) {
      const AnsweredRequest &x = a.answers[i], &y = b.answers[i];
      ASSERT_EQ(x.number, y.number);
      ASSERT_EQ(x.first, y.first);
      ASSERT_EQ(x.last, y.last);
      ASSERT_EQ(x.found, y.found);
    }
    EXPECT_EQ(a.served.steps, b.served.steps);
    EXPECT_EQ(a.served.events, b.served.events);
    EXPECT_EQ(a.served.held, b.served.held);
    EXPECT_EQ(a.served.most_held, b.served.most_held);
    EXPECT_EQ(a.served.running, b.served.running);
    ASSERT_EQ(a.served.itl.count(), b.served.itl.count());
    for (const double q : {0.01, 0.5, 0.9, 0.99, 1.0})
      EXPECT_EQ(a.served.itl.quantile(q), b.served.itl.quantile(q));
    EXPECT_EQ(a.served.tpot.mean(), b.served.tpot.mean());
    if (jump) sums.add(a);
  }
  EXPECT_GT(sums.played, 100U);
  EXPECT_GT(sums.steps, 2 * sums.events);
  EXPECT_GT(sums.found, 100'000U);
}

// Batches of 8 equal requests: each takes the step of its prompts and 19 that decode, one batch after
// another.
TEST(TrtllmJumps, R9StaticBatchesInClosedForm) {
  const LinearStepTimes::Rates rates{Seconds(0.01), Seconds(1e-4), Seconds(1e-7), Seconds(1e-5), Seconds(0)};
  const LinearStepTimes times(rates);
  TrtllmKnobs knobs;
  knobs.capacity_scheduler_policy = TrtllmPolicy::static_batch;
  knobs.max_batch_size = 8;
  for (const bool overlap : {false, true}) {
    knobs.disable_overlap_scheduler = !overlap;
    TrtllmScheduler scheduler(knobs);
    const Played p = play(std::vector<TraceRequest>(24, {Seconds(0), 100, 20, {}}), scheduler, times, true);
    double batch = 0.01 + 8 * 100 * 1e-5;
    for (int i = 0; i < 19; ++i) batch += 0.01 + 8 * (1e-4 + 1e-7 * (100 + i));
    ASSERT_EQ(p.answers.size(), 24U);
    for (std::size_t i = 0; i < 24; ++i)
      EXPECT_NEAR(p.answers[i].last.value, batch * static_cast<double>(i / 8 + 1), 1e-12) << i;
    EXPECT_EQ(p.served.steps, 60U);
  }
}

}  // namespace
}  // namespace shardline
