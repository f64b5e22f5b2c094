// Stretches of steps as one event, against every step by itself; what must hold of any play.
#include "planner/requests/play_requests.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "planner/requests/vllm_scheduler.hpp"
#include "sim/base/random.hpp"
#include "tests/planner/requests/random_play.hpp"

namespace shardline {
namespace {

Played play(const std::vector<TraceRequest>& requests, const VllmKnobs& knobs, const StepTimes& times,
            bool jump) {
  VllmScheduler scheduler(knobs);
  Played out = play(requests, scheduler, times, jump);
  EXPECT_EQ(scheduler.pool().available(), knobs.num_gpu_blocks);  // every block was given back
  return out;
}

VllmKnobs random_knobs(RandomStream& random) {
  VllmKnobs k;
  k.async_scheduling = random.below(2) == 0;
  k.max_num_batched_tokens = 64U << random.below(6);
  k.max_num_seqs = 1U << random.below(6);
  k.long_prefill_token_threshold = random.below(3) == 0 ? 100 : 0;
  k.scheduler_reserve_full_isl = random.below(2) == 0;
  k.watermark = random.below(3) == 0 ? 0.1 : 0;
  k.enable_prefix_caching = random.below(2) == 0;
  k.max_model_len = 2048;
  k.num_gpu_blocks = 128 + static_cast<std::uint32_t>(random.below(300));
  return k;
}

TEST(PlayRequests, R5JumpsAreSteps) {
  std::uint64_t steps = 0, events = 0, preemptions = 0, found = 0;
  const BentStepTimes bent;
  const LinearStepTimes straight({Seconds(0.01), Seconds(1e-5), Seconds(1e-8), Seconds(1e-5), Seconds(1e-9)});
  for (std::uint64_t seed = 0; seed < 1000 && !::testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "play");
    const VllmKnobs knobs = random_knobs(random);
    const auto requests = random_requests(random, seed % 2 == 0 ? 200 : 1900);
    const StepTimes& times = seed % 3 == 0 ? static_cast<const StepTimes&>(straight) : bent;
    const Played jumps = play(requests, knobs, times, true), all = play(requests, knobs, times, false);
    expect_same(jumps, all);
    EXPECT_EQ(jumps.answers.size(), requests.size());
    steps += jumps.served.steps;
    events += jumps.served.events;
    preemptions += jumps.served.preemptions;
    found += jumps.served.found_tokens;
  }
  EXPECT_GT(steps, 2 * events);
  EXPECT_GT(preemptions, 100U);
  EXPECT_GT(found, 100'000U);
}

// Alone, a request takes its prompt's steps and one step a token.
TEST(PlayRequests, R5OneRequestAlone) {
  const LinearStepTimes times({Seconds(0.01), Seconds(0.001), Seconds(1e-6), Seconds(1e-4), Seconds(0)});
  const double first = 2 * 0.01 + 1000 * 1e-4;
  double rest = 0;
  for (int i = 0; i < 99; ++i) rest += 0.01 + 0.001 + 1e-6 * (1000 + i);
  for (const bool async : {false, true}) {
    VllmKnobs knobs;
    knobs.async_scheduling = async;
    knobs.max_num_batched_tokens = 512;
    const Played p = play({{Seconds(5), 1000, 100, {}}}, knobs, times, true);
    ASSERT_EQ(p.answers.size(), 1U);
    EXPECT_NEAR((p.answers[0].first - Seconds(5)).value, first, 1e-12);
    EXPECT_NEAR((p.answers[0].last - p.answers[0].first).value, rest, 1e-12);
    EXPECT_EQ(p.served.steps, 101U);
    EXPECT_EQ(p.served.events, async ? 4U : 3U);  // the last step has no other decided behind it
    EXPECT_EQ(p.served.itl.count(), 99U);
    EXPECT_NEAR(p.served.itl.mean(), rest / 99, 1e-14);
    EXPECT_NEAR(p.served.busy.value, first + rest, 1e-12);
  }
}

// Every token but each first one has an interval before it, and intervals of a request add up to its time.
TEST(PlayRequests, R5IntervalsAddUp) {
  const BentStepTimes times;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream random(seed, "intervals");
    const VllmKnobs knobs = random_knobs(random);
    const Played p = play(random_requests(random, 500), knobs, times, true);
    double sum = 0;
    for (const AnsweredRequest& a : p.answers) sum += (a.last - a.first).value;
    EXPECT_EQ(p.served.itl.count(), p.served.answer_tokens - p.served.answered);
    EXPECT_NEAR(p.served.itl.mean() * static_cast<double>(p.served.itl.count()) / sum, 1, 1e-10);
  }
}

TEST(PlayRequests, RequestsOutOfOrderAreOurBug) {
  const LinearStepTimes times({Seconds(0.01), Seconds(0), Seconds(0), Seconds(0), Seconds(0)});
  EXPECT_THROW(play({{Seconds(5), 10, 1, {}}, {Seconds(4), 10, 1, {}}}, {}, times, true), std::logic_error);
}

// A stretch stays open until somebody ends it: with the step that is under way then, or the one that ends
// then.
TEST(PlayRequests, R5StretchesEndWithTheStepUnderWay) {
  const LinearStepTimes times({Seconds(0.25), Seconds(0), Seconds(0), Seconds(0), Seconds(0)});
  for (const double at : {0.25, 1.0, 1.1, 1.25, 100.0}) {
    VllmKnobs knobs;
    knobs.async_scheduling = false;
    VllmScheduler scheduler(knobs);
    PlayedEngine engine(scheduler, times, true);
    EXPECT_TRUE(engine.take({Seconds(0), 10, 9, {}}, Seconds(0)));
    engine.begin();  // the prompt, alone: known to its end
    EXPECT_FALSE(engine.open());
    EXPECT_EQ(engine.now().value, 0.25);
    engine.begin();
    ASSERT_TRUE(engine.open());
    EXPECT_EQ(engine.now().value, 0.25);
    EXPECT_EQ(engine.ends().value, 0.25 * 9);
    EXPECT_THROW(engine.begin(), std::logic_error);
    EXPECT_THROW(engine.take({Seconds(0.25), 10, 9, {}}, Seconds(0)), std::logic_error);
    engine.end(Seconds(at));
    EXPECT_FALSE(engine.open());
    const double ended = std::clamp(0.25 * std::ceil(at / 0.25), 0.5, 0.25 * 9);
    EXPECT_EQ(engine.now().value, ended) << at;
    EXPECT_EQ(engine.served().events, 2U);
    EXPECT_EQ(engine.served().steps, static_cast<std::uint64_t>(ended / 0.25));
    engine.end(Seconds(200));  // nothing is open
    EXPECT_EQ(engine.now().value, ended);
  }
}

}  // namespace
}  // namespace shardline
