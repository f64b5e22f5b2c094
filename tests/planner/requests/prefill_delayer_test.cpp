// SGLang's prefill delayer: its rule, case by case, and a schedule of two groups by hand.
#include <gtest/gtest.h>

#include <vector>

#include "planner/requests/prefill_delayer.hpp"
#include "planner/requests/sglang_scheduler.hpp"
#include "tests/planner/requests/group_play.hpp"

namespace shardline {
namespace {

using Bids = std::vector<PromptBid>;

PromptBid bid(std::uint32_t running = 0, std::uint32_t most = 1, std::uint32_t waiting = 1,
              double held = 0.5) {
  return {true, held, running, most, waiting};
}

DelayerKnobs knobs(std::uint32_t passes = 30) {
  DelayerKnobs k;
  k.enabled = true;
  k.max_delay_passes = passes;
  k.max_running_requests = 10;
  return k;
}

TEST(PrefillDelayer, R40SomeWaitForOthersForOneStepLessThanThePasses) {
  PrefillDelayer d(knobs(4));
  const Bids mixed{bid(), {}};
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t i = 1; i < 4; ++i) {
      EXPECT_FALSE(d.allows(mixed, Seconds(0)));
      EXPECT_EQ(d.delayed(), i);
    }
    EXPECT_TRUE(d.allows(mixed, Seconds(0)));
    EXPECT_EQ(d.delayed(), 0U);
  }
  // Nobody has any, or all have: the count begins anew.
  for (const Bids& other : {Bids{{}, {}}, Bids{bid(), bid()}}) {
    EXPECT_FALSE(d.allows(mixed, Seconds(0)));
    EXPECT_TRUE(d.allows(other, Seconds(0)));
    EXPECT_EQ(d.delayed(), 0U);
  }
  PrefillDelayer once(knobs(1));
  EXPECT_TRUE(once.allows(mixed, Seconds(0)));
}

TEST(PrefillDelayer, R40AllWaitWhileFewPlacesAreFreeButTheFirstTime) {
  PrefillDelayer d(knobs());
  const Bids few{bid(8, 1), bid(2, 3)};  // 10 - 8 places, 3 prompts at most
  EXPECT_TRUE(d.allows(few, Seconds(0)));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(d.allows(few, Seconds(0)));  // no bound
  EXPECT_TRUE(d.allows(Bids({bid(7, 1), bid(2, 3)}), Seconds(0)));
}

TEST(PrefillDelayer, R40NobodyWaitsWhereAGroupHasLittleInItsCache) {
  DelayerKnobs k = knobs();
  k.token_usage_low_watermark = 0.3;
  PrefillDelayer d(k);
  EXPECT_FALSE(d.allows(Bids({bid(0, 1, 1, 0.3), {}}), Seconds(0)));
  EXPECT_TRUE(d.allows(Bids({bid(0, 1, 1, 0.29), {}}), Seconds(0)));
  EXPECT_TRUE(d.allows(Bids({bid(9, 3, 1, 0.29), bid(9, 3)}), Seconds(0)));
  EXPECT_FALSE(d.allows(Bids({bid(), {false, 0.1, 0, 0, 0}}), Seconds(0)));  // not one without prompts
}

TEST(PrefillDelayer, R40AllWaitForAPartOfThoseThatRunSoLong) {
  DelayerKnobs k = knobs();
  k.max_running_requests = 100;
  k.queue_min_ratio = 0.5;
  k.max_delay = Seconds(1);
  PrefillDelayer d(k);
  const Bids waits{bid(9, 5, 3), bid(1, 2, 1)};  // 3 of min(floor(4.5), 5)
  EXPECT_TRUE(d.allows(waits, Seconds(0)));      // the first time
  EXPECT_FALSE(d.allows(waits, Seconds(1)));
  EXPECT_FALSE(d.allows(waits, Seconds(1.9)));
  EXPECT_TRUE(d.allows(waits, Seconds(2)));
  EXPECT_FALSE(d.allows(waits, Seconds(3)));
  EXPECT_TRUE(d.allows(Bids({bid(9, 5, 4), bid(1, 2, 1)}), Seconds(3)));
  EXPECT_TRUE(d.allows(Bids({bid(9, 3, 3), bid(1, 2, 1)}), Seconds(3)));  // of 3 at most
  EXPECT_TRUE(d.allows(Bids({bid(0, 5, 1), bid(0, 2, 1)}), Seconds(3)));  // nobody runs
}

// Steps take 10 ms and 1 ms more for every prompt token of the group with most. Requests 0 and 1 come
// together, to group 0 and 1, and are computed at once: their prompts of 10 tokens end at 20 ms. Request 2
// comes at 25 ms to group 0 and finds the step of 20 to 30 ms under way and that of 30 to 40 decided. It
// could be in that of 40 to 50 ms, but group 1 has nobody: with 3 passes two more steps go by without it, and
// it is in that of 60 to 80.
TEST(PrefillDelayer, R40APromptWaitsForTheOtherGroupInAPlay) {
  SglangKnobs k;
  k.max_running_requests = 8;
  k.max_total_tokens = 8192;
  const LinearStepTimes times({Seconds(0.01), Seconds(0), Seconds(0), Seconds(0.001), Seconds(0)});
  const auto first_of_third = [&](bool delays, std::uint32_t passes) {
    k.enable_prefill_delayer = delays;
    k.max_delay_passes = passes;
    Schedulers groups;
    for (int i = 0; i < 2; ++i) groups.push_back(std::make_unique<SglangScheduler>(k));
    std::vector<TraceRequest> requests;
    for (const double at : {0.0, 0.0, 0.025}) {
      TraceRequest r;
      r.arrival = Seconds(at);
      r.input = 10;
      r.output = 100;
      requests.push_back(r);
    }
    ReplicaGroups rule{2, GroupRouting::in_turn};
    rule.delayer = delayer_of(k);
    Played p = play_groups(requests, groups, rule, times, true);
    for (const AnsweredRequest& a : p.answers)
      if (a.number == 2) return a.first.value;
    return 0.0;
  };
  EXPECT_NEAR(first_of_third(false, 3), 0.060, 1e-12);
  EXPECT_NEAR(first_of_third(true, 1), 0.060, 1e-12);
  EXPECT_NEAR(first_of_third(true, 2), 0.070, 1e-12);
  EXPECT_NEAR(first_of_third(true, 3), 0.080, 1e-12);
  EXPECT_NEAR(first_of_third(true, 30), 0.350, 1e-12);
}

}  // namespace
}  // namespace shardline
