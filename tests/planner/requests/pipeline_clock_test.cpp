// When steps end that pass the stages of a pipeline together.
#include "planner/requests/pipeline_clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
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
  PipelineClock clock(times);
  for (int i = 0; i < 3; ++i) clock.decided(Seconds(0));
  EXPECT_EQ(clock.next_ends(decodes(1), true), Seconds(7));
  clock.decided(Seconds(7));
  EXPECT_EQ(clock.next_ends(decodes(1), true), Seconds(10));
  EXPECT_EQ(clock.next_ends(decodes(1), true), Seconds(14));
  EXPECT_EQ(clock.next_ends(decodes(1), true), Seconds(17));
  // Nothing begins before it is decided, and the stages are free long since: 100, 102, 103, 106, 107.
  clock.decided(Seconds(100));
  EXPECT_EQ(clock.next_ends(decodes(1), true), Seconds(107));
}

// The same, but that 4 s pass before the second stage begins with the next: step 2 from 7 to 10; 11. Step 3
// goes on from tokens at 7, is there at 10, and begins at 11; 14, 15.
TEST(PipelineClock, R36AStageMayBeOccupiedForLonger) {
  const StagedTimes times({{Seconds(2), Seconds(2), Seconds(1)}, {Seconds(3), Seconds(4), Seconds(1)}});
  PipelineClock clock(times);
  for (int i = 0; i < 3; ++i) clock.decided(Seconds(0));
  EXPECT_EQ(clock.next_ends(decodes(1), true), Seconds(7));
  EXPECT_EQ(clock.next_ends(decodes(1), true), Seconds(11));
  EXPECT_EQ(clock.next_ends(decodes(1), true), Seconds(15));
}

// Stages of 1 s, and 3 s over the link between: step 1 is there at 4 and ends at 5. Step 2 is computed at 2,
// its link is free at 4, and it is there at 7: 8. Step 3 goes on from tokens at 5, is computed at 6, and
// there at 10: 11.
TEST(PipelineClock, R36ALinkCarriesOneStepAtATime) {
  const StagedTimes times({{Seconds(1), Seconds(1), Seconds(3)}, {Seconds(1), Seconds(1), Seconds(0)}});
  PipelineClock clock(times);
  for (int i = 0; i < 3; ++i) clock.decided(Seconds(0));
  EXPECT_EQ(clock.next_ends(decodes(1), true), Seconds(5));
  EXPECT_EQ(clock.next_ends(decodes(1), true), Seconds(8));
  EXPECT_EQ(clock.next_ends(decodes(1), true), Seconds(11));
}

// Parts of prompts without a token hold up nobody: the third is in the first stage from 4 to 6, and waits for
// the second one, which is free at 9; 12, 13.
TEST(PipelineClock, R36OnlyTokensAreWaitedFor) {
  const StagedTimes times({{Seconds(2), Seconds(2), Seconds(1)}, {Seconds(3), Seconds(3), Seconds(1)}});
  PipelineClock clock(times);
  for (int i = 0; i < 3; ++i) clock.decided(Seconds(0));
  EXPECT_EQ(clock.next_ends(decodes(1), false), Seconds(7));
  EXPECT_EQ(clock.next_ends(decodes(1), false), Seconds(10));
  EXPECT_EQ(clock.next_ends(decodes(1), false), Seconds(13));
}

// One that is alone has the pipeline for itself every second step: nobody's turn takes no time.
TEST(PipelineClock, R36ATurnOfNobodyTakesNoTime) {
  const StagedTimes times({{Seconds(2), Seconds(2), Seconds(1)}, {Seconds(3), Seconds(3), Seconds(1)}});
  PipelineClock clock(times);
  double now = 0;
  for (int i = 1; i < 5; ++i) {
    clock.decided(Seconds(now));
    clock.decided(Seconds(now));
    EXPECT_EQ(clock.next_ends(decodes(1), true), Seconds(7.0 * i));
    EXPECT_EQ(clock.next_ends({}, false), Seconds(7.0 * i));
    now = 7.0 * i;
  }
  clock.decided(Seconds(1000));
  EXPECT_EQ(clock.next_ends({}, false), Seconds(1000));  // its turn is over at once
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
    PipelineClock clock(times);
    const std::size_t rounds = 200, count = stages.size();
    std::vector<double> ends;
    for (std::size_t i = 0; i < rounds * count; ++i) {
      clock.decided(Seconds(0));
      ends.push_back(clock.next_ends(decodes(1), true).value);
    }
    const double round = (ends.back() - ends[ends.size() - 1 - 100 * count]) / 100;
    EXPECT_NEAR(round / std::max(sum, longest * static_cast<double>(count)), 1, 1e-9) << seed;
  }
}

}  // namespace
}  // namespace shardline
