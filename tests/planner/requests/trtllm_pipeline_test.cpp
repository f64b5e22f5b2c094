// TensorRT-LLM's schedules and plays of pipelines [R38]: by hand.
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

using ::testing::HasSubstr;

TrtllmKnobs trtllm_stages(std::uint32_t stages) {
  TrtllmKnobs k;
  k.pipeline_parallel_size = stages;
  k.tokens_per_block = 4;
  k.max_seq_len = 64;
  k.blocks = 64;
  k.enable_chunked_prefill = true;
  return k;
}

// Two stages. Whoever is alone is in a step when its token of the one before is back, and nobody's turn is
// between.
TEST(TrtllmPipeline, R38OneIsInOneStepAtATime) {
  TrtllmScheduler s(trtllm_stages(2));
  s.add(asks(6, 3));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 6+0", "1 decode (6)", "1 decode (7)"}));
  EXPECT_EQ(s.pool().available(), 64U);
  // With and without the overlap scheduler, which is none in stages, and of one token as of others.
  for (const bool off : {false, true}) {
    TrtllmKnobs k = trtllm_stages(2);
    k.disable_overlap_scheduler = off;
    TrtllmScheduler t(k);
    t.add(asks(6, 1));
    t.add(asks(5, 2));
    EXPECT_EQ(steps_of(t), (Steps{"0 decode (0), 6+0 5+0", "1 decode (5)"}));
  }
}

// Parts of a prompt have no token, so that they follow one another: 20 tokens in steps of 8 are in three
// steps that are decided before any ends, and the prompt of 6 in what the last part leaves, and in a fourth:
// 4 of 20, 4 of 6; 2. The first one's token is that of the third step, and its next step the fifth. The other
// one's is that of the fourth.
TEST(TrtllmPipeline, R38PartsOfAPromptFollowOneAnother) {
  TrtllmKnobs k = trtllm_stages(2);
  k.max_num_tokens = 8;
  TrtllmScheduler s(k);
  s.add(asks(20, 2));
  s.add(asks(6, 2));
  while (s.schedule()) {
  }
  EXPECT_EQ(s.decided(), 4U);
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 8+0", "0 decode (0), 8+8", "0 decode (0), 4+16 4+0",
                                "0 decode (0), 2+4", "1 decode (20)", "1 decode (6)"}));
}

// Of two requests in a step, and four in all of two stages: the fifth begins when two are done. Who begins
// together stays together. With room for four in a step they are in one.
TEST(TrtllmPipeline, R38StepsAndStagesHavePlaces) {
  TrtllmKnobs k = trtllm_stages(2);
  const auto burst = [&] {
    TrtllmScheduler s(k);
    for (int i = 0; i < 5; ++i) s.add(asks(4, i < 2 ? 2 : 3));
    return steps_of(s);
  };
  k.max_batch_size = 2;
  EXPECT_EQ(burst(), (Steps{"0 decode (0), 4+0 4+0", "0 decode (0), 4+0 4+0", "2 decode (8)", "2 decode (8)",
                            // the first two are done, and the fifth one is active
                            "0 decode (0), 4+0", "2 decode (10)", "1 decode (4)", "1 decode (5)"}));
  k.max_batch_size = 4;
  EXPECT_EQ(burst(), (Steps{"0 decode (0), 4+0 4+0 4+0 4+0", "0 decode (0), 4+0", "4 decode (16)",
                            "1 decode (4)", "2 decode (10)", "1 decode (5)"}));
}

// Of those that decode and have no token under way the first two are in a step, and no prompt beside them;
// the others in the next one, with a prompt that has a place.
TEST(TrtllmPipeline, R38WhoDecodesGoesFirst) {
  TrtllmKnobs k = trtllm_stages(2);
  k.max_batch_size = 2;
  k.max_num_tokens = 4;
  TrtllmScheduler s(k);
  for (int i = 0; i < 3; ++i) s.add(asks(4, 3));
  // A prompt each, as a step has four tokens. All three are back before anything is decided again.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(s.schedule());
  EXPECT_FALSE(s.schedule());
  for (int i = 0; i < 3; ++i) s.finish_steps();
  s.add(asks(3, 1));
  EXPECT_EQ(steps_of(s), (Steps{"2 decode (8)", "1 decode (4), 3+0", "2 decode (10)", "1 decode (5)"}));
}

// Blocks of answers of those that are under way are kept: of 8 blocks the first two keep 3 each for 4 + 8
// tokens, whichever step they are in, and the third, which lacks 3, waits until both are done in their fourth
// step.
TEST(TrtllmPipeline, R38BlocksAreKeptForAllThatAreUnderWay) {
  TrtllmKnobs k = trtllm_stages(2);
  k.max_batch_size = 1;
  k.blocks = 8;
  k.max_seq_len = 12;
  k.enable_block_reuse = false;
  TrtllmScheduler s(k);
  s.add(asks(4, 4));
  s.add(asks(8, 4));
  s.add(asks(8, 4));
  EXPECT_EQ(steps_of(s, 4),
            (Steps{"0 decode (0), 4+0", "0 decode (0), 8+0", "1 decode (4)", "1 decode (8)"}));
  EXPECT_EQ(s.waiting(), 1U);
  EXPECT_EQ(steps_of(s, 4), (Steps{"1 decode (5)", "1 decode (9)", "1 decode (6)", "1 decode (10)"}));
}

// A prompt is found when its last part has ended, not while that is under way: the second of two alike is
// held while a part of the first one is left to decide, which is to fill its blocks, and begins behind the
// last part, when nothing of it is found yet. Whoever comes behind the end of both parts finds two blocks
// of 4.
TEST(TrtllmPipeline, R38TextIsFoundWhenItHasEnded) {
  TrtllmKnobs k = trtllm_stages(2);
  k.max_num_tokens = 8;
  TrtllmScheduler s(k);
  s.add(asks(10, 1, {1, 2, 3}), 4);
  s.add(asks(10, 1, {1, 2, 3}), 4);
  while (s.schedule()) {
  }
  EXPECT_EQ(s.decided(), 4U);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(text_of(s.front()), i == 0 ? "0 decode (0), 8+0" : "0 decode (0), 2+8");
    s.finish_steps();
  }
  s.add(asks(10, 1, {1, 2, 3}), 4);
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 8+0", "0 decode (0), 2+8", "0 decode (0), 2+8"}));
}

TEST(TrtllmPipeline, R38AStaticBatchIsAllDoneBeforeTheNext) {
  TrtllmKnobs k = trtllm_stages(2);
  k.capacity_scheduler_policy = TrtllmPolicy::static_batch;
  k.max_num_tokens = 4;
  TrtllmScheduler s(k);
  for (int i = 0; i < 3; ++i) s.add(asks(4, 2));
  // In the second decision the first request is one that decodes, whose token is under way.
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 4+0", "1 decode (4)", "0 decode (0), 4+0", "1 decode (4)",
                                "0 decode (0), 4+0", "1 decode (4)"}));
}

// Four stages of 1 s, 0.25 s on the way to each next one: a token takes 5 s. The loop finds nobody to decide
// for behind the first step and waits for its token, so that who comes a second later waits, too, though the
// first stage is free: both are in the step that is decided at 5, and have its token at 10.
TEST(TrtllmPipeline, R38WhoComesWaitsForTheOldestStep) {
  const StagedTimes times(std::vector<StageTime>(4, {Seconds(1), Seconds(1), Seconds(0.25)}));
  TrtllmScheduler s(trtllm_stages(4));
  const Played p = play({{Seconds(0), 6, 3, {}}, {Seconds(1), 6, 2, {}}}, s, times, true);
  ASSERT_EQ(p.answers.size(), 2U);
  const std::vector<AnsweredRequest> a = by_number(p.answers);
  EXPECT_NEAR(a[0].first.value, 5, 1e-12);
  EXPECT_NEAR(a[0].last.value, 15, 1e-12);
  EXPECT_NEAR(a[1].first.value, 10, 1e-12);
  EXPECT_NEAR(a[1].last.value, 15, 1e-12);
  EXPECT_EQ(p.served.steps, 3U);
  EXPECT_NEAR(p.served.busy.value, 15, 1e-12);
}

// Two stages of 1 s without a way, two requests in a step. Of four that come together two are in step 1, in
// the stages from 0 to 2, and two in step 2, decided at once, from 1 to 3. Step 3, of the first two, is
// decided at 2 and ends at 4; step 4 at 3, 5: the stages are full, and each has a token every 2 s.
TEST(TrtllmPipeline, R38TwoStepsFillTwoStages) {
  const StagedTimes times(std::vector<StageTime>(2, {Seconds(1), Seconds(1), Seconds(0)}));
  TrtllmKnobs k = trtllm_stages(2);
  k.max_batch_size = 2;
  TrtllmScheduler s(k);
  const Played p = play(std::vector<TraceRequest>(4, {Seconds(0), 4, 3, {}}), s, times, true);
  const std::vector<AnsweredRequest> a = by_number(p.answers);
  ASSERT_EQ(a.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(a[i].first.value, i < 2 ? 2 : 3, 1e-12);
    EXPECT_NEAR(a[i].last.value, i < 2 ? 6 : 7, 1e-12);
  }
  EXPECT_EQ(p.served.steps, 6U);
  EXPECT_NEAR(p.served.busy.value, 7, 1e-12);
  EXPECT_NEAR(p.served.running, 26, 1e-12);  // four up to 6, two of them up to 7
}

// Two stages that take a second for each token, and hand over at once.
class TokenStages : public StageTimes, public StepTimes {
 public:
  Seconds of(const StepBatch& b) const override { return 2 * each(b); }
  DecodeStretch decode(const StepBatch& b) const override { return {of(b), Seconds(0), 1}; }
  Seconds of_group(std::span<const StepBatch* const> groups, std::size_t which) const override {
    return of(*groups[which]);
  }
  const StageTimes* stages() const override { return this; }
  std::size_t count() const override { return 2; }
  void of(const StepBatch& b, std::span<StageTime> out) const override {
    std::fill(out.begin(), out.end(), StageTime{each(b), each(b), Seconds(0)});
  }

 private:
  static Seconds each(const StepBatch& b) {
    return Seconds(static_cast<double>(b.decodes + b.prompt_tokens()));
  }
};

// Stages of a second for each token. Requests of one token each fill steps 1 and 2, of one place: in the
// first stage from 0 to 1 and from 1 to 2. The third, of 10 tokens, comes at 0.5 and is in nothing before 2,
// as two are active. At 2 the first one is done; step 3 is its prompt: from 2 to 12. The loop waits for step
// 2, 3, and decides step 4 of the second one, which the first stage takes at 12, until 13; it looks again
// when that stage has passed on step 3, at 12, and finds nobody. Step 3 ends at 22, step 4 at 23.
TEST(TrtllmPipeline, R38ALongPromptHoldsUpTheOthers) {
  TrtllmKnobs k = trtllm_stages(2);
  k.max_batch_size = 1;
  TrtllmScheduler s(k);
  const Played p = play({{Seconds(0), 1, 1, {}}, {Seconds(0), 1, 2, {}}, {Seconds(0.5), 10, 1, {}}}, s,
                        TokenStages(), true);
  const std::vector<AnsweredRequest> a = by_number(p.answers);
  ASSERT_EQ(a.size(), 3U);
  EXPECT_NEAR(a[0].last.value, 2, 1e-12);
  EXPECT_NEAR(a[1].first.value, 3, 1e-12);
  EXPECT_NEAR(a[1].last.value, 23, 1e-12);
  EXPECT_NEAR(a[2].first.value, 22, 1e-12);
}

// The four requests of R38TwoStepsFillTwoStages, up to 3: the loop looks at 1, which is no step's end, and
// the first step is told from 0 to 2. A replica that dies before or at a time between does so then.
TEST(TrtllmPipeline, R38StepsAreToldFromEndToEnd) {
  const StagedTimes times(std::vector<StageTime>(2, {Seconds(1), Seconds(1), Seconds(0)}));
  TrtllmKnobs k = trtllm_stages(2);
  k.max_batch_size = 2;
  for (const double dies : {0.5, 1.5, 100.0}) {
    SCOPED_TRACE(dies);
    TrtllmScheduler s(k);
    std::vector<PlayedStep> told;
    PlayedEngine engine(s, times, true, {}, [&](const PlayedStep& step) { told.push_back(step); });
    engine.die_at(Seconds(dies));
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine.take({Seconds(0), 4, 3, {}}, Seconds(0)));
    std::vector<double> events;
    while (!engine.idle() && !engine.dead()) {
      engine.play(Seconds(1000));
      events.push_back(engine.now().value);
    }
    EXPECT_EQ(engine.dead(), dies < 100);
    if (engine.dead()) {
      EXPECT_EQ(engine.now(), Seconds(dies));
      continue;
    }
    EXPECT_EQ(events, (std::vector<double>{1, 2, 3, 4, 5, 6, 7}));
    ASSERT_EQ(told.size(), 6U);
    for (std::size_t i = 0; i < told.size(); ++i) {
      EXPECT_EQ(told[i].from, Seconds(i == 0 ? 0 : static_cast<double>(i + 1)));
      EXPECT_EQ(told[i].to, Seconds(static_cast<double>(i + 2)));
      EXPECT_EQ(told[i].steps, 1U);
    }
    EXPECT_NEAR(engine.served().busy.value, 7, 1e-12);
  }
}

// Four stages of 1 s and a request a step: steps 1 and 2 are decided at 0, 3 and 4 at the looks at 1 and 2,
// and at 3 there is nobody. They end at 4 to 7, the first of them told from 0 on.
TEST(TrtllmPipeline, R38ManyLooksAreOneStepsTime) {
  const StagedTimes times(std::vector<StageTime>(4, {Seconds(1), Seconds(1), Seconds(0)}));
  TrtllmKnobs k = trtllm_stages(4);
  k.max_batch_size = 1;
  TrtllmScheduler s(k);
  std::vector<double> from, to, events;
  PlayedEngine engine(s, times, true, {}, [&](const PlayedStep& step) {
    from.push_back(step.from.value);
    to.push_back(step.to.value);
  });
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine.take({Seconds(0), 4, 1, {}}, Seconds(0)));
  while (!engine.idle()) {
    engine.play(Seconds(1000));
    events.push_back(engine.now().value);
  }
  EXPECT_EQ(events, (std::vector<double>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(from, (std::vector<double>{0, 4, 5, 6}));
  EXPECT_EQ(to, (std::vector<double>{4, 5, 6, 7}));
}

// One who is alone goes on when its token is seen, however the times of steps are rounded: first come, last
// seen.
TEST(TrtllmPipeline, R38OneAloneNeverStandsStill) {
  RandomStream random(1, "alone");
  for (int i = 0; i < 2000; ++i) {
    const double came = 0.05 * random.exponential(), busy = 0.1 * random.exponential();
    const StagedTimes times(std::vector<StageTime>(2, {Seconds(busy), Seconds(busy), Seconds(busy / 7)}));
    TrtllmScheduler s(trtllm_stages(2));
    const Played p = play({{Seconds(came), 6, 3, {}}}, s, times, true);
    ASSERT_EQ(p.answers.size(), 1U) << i;
    EXPECT_NEAR(p.answers[0].first.value, came + 2 * busy + 2 * busy / 7, 1e-12 * (1 + busy));
    EXPECT_NEAR(p.answers[0].last.value, came + 6 * busy + 6 * busy / 7, 1e-12 * (1 + busy));
  }
}

TEST(TrtllmPipeline, R38WhatIsNotPlayedIsRefused) {
  const auto fault = [](const TrtllmKnobs& k, PairRole role = PairRole::none, const DraftLaw& law = {}) {
    try {
      const TrtllmScheduler s(k, role, law);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  TrtllmKnobs k = trtllm_stages(2);
  EXPECT_EQ(fault(k), "");
  EXPECT_THAT(fault(k, PairRole::none, DraftLaw({0.7}, 1)), HasSubstr("drafts in stages"));
  EXPECT_THAT(fault(k, PairRole::decodes), HasSubstr("stages in pairs of pools"));
  k.capacity_scheduler_policy = TrtllmPolicy::max_utilization;
  EXPECT_THAT(fault(k), HasSubstr("pauses nobody where there are stages"));
  k = trtllm_stages(2);
  k.state_slots = 8;
  k.enable_block_reuse = false;
  EXPECT_THAT(fault(k), HasSubstr("states of requests in stages"));
}

}  // namespace
}  // namespace shardline
