// vLLM's schedules and plays of pipelines: by hand, against the engine's own loop, and what must hold of any.
#include "planner/requests/vllm_pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/planner/requests/plain_pipeline.hpp"
#include "tests/planner/requests/random_play.hpp"
#include "tests/planner/requests/random_vllm.hpp"
#include "tests/planner/requests/schedule_text.hpp"
#include "tests/planner/requests/staged_times.hpp"

namespace shardline {
namespace {

VllmKnobs staged(std::uint32_t stages, bool async) {
  VllmKnobs k;
  k.async_scheduling = async;
  k.pipeline_parallel_size = stages;
  k.block_size = 4;
  k.max_model_len = 64;
  k.num_gpu_blocks = 64;
  return k;
}

const std::string kNobody = "0 decode (0)";

// Two stages without async scheduling: two steps are decided. A prompt of 6 tokens is in step 1; its token is
// not there when step 2 is decided, which is nobody's turn; with the end of step 1 it is in step 3, and so
// on: 3 tokens in steps 1, 3 and 5. No turn is left behind the last one.
TEST(VllmPipeline, R36OneIsInEveryStepOfItsTurn) {
  VllmPipelineScheduler s(staged(2, false));
  s.add(asks(6, 3));
  EXPECT_EQ(steps_of(s),
            (Steps{"0 decode (0), 6+0", kNobody, "1 decode (6)", kNobody, "1 decode (7)", kNobody}));
  EXPECT_EQ(s.pool().available(), 64U);
}

// With async scheduling three are decided: step 3 with the token of step 1 under way, two steps behind it
// (next_decode_eligible_step = 1 + 2), and step 5 when step 2 has ended. The last token of three is in step
// 5: what is decided behind it is nobody's, though only step 6 and 7 find a place before the answer is there.
TEST(VllmPipeline, R36AsyncSchedulingDecidesOneStepMore) {
  VllmPipelineScheduler s(staged(2, true));
  s.add(asks(6, 3));
  EXPECT_EQ(s.depth(), 3U);
  EXPECT_EQ(steps_of(s),
            (Steps{"0 decode (0), 6+0", kNobody, "1 decode (6)", kNobody, "1 decode (7)", kNobody, kNobody}));
}

// Four stages, and a prompt of 20 tokens with 8 of them a step: parts follow one another, as none waits for a
// token: steps 1, 2 and 3. The first token is that of step 3; the next ones are in steps 7 and 11.
TEST(VllmPipeline, R36PartsOfAPromptFollowOneAnother) {
  for (const bool async : {false, true}) {
    VllmKnobs k = staged(4, async);
    k.max_num_batched_tokens = 8;
    VllmPipelineScheduler s(k);
    s.add(asks(20, 3));
    Steps steps = steps_of(s);
    steps.resize(11);
    EXPECT_EQ(steps, (Steps{"0 decode (0), 8+0", "0 decode (0), 8+8", "0 decode (0), 4+16", kNobody, kNobody,
                            kNobody, "1 decode (20)", kNobody, kNobody, kNobody, "1 decode (21)"}));
  }
}

// Who comes while steps are under way is in the next that is decided, and stays in its turn: the first in
// steps 1, 3, 5, the second, which comes when step 1 has ended and step 3 is decided next, beside it there;
// without async scheduling. With it step 3 was decided before, so that the second is in steps 4 and 6.
TEST(VllmPipeline, R36WhoComesHasTheNextTurn) {
  for (const bool async : {false, true}) {
    VllmPipelineScheduler s(staged(2, async));
    s.add(asks(6, 4));
    while (s.decided() < s.depth() && s.schedule()) {
    }
    s.finish_steps();
    s.add(asks(5, 2));
    Steps steps = steps_of(s);
    steps.resize(5);
    const Steps beside{kNobody, "1 decode (6), 5+0", kNobody, "2 decode (12)", kNobody};
    const Steps between{kNobody, "1 decode (6)", "0 decode (0), 5+0", "1 decode (7)", "1 decode (5)"};
    EXPECT_EQ(steps, async ? between : beside);
  }
}

// Nothing spreads requests over turns: four that come together are in one step, and the other is nobody's.
TEST(VllmPipeline, R36ABurstIsOneTurn) {
  VllmPipelineScheduler s(staged(2, true));
  for (int i = 0; i < 4; ++i) s.add(asks(4, 2));
  EXPECT_EQ(steps_of(s),
            (Steps{"0 decode (0), 4+0 4+0 4+0 4+0", kNobody, "4 decode (16)", kNobody, kNobody}));
}

// Eight blocks of 4 tokens, without prefixes: two prompts of 12 (three blocks each)
// in step 1, and step 2 nobody's. In steps 3, 5, 7 and 9 both have a token more; those of step 3 are the 13th
// and take a block each, the last two. In step 11 the 17th token of the first one finds none: the second
// loses its own four, with no token under way, as step 9 has ended. In step 12 it waits, for its 17 tokens
// need five and three are free; so the first goes on with its last token in step 13.
TEST(VllmPipeline, R36WhoLosesItsBlocksComesAgain) {
  VllmKnobs k = staged(2, false);
  k.enable_prefix_caching = false;
  k.num_gpu_blocks = 8;
  k.max_model_len = 31;
  VllmPipelineScheduler s(k);
  s.add(asks(12, 7));
  s.add(asks(12, 7));
  const Steps steps = steps_of(s);
  EXPECT_EQ(steps,
            (Steps{"0 decode (0), 12+0 12+0", kNobody, "2 decode (24)", kNobody, "2 decode (26)", kNobody,
                   "2 decode (28)", kNobody, "2 decode (30)", kNobody, "1 decode (16)", kNobody,
                   "1 decode (17)", kNobody, "0 decode (0), 17+0", kNobody, "1 decode (17)", kNobody}));
  EXPECT_EQ(s.preemptions(), 1U);
  EXPECT_EQ(s.pool().available(), 8U);
}

// Alone in four stages of 1 s, 0.25 s on the way to each next one: a token takes 5 s, whatever the depth. Who
// comes a second later waits for the end of the first's step, at 5 s, and then goes behind it: in the first
// stage from 6 to 7 with async scheduling, where the first's next step was decided before; 11 s. Without it
// both are in one step: 10 s.
TEST(VllmPipeline, R36TimesOfFewerRequestsThanStages) {
  const StagedTimes times(std::vector<StageTime>(4, {Seconds(1), Seconds(1), Seconds(0.25)}));
  for (const bool async : {false, true}) {
    VllmPipelineScheduler s(staged(4, async));
    const Played p = play({{Seconds(0), 6, 3, {}}, {Seconds(1), 6, 1, {}}}, s, times, true);
    ASSERT_EQ(p.answers.size(), 2U);
    EXPECT_NEAR(p.answers[0].last.value, async ? 11 : 10, 1e-12);  // who came second
    EXPECT_NEAR(p.answers[1].first.value, 5, 1e-12);
    EXPECT_NEAR(p.answers[1].last.value, 15, 1e-12);
    EXPECT_EQ(p.served.steps, async ? 4U : 3U);
    EXPECT_EQ(p.served.dummies, 0U);
    EXPECT_NEAR(p.served.busy.value, 15, 1e-12);
    EXPECT_NEAR(p.served.itl.mean(), 5, 1e-12);
  }
}

VllmKnobs random_pipeline(RandomStream& random) {
  VllmKnobs k = random_vllm(random);
  k.pipeline_parallel_size = 2 + static_cast<std::uint32_t>(random.below(4));
  return k;
}

TEST(VllmPipeline, R36PlaysAreTheEnginesLoop) {
  std::uint64_t preemptions = 0, found = 0, batches = 0;
  for (std::uint64_t seed = 0; seed < 400 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "pipeline");
    const VllmKnobs knobs = random_pipeline(random);
    const StagedTimes times = random_stages(random, knobs.pipeline_parallel_size);
    const std::vector<TraceRequest> requests = bursts_of_texts(random);
    PlainPipeline plain(knobs, times);
    const auto expected = by_number(plain.play(requests));
    VllmPipelineScheduler scheduler(knobs);
    const Played played = play(requests, scheduler, times, true);
    ASSERT_NO_FATAL_FAILURE(expect_answers(by_number(played.answers), expected));
    EXPECT_EQ(played.served.steps, plain.batches);
    EXPECT_EQ(scheduler.pool().available(), knobs.num_gpu_blocks);  // every block was given back
    EXPECT_EQ(plain.available(), knobs.num_gpu_blocks);
    preemptions += plain.preemptions;
    found += played.served.found_tokens;
    batches += plain.batches;
  }
  EXPECT_GT(preemptions, 500U);
  EXPECT_GT(found, 100'000U);
  EXPECT_GT(batches, 10'000U);
}

// Every token has been computed once, and intervals between them add up to requests' times.
TEST(VllmPipeline, R36TokensAndTimesAddUp) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "sums");
    const VllmKnobs knobs = random_pipeline(random);
    const StagedTimes times = random_stages(random, knobs.pipeline_parallel_size);
    const std::vector<TraceRequest> requests = bursts_of_texts(random);
    VllmPipelineScheduler scheduler(knobs);
    const Played p = play(requests, scheduler, times, true);
    expect_sums(p);
  }
}

// Each request's steps are as far apart as there are stages at least, unless they are parts of its prompt: no
// token is computed beside one that is not known yet. And nobody is left out.
TEST(VllmPipeline, R36NobodyIsInTwoStepsBeforeItsTokenIsBack) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "apart");
    const VllmKnobs knobs = random_pipeline(random);
    VllmPipelineScheduler s(knobs);
    std::map<Scheduler::Id, std::uint64_t> last;
    std::uint64_t step = 0, tokens = 0, asked = 0;
    for (int i = 0; i < 40; ++i) {
      const auto answer = static_cast<std::int64_t>(1 + random.below(60));
      s.add(asks(static_cast<std::int64_t>(1 + random.below(300)), answer));
      asked += static_cast<std::uint64_t>(answer);
    }
    for (int idle = 0; idle < 2;) {
      while (s.decided() < s.depth() && s.schedule()) {
      }
      if (s.decided() == 0) {
        ++idle;
        continue;
      }
      idle = 0;
      ++step;
      const Scheduler::Ended ended = s.finish_steps();
      for (const Scheduler::Id id : ended.named) {
        if (last.count(id) > 0) {
          EXPECT_GE(step, last[id] + knobs.pipeline_parallel_size);
        }
        last[id] = step;
        ++tokens;
      }
    }
    EXPECT_EQ(tokens, asked);
  }
}

}  // namespace
}  // namespace shardline
