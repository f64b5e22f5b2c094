// Replicas of pairs of vLLM's pools that die and are back [R15], against the plain stepper and by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/planner/requests/pair_case.hpp"
#include "tests/planner/requests/plain_pair.hpp"
#include "tests/support/loads.hpp"

namespace shardline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// SHARDLINE_WHOLE=1 plays 4,000 loads.
void expect_the_failing_stepper(bool groups) {
  const std::uint64_t seeds = testing::loads(400);
  std::uint64_t retried = 0, leases = 0, failed = 0, recomputed = 0, still = 0, cut = 0, local = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    PairCase c = failing_case(seed);
    if (groups) c = with_groups(std::move(c), seed, false);
    const BentStepTimes times;
    PlainPair slow = plain(c, times);
    const std::optional<PlayedPair> both = failing_like(slow, c, seed);
    if (!both) {
      ++still;
      continue;
    }
    ASSERT_FALSE(::testing::Test::HasFailure()) << seed;
    const PlayedPair& fast = *both;
    double end = 0;
    for (const auto& [came, answer] : fast.answers) end = std::max(end, answer.last.value);
    leases += static_cast<std::uint64_t>(
        std::count_if(slow.freed.begin(), slow.freed.end(), [&](double t) { return t < end; }));
    retried += fast.run.retried;
    failed += fast.run.failed_loads;
    recomputed += fast.run.recomputed;
    cut += fast.run.cut_transfers;
    local += fast.run.local_prefills;
  }
  if (testing::kSanitized) return;  // a part of the loads
  // The loads are such that all of it happens.
  EXPECT_GT(retried, 2 * seeds);
  EXPECT_GT(leases, groups ? seeds / 20 : seeds / 8);  // groups have more blocks
  EXPECT_GT(failed, groups ? seeds / 4 : seeds / 2);
  EXPECT_GT(recomputed, seeds / 8);
  EXPECT_LT(recomputed, failed);
  EXPECT_GT(cut, seeds / 2);
  EXPECT_GT(local, 100U);
  EXPECT_LT(still, seeds / 3);
}
TEST(PairFailures, R15PlayIsThePlainStepper) { expect_the_failing_stepper(false); }
TEST(PairFailures, R19GroupsAreThePlainLoopsOfAllOfThem) { expect_the_failing_stepper(true); }

// Every request ends once; what went over links is what was read and what was lost; blocks are free.
TEST(PairFailures, R15NothingIsLostOrCountedTwice) {
  std::uint64_t unserved = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    PairCase c = failing_case(seed);
    c.to_prefill = static_cast<Router>(seed % 3);
    c.to_decode = static_cast<Router>(seed / 3 % 3);
    c.decode.num_gpu_blocks += 400;  // so that none stands still
    if (seed % 7 == 0 && !c.failures.empty()) c.failures.back().up = Seconds(kNever);
    const PlayedPair a = played(c);
    unserved += a.run.unserved;
    EXPECT_EQ(a.answered, a.answers.size()) << "each once";
    ASSERT_EQ(a.answers.size() + a.run.unserved, c.requests.size()) << seed;
    std::uint64_t answers = 0, tokens = 0, asked = 0;
    for (const ServedRequests& s : a.run.decode) answers += s.answered, tokens += s.answer_tokens;
    for (const TraceRequest& r : c.requests)
      if (a.answers.contains(r.arrival.value))
        asked += static_cast<std::uint64_t>(std::min<std::int64_t>(r.output, 700 - r.input));
    EXPECT_EQ(answers, a.answers.size());
    EXPECT_EQ(tokens, asked) << "of answers, once each";
    const double moved = std::accumulate(a.run.sending.begin(), a.run.sending.end(), 0.0) * c.links.senders /
                         c.links.token.value;
    EXPECT_NEAR(moved, static_cast<double>(a.run.tokens_read) + a.run.lost_tokens, 1e-6 * (1 + moved))
        << seed;
    const double came = std::accumulate(a.run.reading.begin(), a.run.reading.end(), 0.0) * c.links.receivers /
                        c.links.token.value;
    EXPECT_NEAR(moved, came, 1e-6 * (1 + moved));
    for (std::size_t i = c.senders; i < a.schedulers.size(); ++i) {
      const bool died = std::any_of(c.failures.begin(), c.failures.end(), [&](const ReplicaFailure& f) {
        return f.pool == ReplicaPool::decode && f.replica + c.senders == i;
      });
      if (died) continue;
      EXPECT_EQ(a.schedulers[i]->kv_held(), 0) << seed;
    }
    double ttft = 0;
    for (const TraceRequest& r : c.requests) {
      const auto at = a.answers.find(r.arrival.value);
      if (at == a.answers.end()) continue;
      EXPECT_GT(at->second.first, r.arrival);
      if (r.input > c.max_local_prefill) ttft += (at->second.first - at->second.came).value;
    }
    const auto all = [](const RunQuantiles& q) { return q.mean() * static_cast<double>(q.count()); };
    EXPECT_NEAR(all(a.run.prompt) + all(a.run.room) + all(a.run.transfer) + all(a.run.begin), ttft,
                1e-9 * (1 + ttft))
        << "the parts of TTFT of who was handed over";
  }
  EXPECT_GT(unserved, 0U);
}

// Plays know nothing of each other: the same bits on four threads at once.
TEST(PairFailures, R15SameBitsOnManyThreads) {
  const PairCase c = failing_case(6);
  ASSERT_GT(c.failures.size(), 1U);
  const PlayedPair one = played(c);
  std::vector<PlayedPair> others(4);
  std::vector<std::thread> threads;
  threads.reserve(others.size());
  for (PlayedPair& p : others) threads.emplace_back([&p, &c] { p = played(c); });
  for (std::thread& t : threads) t.join();
  for (const PlayedPair& p : others) {
    ASSERT_EQ(p.answers.size(), one.answers.size());
    for (const auto& [came, x] : one.answers) {
      EXPECT_EQ(p.answers.at(came).first.value, x.first.value);
      EXPECT_EQ(p.answers.at(came).last.value, x.last.value);
    }
    EXPECT_EQ(p.run.lost_tokens, one.run.lost_tokens);
  }
}

// Without one before the end nothing is otherwise, to the bit.
TEST(PairFailures, R15AFailureAfterTheEndChangesNothing) {
  PairCase c = random_pair(4);
  for (TraceRequest& r : c.requests)  // text that is said, as failures name it
    for (std::int64_t b = static_cast<std::int64_t>(r.blocks.size()); b * kTraceBlock < r.input; ++b)
      r.blocks.push_back(100 + static_cast<std::uint64_t>(r.arrival.value * 1e6) +
                         static_cast<std::uint64_t>(b));
  const PlayedPair without = played(c);
  c.failures = {{0, Seconds(1e6), Seconds(kNever), ReplicaPool::prefill},
                {0, Seconds(1e6), Seconds(kNever), ReplicaPool::decode}};
  const PlayedPair with = played(c);
  ASSERT_EQ(with.answers.size(), without.answers.size());
  for (const auto& [came, x] : without.answers)
    EXPECT_NEAR(with.answers.at(came).last.value, x.last.value, 1e-12 * x.last.value);
  EXPECT_EQ(with.run.prefill_down + with.run.decode_down, Seconds(0));
}

// One request of 100 tokens and 3 of answer, whose phases of [R12] are: prompt to `prefilled`, the way to the
// other pool, transfer from `room` to `there`, and steps. Whatever dies in a phase, and is back a second
// later, the request is answered as if it had been sent then, but for what follows.
struct ByHand {
  PairCase c;
  double prefilled = 0, room = 0, there = 0, first = 0, took = 0;
  ByHand() {
    c.prefill.max_model_len = c.decode.max_model_len = 700;
    c.prefill.enable_prefix_caching = false;
    c.links = {Seconds(0.001), Seconds(1e-5)};
    c.requests = {{Seconds(0), 100, 3, {}}};
    const BentStepTimes times;
    StepBatch prompt;
    prompt.prompts.push_back({100, 0});
    took = times.of(prompt).value;
    prefilled = 0.002 + took;
    room = prefilled + 0.002;
    there = room + 0.001 + 100e-5;
    first = there + step(99);
  }
  static double step(std::uint32_t cached) {
    StepBatch b;
    b.decodes = 1;
    b.cached = b.longest = cached;
    return BentStepTimes().of(b).value;
  }
  // First token after it is sent again at t, without the way from a user.
  double again(double t) const { return t + first - 0.002; }
  PlayedPair dies(ReplicaPool pool, double at, double for_ = 1) {
    c.failures = {{0, Seconds(at), Seconds(at + for_), pool}};
    return played(c);
  }
};

TEST(PairFailures, R15EachPhaseByHand) {
  ByHand h;
  const auto first_of = [](const PlayedPair& p) { return p.answers.at(0).first.value; };
  // The replica that prefills: on the way to it, and while it computes.
  for (const double at : {0.001, 0.002 + h.took / 2}) {
    const PlayedPair a = h.dies(ReplicaPool::prefill, at);
    EXPECT_NEAR(first_of(a), h.again(at + 1), 1e-12) << at;
    EXPECT_EQ(a.run.retried, 1U);
    EXPECT_EQ(a.run.failed_loads, 0U);
  }
  // Its cache is gone before it is read, or while it is: an engine with nothing else to do says so at once.
  for (const double at : {h.prefilled + 0.001, h.room + 0.0015}) {
    const PlayedPair a = h.dies(ReplicaPool::prefill, at);
    EXPECT_NEAR(first_of(a), h.again(at + 1), 1e-12) << at;
    EXPECT_EQ(a.run.failed_loads, 1U);
    EXPECT_EQ(a.run.cut_transfers, at > h.room ? 1U : 0U);
    EXPECT_NEAR(a.run.lost_tokens, at > h.room ? 50 : 0, 1e-9);
    EXPECT_EQ(a.run.tokens_read, 100U);
  }
  // When all of it was read nobody needs that replica any more.
  EXPECT_NEAR(first_of(h.dies(ReplicaPool::prefill, h.there + 0.001)), h.first, 1e-12);
  // The replica that decodes: while nobody is there, the prompt waits for it before it is computed, and
  // after.
  EXPECT_NEAR(first_of(h.dies(ReplicaPool::decode, 0)), h.again(1), 1e-12);
  {
    const PlayedPair a = h.dies(ReplicaPool::decode, 0.002 + h.took / 2);
    EXPECT_NEAR(first_of(a), h.again(0.002 + h.took / 2 + 1), 1e-12) << "from the beginning";
    EXPECT_EQ(a.run.retried, 1U);
  }
  // On the way to it, while it reads, and while it decodes: all is computed anew.
  for (const double at : {h.prefilled + 0.001, h.room + 0.0015, h.first + h.step(100) / 2}) {
    const PlayedPair a = h.dies(ReplicaPool::decode, at);
    EXPECT_NEAR(first_of(a), h.again(at + 1), 1e-12) << at;
    EXPECT_NEAR(a.answers.at(0).last.value, h.again(at + 1) + h.step(100) + h.step(101), 1e-12);
    EXPECT_EQ(a.run.retried, 1U);
    EXPECT_EQ(a.run.decode.front().answered, 1U);
    EXPECT_EQ(a.run.decode.front().itl.count(), 2U) << "none of a step that did not end";
    EXPECT_EQ(a.run.decode.front().answer_tokens, 3U);
  }
  // It has answered.
  EXPECT_EQ(h.dies(ReplicaPool::decode, h.first + 1).run.retried, 0U);
}

// kv_load_failure_policy recompute: the prompt is computed by the replica that was to read it.
TEST(PairFailures, R15FailedLoadsAreComputedWhereTheyAreAnswered) {
  ByHand h;
  h.c.decode.recompute_failed_loads = true;
  const double at = h.room + 0.0015;
  const PlayedPair a = h.dies(ReplicaPool::prefill, at);
  EXPECT_NEAR(a.answers.at(0).first.value, at + h.took, 1e-12);
  EXPECT_EQ(a.run.retried, 0U);
  EXPECT_EQ(a.run.recomputed, 1U);
  EXPECT_EQ(a.run.tokens_read, 0U);
  EXPECT_NEAR(a.run.lost_tokens, 50, 1e-9);
}

// A replica that prefills has room for one prompt, whose reader dies at once: the next one waits until the
// lease of 30 s has run out, or 20 s after the last of the heartbeats that come every 5 s of a life.
TEST(PairFailures, R15BlocksAreKeptUntilTheLeaseRunsOut) {
  ByHand h;
  h.c.prefill.num_gpu_blocks = 7;
  h.c.prefill.max_model_len = h.c.decode.max_model_len = 110;
  h.c.receivers = 2;
  h.c.links.token = Seconds(0.4);  // so that it reads for 40 s
  const PlayedPair early = h.dies(ReplicaPool::decode, h.room + 0.0015, 1000);
  const double free = h.prefilled + 30;
  EXPECT_NEAR(early.answers.at(0).first.value, free + h.took + 0.002 + 0.001 + 40 + h.step(99), 1e-9);
  const PlayedPair late = h.dies(ReplicaPool::decode, 17.5, 1000);
  EXPECT_NEAR(late.answers.at(0).first.value, 35 + h.took + 0.002 + 0.001 + 40 + h.step(99), 1e-9)
      << "the last heartbeat was at 15 s";
}

// Users of a closed loop go on, and each has one request at a time.
TEST(PairFailures, R15UsersOfAClosedLoopGoOn) {
  PairCase c;
  c.prefill.max_model_len = c.decode.max_model_len = 700;
  c.links = {Seconds(0.001), Seconds(1e-4)};
  c.senders = c.receivers = 2;
  c.failures = {{1, Seconds(1), Seconds(3), ReplicaPool::prefill},
                {0, Seconds(2), Seconds(5), ReplicaPool::decode},
                {1, Seconds(4), Seconds(6), ReplicaPool::decode},
                {0, Seconds(7), Seconds(kNever), ReplicaPool::prefill}};
  constexpr std::size_t kUsers = 12, kRequests = 240;
  const BentStepTimes times;
  PlayedPool prefill, decode;
  for (int i = 0; i < 2; ++i) {
    prefill.schedulers.push_back(std::make_unique<VllmScheduler>(c.prefill, PairRole::prefills));
    decode.schedulers.push_back(std::make_unique<VllmScheduler>(c.decode, PairRole::decodes));
  }
  prefill.times = decode.times = &times;
  ClosedLoop users(kUsers, Variate::fixed(0.1), 1, ClosedLoop::Start::together);
  ClusterLoad load;
  load.arrivals = &users;
  load.closed = true;
  load.request = [](TraceRequest& r) {
    r = {Seconds(0), 300, 40, {}};
    return true;
  };
  std::uint64_t answered = 0;
  const PairRun run =
      play_pair(prefill, decode, c.links, load, kRequests, [&](const AnsweredRequest&) { ++answered; }, {},
                {c.failures, [&](ReplicaPool pool) {
                   const bool prefills = pool == ReplicaPool::prefill;
                   return std::make_unique<VllmScheduler>(prefills ? c.prefill : c.decode,
                                                          prefills ? PairRole::prefills : PairRole::decodes);
                 }});
  EXPECT_EQ(answered, kRequests);
  EXPECT_EQ(run.sent, kRequests);
  EXPECT_GT(run.retried, 0U);
  EXPECT_LE(run.retried, c.failures.size() * kUsers);
  EXPECT_NEAR(run.decode_down.value, 5, 1e-12) << "3 s of one and 2 s of the other";
}

// 100 tokens of 10 ms each from two senders to one receiver, at half the speed; one is cut after 0.5 s, when
// 25 of its tokens were carried, and the other one goes on alone.
TEST(PairFailures, R15LinksOfWhoIsGoneAreFree) {
  TransferLinks links({Seconds(0), Seconds(0.01), 1, 1}, 2, 1);
  links.begin(Seconds(0), 0, 0, 100, 7);
  links.begin(Seconds(0), 1, 0, 100, 8);
  EXPECT_DOUBLE_EQ(links.next().value, 2);
  const std::vector<TransferLinks::Cut> cut = links.cut_sender(Seconds(0.5), 0);
  ASSERT_EQ(cut.size(), 1U);
  EXPECT_EQ(cut.front().number, 7U);
  EXPECT_DOUBLE_EQ(cut.front().left, 75);
  EXPECT_DOUBLE_EQ(links.next().value, 0.5 + 0.75);
  EXPECT_EQ(links.step(), std::optional<std::uint64_t>(8));
  EXPECT_DOUBLE_EQ(links.sent()[0], 0.25);
  EXPECT_DOUBLE_EQ(links.received()[0], 1.25);
  EXPECT_TRUE(links.cut_receiver(Seconds(2), 0).empty());
}

}  // namespace
}  // namespace shardline
