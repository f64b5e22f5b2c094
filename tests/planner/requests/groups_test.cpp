// Attention groups behind one barrier: the time of a step, and who comes to which group, by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/requests/group_router.hpp"
#include "planner/requests/group_times.hpp"
#include "sim/base/random.hpp"
#include "tests/planner/requests/random_play.hpp"

namespace shardline {
namespace {

using Groups = std::vector<const StepBatch*>;

StepBatch random_decodes(RandomStream& random, std::uint32_t most) {
  StepBatch b;
  b.decodes = 1 + static_cast<std::uint32_t>(random.below(most));
  for (std::uint32_t i = 0; i < b.decodes; ++i) {
    const auto cached = static_cast<std::uint32_t>(1 + random.below(5000));
    b.cached += cached;
    b.longest = std::max(b.longest, cached);
  }
  return b;
}

TEST(GroupTimes, R10GroupsAlikeTakeWhatOneDoes) {
  const BentStepTimes times;
  RandomStream random(1, "alike");
  for (int i = 0; i < 200; ++i) {
    StepBatch b = random_decodes(random, 50);
    const Groups groups(1 + random.below(5), &b);
    const DecodeStretch all = stretch_of_groups(times, groups), one = times.decode(b);
    EXPECT_EQ(all.start, one.start);
    EXPECT_EQ(all.slope, one.slope);
    EXPECT_EQ(all.steps, one.steps);
    b.prompts = {{100, 7}};
    EXPECT_EQ(step_of_groups(times, groups), times.of(b));
  }
}

// 0.01 s a step, 1 ms a request, 1 us a cached token. The second group's four requests are fewer than the
// graph of six holds: two rows more. It is the slower one by its caches.
TEST(GroupTimes, R10FewerRequestsRunInTheGraphOfTheMost) {
  const LinearStepTimes times({Seconds(0.01), Seconds(1e-3), Seconds(1e-6), Seconds(1e-5), Seconds(0)});
  const StepBatch nothing;
  StepBatch six, four;
  six.decodes = 6;
  six.cached = 600;
  six.longest = 100;
  four.decodes = 4;
  four.cached = 4000;
  four.longest = 1000;
  EXPECT_NEAR(step_of_groups(times, Groups{&six, &nothing, &four}).value, 0.01 + 6e-3 + 4e-3, 1e-15);
  const DecodeStretch line = stretch_of_groups(times, Groups{&six, &nothing, &four});
  EXPECT_NEAR(line.slope.value, 4e-6, 1e-18);
  // The other gains 2 us a step of the 3.4 ms that it is behind: as late as the 1,700th it is no slower.
  EXPECT_NEAR(static_cast<double>(line.steps), 1701, 1);
  // With a prompt somewhere each group has its own rows, and the slowest is waited for.
  StepBatch prompt;
  prompt.prompts = {{500, 0}};
  EXPECT_NEAR(step_of_groups(times, Groups{&six, &nothing, &prompt}).value, 0.01 + 6e-3 + 6e-4, 1e-15);
  EXPECT_NEAR(step_of_groups(times, Groups{&nothing, &nothing, &prompt}).value, 0.01 + 5e-3, 1e-15);
}

// A stretch is its steps: each of them, asked for by itself, lies on the line.
TEST(GroupTimes, R10StretchesAreTheirSteps) {
  const BentStepTimes bent;
  const LinearStepTimes straight({Seconds(0.01), Seconds(1e-5), Seconds(1e-7), Seconds(1e-5), Seconds(1e-9)});
  RandomStream random(2, "stretches");
  std::uint64_t ended_by_another = 0;
  for (int i = 0; i < 500; ++i) {
    const StepTimes& times = i % 2 == 0 ? static_cast<const StepTimes&>(bent) : straight;
    std::vector<StepBatch> batches;
    Groups groups;
    for (int g = 0; g < 4; ++g) batches.push_back(g == 3 ? StepBatch{} : random_decodes(random, 60));
    for (const StepBatch& b : batches) groups.push_back(&b);
    const DecodeStretch line = stretch_of_groups(times, groups);
    ASSERT_GE(line.steps, 1U);
    const std::uint64_t steps = std::min<std::uint64_t>(line.steps, 100'000);
    if (i % 2 == 1 && steps == line.steps) ++ended_by_another;
    for (const std::uint64_t k : {std::uint64_t{0}, steps / 2, steps - 1}) {
      std::vector<StepBatch> later = batches;
      for (StepBatch& b : later) {
        b.cached += k * b.decodes;
        if (b.decodes > 0) b.longest += static_cast<std::uint32_t>(k);
      }
      Groups then;
      for (const StepBatch& b : later) then.push_back(&b);
      const double on_line = (line.start + line.slope * static_cast<double>(k)).value;
      EXPECT_NEAR(step_of_groups(times, then).value / on_line, 1, 1e-12);
    }
  }
  EXPECT_GT(ended_by_another, 20U);
}

TEST(GroupTimes, R10StepsOfNobodyAreOurBug) {
  const BentStepTimes times;
  const StepBatch nothing;
  EXPECT_THROW(stretch_of_groups(times, Groups{&nothing, &nothing}), std::logic_error);
}

TEST(GroupRouter, R11SglangDealsInTurn) {
  GroupRouter router(GroupRouting::in_turn, 3);
  for (const std::size_t group : {0, 1, 2, 0, 1}) EXPECT_EQ(router.route(Seconds(0)), group);
}

// vLLM, three groups and so three API servers, by hand from DPLBAsyncMPClient: each server begins at its own
// group, takes the first of the lowest 4 waiting + running, and counts three more that wait there.
TEST(GroupRouter, R11VllmBalancesByWhatItKnows) {
  GroupRouter router(GroupRouting::fewest, 3);
  EXPECT_EQ(router.route(Seconds(0)), 0U);  // server 0 knows of nobody; then 3 0 0 wait for it
  EXPECT_EQ(router.route(Seconds(0)), 1U);  // server 1: 0 3 0
  EXPECT_EQ(router.route(Seconds(0)), 2U);  // server 2: 0 0 3
  EXPECT_EQ(router.route(Seconds(0)), 1U);  // server 0: 12 0 0 are the scores; then 3 3 0 wait
  EXPECT_EQ(router.route(Seconds(0)), 2U);  // server 1: from group 1 on 12, 0, 0
  EXPECT_EQ(router.route(Seconds(0)), 0U);  // server 2: from group 2 on 12, 0, 0
  // A step from 0.02 s to 0.15 s; what it began with is published at 0.1 s.
  const std::vector<GroupRouter::Counts> counts{{0, 2}, {2, 1}, {0, 1}};
  router.hold(Seconds(0.02), Seconds(0.15), counts);
  EXPECT_EQ(router.route(Seconds(0.05)), 2U);  // server 0 still has 12 12 0
  EXPECT_EQ(router.route(Seconds(0.12)), 2U);  // server 1: 2 9 1; then 2 9 13
  EXPECT_EQ(router.route(Seconds(0.13)), 2U);  // server 2 the same: 1 is the first that it looks at
  EXPECT_EQ(router.route(Seconds(0.14)), 2U);  // and server 0: nobody's own counts are known to others
  EXPECT_EQ(router.route(Seconds(0.14)), 0U);  // server 1: 9 13 2 from group 1 on
  // A step in which nothing is published changes nothing.
  router.hold(Seconds(0.15), Seconds(0.19), std::vector<GroupRouter::Counts>{{9, 9}, {0, 0}, {9, 9}});
  EXPECT_EQ(router.route(Seconds(0.18)), 0U);  // server 2: 13 2 9 from group 2 on
  router.hold(Seconds(0.19), Seconds(0.35), std::vector<GroupRouter::Counts>{{9, 9}, {0, 0}, {9, 9}});
  EXPECT_EQ(router.route(Seconds(0.21)), 1U);
}

// TensorRT-LLM, by hand from DefaultADPRouter: four groups of 2, 0, 1 and 0 requests get five at once. Eight
// in all are two of each; the longest goes first, to the group with the fewest tokens that has not two yet.
TEST(GroupRouter, R11TrtllmDealsWhatIsInItsQueueTogether) {
  std::vector<GroupLoad> groups{{2, 300}, {0, 0}, {1, 50}, {0, 0}};
  const std::vector<std::uint64_t> tokens{10, 400, 20, 400, 60};
  std::vector<std::pair<std::size_t, std::size_t>> dealt;
  for (const Dealt& d : deal_together(tokens, groups)) dealt.emplace_back(d.request, d.group);
  // 400 to group 1 and, as that has 400 now, 400 to group 3; 60 to group 2 (50), which has two then; 20 to
  // group 1, of equal tokens and requests the first; 10 to group 3.
  EXPECT_EQ(dealt,
            (std::vector<std::pair<std::size_t, std::size_t>>{{1, 1}, {3, 3}, {4, 2}, {2, 1}, {0, 3}}));
  EXPECT_EQ(groups[0].requests, 2U);
  EXPECT_EQ(groups[3].tokens, 410U);
  // A group that has more than its part keeps it, and others get up to as many.
  groups = {{5, 10}, {0, 0}};
  EXPECT_EQ(deal_together(std::vector<std::uint64_t>{7, 7}, groups).back().group, 1U);
  EXPECT_EQ(groups[1].requests, 2U);
}

}  // namespace
}  // namespace shardline
