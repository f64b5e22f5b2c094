// When steps end that pass the stages of a pipeline together.
#include "planner/requests/pipeline_clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/random.hpp"
#include "tests/planner/requests/staged_times.hpp"

namespace shardline {
namespace {

StepBatch decodes(std::uint32_t requests) {
  StepBatch b;
  b.decodes = requests;
  return b;
}

// Stages of 2 and 3 s, 1 s over each link. Step 1 is in them from 0 to 2 and from 3 to 6, and its tokens are
// back at 7. Step 2 from 2 to 4, its link is free at 3: at the second stage at 5, which is free at 6; 9, 10.
// Step 3 goes on from the tokens of step 1: from 7 to 9, and 10 to 13; 14. Step 4 from those of step 2 that
// are there at 10: to 12, and 13 to 16; 17.
TEST(PipelineClock, R36StepsFollowEachOtherThroughTheStages) {
  const StagedTimes times({{Seconds(2), Seconds(2), Seconds(1)}, {Seconds(3), Seconds(3), Seconds(1)}});
  PipelineClock clock(times, {2});
  for (int i = 0; i < 3; ++i) clock.decided(Seconds(0), decodes(1), true);
  EXPECT_EQ(clock.next_ends(), Seconds(7));
  clock.decided(Seconds(7), decodes(1), true);
  EXPECT_EQ(clock.next_ends(), Seconds(10));
  EXPECT_EQ(clock.next_ends(), Seconds(14));
  EXPECT_EQ(clock.next_ends(), Seconds(17));
  // Nothing begins before it is decided, and the stages are free long since: 100, 102, 103, 106, 107.
  clock.decided(Seconds(100), decodes(1), true);
  EXPECT_EQ(clock.next_ends(), Seconds(107));
}

// The same, but that 4 s pass before the second stage begins with the next: step 2 from 7 to 10; 11. Step 3
// goes on from tokens at 7, is there at 10, and begins at 11; 14, 15.
TEST(PipelineClock, R36AStageMayBeOccupiedForLonger) {
  const StagedTimes times({{Seconds(2), Seconds(2), Seconds(1)}, {Seconds(3), Seconds(4), Seconds(1)}});
  PipelineClock clock(times, {2});
  for (int i = 0; i < 3; ++i) clock.decided(Seconds(0), decodes(1), true);
  EXPECT_EQ(clock.next_ends(), Seconds(7));
  EXPECT_EQ(clock.next_ends(), Seconds(11));
  EXPECT_EQ(clock.next_ends(), Seconds(15));
}

// Stages of 1 s, and 3 s over the link between: step 1 is there at 4 and ends at 5. Step 2 is computed at 2,
// its link is free at 4, and it is there at 7: 8. Step 3 goes on from tokens at 5, is computed at 6, and
// there at 10: 11.
TEST(PipelineClock, R36ALinkCarriesOneStepAtATime) {
  const StagedTimes times({{Seconds(1), Seconds(1), Seconds(3)}, {Seconds(1), Seconds(1), Seconds(0)}});
  PipelineClock clock(times, {2});
  for (int i = 0; i < 3; ++i) clock.decided(Seconds(0), decodes(1), true);
  EXPECT_EQ(clock.next_ends(), Seconds(5));
  EXPECT_EQ(clock.next_ends(), Seconds(8));
  EXPECT_EQ(clock.next_ends(), Seconds(11));
}

// Parts of prompts without a token hold up nobody: the third is in the first stage from 4 to 6, and waits for
// the second one, which is free at 9; 12, 13.
TEST(PipelineClock, R36OnlyTokensAreWaitedFor) {
  const StagedTimes times({{Seconds(2), Seconds(2), Seconds(1)}, {Seconds(3), Seconds(3), Seconds(1)}});
  PipelineClock clock(times, {2});
  for (int i = 0; i < 3; ++i) clock.decided(Seconds(0), decodes(1), false);
  EXPECT_EQ(clock.next_ends(), Seconds(7));
  EXPECT_EQ(clock.next_ends(), Seconds(10));
  EXPECT_EQ(clock.next_ends(), Seconds(13));
}

// One that is alone has the pipeline for itself every second step: nobody's turn takes no time.
TEST(PipelineClock, R36ATurnOfNobodyTakesNoTime) {
  const StagedTimes times({{Seconds(2), Seconds(2), Seconds(1)}, {Seconds(3), Seconds(3), Seconds(1)}});
  PipelineClock clock(times, {2});
  double now = 0;
  for (int i = 1; i < 5; ++i) {
    clock.decided(Seconds(now), decodes(1), true);
    clock.decided(Seconds(now), {}, false);
    EXPECT_EQ(clock.next_ends(), Seconds(7.0 * i));
    EXPECT_EQ(clock.next_ends(), Seconds(7.0 * i));
    now = 7.0 * i;
  }
  clock.decided(Seconds(1000), {}, false);
  EXPECT_EQ(clock.next_ends(), Seconds(1000));  // its turn is over at once
}

// Steps that are alike and all decided in time go round as customers in a ring [S9]: one every
// max(sum of stages and links, stages x longest stage) / stages.
TEST(PipelineClock, R36AlikeStepsAreARing) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    RandomStream random(seed, "ring");
    std::vector<StageTime> stages(2 + random.below(5));
    double sum = 0, longest = 0;
    for (StageTime& s : stages) {
      s.busy = Seconds(random.exponential());
      s.occupied = s.busy + Seconds(random.below(2) == 0 ? 0 : random.exponential());
      s.handed = Seconds(random.exponential() / 10);
      sum += (s.busy + s.handed).value;
      longest = std::max({longest, s.occupied.value, s.handed.value});
    }
    const StagedTimes times(stages);
    const std::size_t rounds = 200, count = stages.size();
    PipelineClock clock(times, {count});
    std::vector<double> ends;
    for (std::size_t i = 0; i < rounds * count; ++i) {
      clock.decided(Seconds(0), decodes(1), true);
      ends.push_back(clock.next_ends().value);
    }
    const double round = (ends.back() - ends[ends.size() - 1 - 100 * count]) / 100;
    EXPECT_NEAR(round / std::max(sum, longest * static_cast<double>(count)), 1, 1e-9) << seed;
  }
}

// Every stage takes a second for each token, and hands over at once.
class AlikeStages : public StageTimes {
 public:
  explicit AlikeStages(std::size_t count) : count_(count) {}
  std::size_t count() const override { return count_; }
  void of(const StepBatch& b, std::span<StageTime> out) const override {
    const Seconds time(static_cast<double>(b.decodes + b.prompt_tokens()));
    std::fill(out.begin(), out.end(), StageTime{time, time, Seconds(0)});
  }

 private:
  std::size_t count_;
};

StepBatch prompts(std::uint32_t tokens) {
  StepBatch b;
  b.prompts.push_back({tokens, 0});
  return b;
}

// Four stages in which a request that decodes takes a second, and a prompt of 10 tokens ten. SGLang has four
// micro-batches: steps 1, 3 and 4 decode, 2 is the prompt. Step 1 is through at 4, the prompt passes the
// first stage from 1 to 11 and ends at 41; step 3 is in the first stage until 12, in the last one until 42.
// The host looks at the tokens of step n when the first stage has computed step n + 2: at those of step 1 at
// 12, not at 4; at those of step 2 at 41.
TEST(PipelineClock, R37TokensAreLookedAtBehindALaterStep) {
  const AlikeStages times(4);
  PipelineClock clock(times, {4, 0, 2});
  clock.decided(Seconds(0), decodes(1), true);
  clock.decided(Seconds(0), prompts(10), true);
  for (int i = 0; i < 2; ++i) clock.decided(Seconds(0), decodes(1), true);
  EXPECT_EQ(clock.next_ends(), Seconds(12));
  clock.decided(Seconds(12), {}, false);
  EXPECT_EQ(clock.next_ends(), Seconds(41));
}

// The same where the third turn is nobody's: the stream has computed the prompt then, 11, and looks.
TEST(PipelineClock, R37NobodysTurnIsBehindTheStepBefore) {
  const AlikeStages times(4);
  PipelineClock clock(times, {4, 0, 2});
  clock.decided(Seconds(0), decodes(1), true);
  clock.decided(Seconds(0), prompts(10), true);
  for (int i = 0; i < 2; ++i) clock.decided(Seconds(0), {}, false);
  EXPECT_EQ(clock.next_ends(), Seconds(11));
}

// Two stages with one micro-batch more, three in all: the last stage sends the tokens of step 1 when step 2,
// ten seconds in each stage, has reached it, at 11, and not when it has computed them, at 2. Step 3 decodes
// behind it: in the first stage until 12, in the last one, which is free at 21, until 22. Step 4 is the first
// micro-batch's again. Its first stage has it when the tokens of step 2 are there, 21: step 2 is sent when
// step 3 has come, at 12, and computed at 21. It ends at 23.
TEST(PipelineClock, R37BufferedTokensWaitForTheNextStep) {
  const AlikeStages times(2);
  PipelineClock clock(times, {2, 1, 1});
  clock.decided(Seconds(0), decodes(1), true);
  clock.decided(Seconds(0), prompts(10), true);
  clock.decided(Seconds(0), decodes(1), true);
  EXPECT_EQ(clock.next_ends(), Seconds(11));
  clock.decided(Seconds(11), decodes(1), true);
  EXPECT_EQ(clock.next_ends(), Seconds(21));
  EXPECT_EQ(clock.next_ends(), Seconds(22));
  EXPECT_EQ(clock.next_ends(), Seconds(23));
}

void expect_end(PipelineClock& clock, double at) {
  const PipelineClock::Event e = clock.next();
  EXPECT_TRUE(e.ends);
  EXPECT_EQ(e.at, Seconds(at));
}
void expect_decision(PipelineClock& clock, double at) {
  const PipelineClock::Event e = clock.next();
  EXPECT_FALSE(e.ends);
  EXPECT_EQ(e.at, Seconds(at));
  EXPECT_TRUE(clock.decides(Seconds(at)));
}

// Two stages that compute a token in a second. Step 1 is in them from 0 to 1 and to 2, step 2, decided at
// once behind it, from 1 to 2 and to 3. The loop looks again when the first stage has passed on step 1. Step
// 3, decided then, is a prompt of 10 tokens: from 2 to 12, and to 22. The loop looks when step 2 has passed
// the first stage, 2, and sees the token of step 1. Step 4 of that request waits for the first stage, 12 to
// 13 and 22 to 23, and the loop until that has passed on the prompt: the token of step 2, back at 3, is seen
// at 12. Step 5: from 13 to 14, 23 to 24; at 13 there is nobody to decide for, and the loop waits for step 3.
TEST(PipelineClock, R38TheLoopLooksWhenTheFirstStageHasPassedOn) {
  const AlikeStages times(2);
  StageOrder order;
  order.looks_behind = 1;
  PipelineClock clock(times, order);
  EXPECT_TRUE(clock.decides(Seconds(0)));
  clock.decided(Seconds(0), decodes(1), true);
  EXPECT_TRUE(clock.decides(Seconds(0)));
  clock.decided(Seconds(0), decodes(1), true);
  EXPECT_FALSE(clock.decides(Seconds(0)));
  expect_decision(clock, 1);
  clock.decided(Seconds(1), prompts(10), true);
  expect_end(clock, 2);
  EXPECT_TRUE(clock.decides(Seconds(2)));
  clock.decided(Seconds(2), decodes(1), true);
  EXPECT_FALSE(clock.decides(Seconds(2)));
  expect_end(clock, 12);
  EXPECT_TRUE(clock.decides(Seconds(12)));
  clock.decided(Seconds(12), decodes(1), true);
  expect_decision(clock, 13);
  clock.waits(Seconds(13));
  EXPECT_FALSE(clock.decides(Seconds(22)));
  expect_end(clock, 22);
  clock.waits(Seconds(22));
  expect_end(clock, 23);
  clock.waits(Seconds(23));
  expect_end(clock, 24);
  clock.waits(Seconds(24));
  EXPECT_TRUE(clock.decides(Seconds(24)));  // nothing is under way
}

// Four stages: tokens of a step are asked for three decisions later. Steps 1 and 2 are single tokens, back at
// 4 and 5, step 3 a prompt of 10, in the first stage from 2 to 12. Step 4 is decided at 2, and the loop looks
// at 12: for the tokens of step 1, not yet for those of step 2. Those it sees with the next decision, at once
// where that is for nobody, and with step 5 when step 4 has passed the first stage, at 13.
TEST(PipelineClock, R38TokensAreAskedForSoManyDecisionsLater) {
  for (const bool somebody : {false, true}) {
    const AlikeStages times(4);
    StageOrder order;
    order.looks_behind = 3;
    PipelineClock clock(times, order);
    clock.decided(Seconds(0), decodes(1), true);
    clock.decided(Seconds(0), decodes(1), true);
    expect_decision(clock, 1);
    clock.decided(Seconds(1), prompts(10), true);
    expect_decision(clock, 2);
    clock.decided(Seconds(2), decodes(1), true);
    expect_end(clock, 12);
    EXPECT_TRUE(clock.decides(Seconds(12)));
    if (somebody)
      clock.decided(Seconds(12), decodes(1), true);
    else
      clock.waits(Seconds(12));
    expect_end(clock, somebody ? 13 : 12);
  }
}

}  // namespace
}  // namespace shardline
