// Pairs of vLLM's pools with attention groups [R19], against their engines' loops written plainly, and by
// hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "planner/requests/group_times.hpp"
#include "planner/requests/pair.hpp"
#include "tests/planner/requests/pair_case.hpp"
#include "tests/planner/requests/plain_pair.hpp"
#include "tests/support/loads.hpp"

namespace shardline {
namespace {

// SHARDLINE_WHOLE=1 plays 4,000 loads.
TEST(VllmPairGroups, R19PlayIsThePlainLoops) {
  const std::uint64_t seeds = testing::loads(400);
  std::uint64_t preempted = 0, found = 0, still = 0, local = 0, dummies = 0, jumped = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const PairCase c = with_groups(random_pair(seed), seed);
    const BentStepTimes times;
    PlainPair slow = plain(c, times);
    const std::optional<PlayedPair> both = played_like(slow, c, seed);
    if (!both) {
      ++still;
      continue;
    }
    ASSERT_FALSE(HasFailure()) << seed;
    const PlayedPair& fast = *both;
    for (const auto& [came, b] : fast.answers) {
      found += b.found;
      preempted += b.preempted;
    }
    local += fast.run.local_prefills;
    std::uint64_t mine = 0, events = 0;
    for (const auto* pool : {&fast.run.prefill, &fast.run.decode})
      for (const ServedRequests& s : *pool) mine += s.dummies, events += s.events;
    ASSERT_EQ(mine, slow.dummies) << seed;
    dummies += mine;
    jumped += events < mine ? 1 : 0;
  }
  if (testing::kSanitized) return;  // a part of the loads
  // The loads are such that all of it happens.
  EXPECT_GT(found, 0u);
  EXPECT_GT(preempted, 0u);
  EXPECT_GT(dummies, 100 * seeds);
  EXPECT_GT(jumped, seeds / 20);
  EXPECT_GT(still, 0u);
  EXPECT_GT(local, 100u);
  EXPECT_LT(still, seeds / 3);
}

TEST(VllmPairGroups, R19EveryRequestOnceAndAllBlocksFree) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    PairCase c = with_groups(random_pair(seed), seed);
    c.to_prefill = static_cast<Router>(seed % 3);
    c.to_decode = static_cast<Router>(seed / 3 % 3);
    c.decode.num_gpu_blocks += 400;  // so that none stands still
    const PlayedPair a = played(c);
    ASSERT_EQ(a.answers.size(), c.requests.size());
    std::uint64_t prompts = 0, answers = 0, tokens = 0, gaps = 0, asked = 0;
    double ttft = 0;
    for (const ServedRequests& s : a.run.prefill) prompts += s.answered;
    for (const ServedRequests& s : a.run.decode)
      answers += s.answered, tokens += s.answer_tokens, gaps += s.itl.count();
    for (const TraceRequest& r : c.requests) {
      asked += static_cast<std::uint64_t>(std::min<std::int64_t>(r.output, 700 - r.input));
      const AnsweredRequest& x = a.answers.at(r.arrival.value);
      if (r.input > c.max_local_prefill) ttft += (x.first - x.came).value;
    }
    EXPECT_EQ(prompts + a.run.local_prefills, c.requests.size());
    EXPECT_EQ(answers, c.requests.size());
    EXPECT_EQ(tokens, asked);
    EXPECT_EQ(gaps, tokens - answers) << "one before each token but the first";
    for (std::size_t i = c.senders * c.prefill_groups.count; i < a.schedulers.size(); ++i)
      EXPECT_EQ(a.schedulers[i]->kv_held(), 0);
    const auto all = [](const RunQuantiles& q) { return q.mean() * static_cast<double>(q.count()); };
    EXPECT_NEAR(all(a.run.prompt) + all(a.run.room) + all(a.run.transfer) + all(a.run.begin), ttft,
                1e-9 * (1 + ttft))
        << "nothing of TTFT is in two parts";
  }
}

// One request of 100 tokens and 3 of answer at 0 as in Pair.R12OneRequestByHand, to a replica that decodes of
// two groups.
struct GroupsByHand {
  PairCase c;
  const double dummy = dummy_steps(BentStepTimes()).start.value;
  double room = 0;
  GroupsByHand() {
    c.prefill.max_model_len = c.decode.max_model_len = 700;
    c.links = {Seconds(0.001), Seconds(1e-5)};
    c.decode_groups = {2, GroupRouting::fewest, 0, VllmScheduler::kWave};
    c.requests = {{Seconds(0), 100, 3, {}}};
    StepBatch prompt;
    prompt.prompts.push_back({100, 0});
    room = 0.002 + BentStepTimes().of(prompt).value + 0.002;
  }
  static double step(std::uint32_t cached) {
    StepBatch b;
    b.decodes = 1;
    b.cached = b.longest = cached;
    return BentStepTimes().of(b).value;
  }
};

// A cache that comes in the first dummy batch is told by the next one that is decided, and known at its end.
TEST(VllmPairGroups, R19OneRequestByHand) {
  for (const bool async : {false, true}) {
    GroupsByHand h;
    h.c.decode.async_scheduling = async;
    const PlayedPair a = played(h.c);
    const double begins = h.room + (async ? 4 : 2) * h.dummy;
    EXPECT_NEAR(a.answers.at(0).first.value, begins + h.step(99), 1e-15) << async;
    EXPECT_NEAR(a.answers.at(0).last.value, begins + h.step(99) + h.step(100) + h.step(101), 1e-15);
    const ServedRequests& decode = a.run.decode.front();
    EXPECT_EQ(decode.steps, 3U);
    EXPECT_EQ(decode.dummies, 29U) << "of 32 steps, after which the engines ask whether anybody has requests";
    EXPECT_NEAR(decode.dummy_time.value, 29 * h.dummy, 1e-15);
    EXPECT_NEAR(decode.busy.value, h.step(99) + h.step(100) + h.step(101), 1e-15);
    EXPECT_EQ(decode.end, a.answers.at(0).last) << "dummy batches serve nobody";
    EXPECT_EQ(a.run.prefill.front().dummies, 0U) << "of one engine";
  }
}

// Whoever comes while they still run waits for the end of one, and after them for nothing.
TEST(VllmPairGroups, R19DummyBatchesGoOnAfterTheLastAnswer) {
  for (const double later : {0.5, 20.5, 30.0}) {
    GroupsByHand h;
    h.c.prefill = h.c.decode;
    const double last = h.room + 2 * h.dummy + h.step(99) + h.step(100) + h.step(101);
    // Reaches the pool that decodes so many dummy batches after the last answer.
    const double reaches = last + later * h.dummy;
    h.c.requests.push_back({Seconds(reaches - h.room), 100, 1, {}});
    h.c.prefill.async_scheduling = h.c.decode.async_scheduling = false;
    const PlayedPair a = played(h.c);
    const double begins = later > 27 ? reaches : last + std::ceil(later) * h.dummy;
    EXPECT_NEAR(a.answers.rbegin()->second.first.value, begins + 2 * h.dummy + h.step(99), 1e-12) << later;
  }
}

// A transfer of 40 s is thousands of them, in a few events.
TEST(VllmPairGroups, R19DummyBatchesAreJumpedOver) {
  GroupsByHand h;
  h.c.decode.async_scheduling = false;
  h.c.links.token = Seconds(0.4);
  const PlayedPair a = played(h.c);
  const double dummies = std::ceil(40.001 / h.dummy) + 1;
  EXPECT_NEAR(a.answers.at(0).first.value, h.room + dummies * h.dummy + h.step(99), 1e-11);
  EXPECT_GT(a.run.decode.front().dummies, 3900U);
  EXPECT_LT(a.run.decode.front().events, 12U);
}

// Engines that stand still would run dummy batches for ever.
TEST(VllmPairGroups, R19StandingStillIsSaid) {
  int still = 0;
  for (std::uint64_t seed = 0; seed < 400 && still < 3; seed += 4) {  // crowded ones
    PairCase c = with_groups(random_pair(seed), seed);
    if (c.decode_groups.count == 1) continue;
    c.decode.num_gpu_blocks = 46;
    try {
      played(c);
    } catch (const PairStops& e) {
      ++still;
    }
  }
  EXPECT_EQ(still, 3);
}

}  // namespace
}  // namespace shardline
