// Servers of pairs of SGLang's pools that die and are back [R15], against the plain loops and by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "planner/requests/pair.hpp"
#include "tests/planner/requests/plain_sglang_pair.hpp"
#include "tests/planner/requests/sglang_pair_case.hpp"
#include "tests/support/loads.hpp"

namespace shardline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A server that prefills is away for 10 s at least, as the others have to miss it.
SglangPairCase failing_case(std::uint64_t seed) {
  SglangPairCase c = random_sglang_pair(seed);
  RandomStream random(seed, "failures of pairs");
  if (seed % 2 == 0)
    for (TraceRequest& r : c.requests) r.arrival = r.arrival * 3;
  const double length = c.requests.back().arrival.value;
  for (const ReplicaPool pool : {ReplicaPool::prefill, ReplicaPool::decode}) {
    const bool prefills = pool == ReplicaPool::prefill;
    for (std::size_t i = 0; i < (prefills ? c.senders : c.receivers); ++i) {
      double at = length * random.unit() * 0.7;
      while (random.below(3) > 0 && at < length) {
        const double up = at + (prefills ? 10.5 : 0.0) + length * (0.02 + 0.2 * random.unit());
        c.failures.push_back({i, Seconds(at), Seconds(up), pool});
        at = up + length * (0.02 + 0.3 * random.unit());
      }
    }
  }
  std::sort(c.failures.begin(), c.failures.end(),
            [](const ReplicaFailure& a, const ReplicaFailure& b) { return a.down < b.down; });
  return c;
}

// SHARDLINE_WHOLE=1 plays 4,000 loads.
void expect_the_failing_loops(bool groups, bool drafts) {
  const std::uint64_t seeds = testing::loads(400);
  std::uint64_t retried = 0, cut = 0, given_up = 0, stops = 0, unserved = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SglangPairCase c = failing_case(seed);
    if (groups) c = with_groups(std::move(c), seed);
    if (drafts) c = with_drafts(std::move(c), seed);
    const BentStepTimes times;
    PlainSglangPair slow(c, times);
    bool stopped = false;
    try {
      slow.play();
    } catch (const PlainStop&) {
      stopped = true;
    }
    const auto open = static_cast<std::size_t>(std::count_if(
        slow.answers.begin(), slow.answers.end(), [](const SglangPlainAnswer& a) { return !a.whole; }));
    if (stopped || open > slow.unserved()) {
      ++stops;
      EXPECT_THROW(played(c), UserError) << seed;
      continue;
    }
    const PlayedPair fast = played(c);
    ASSERT_EQ(fast.answers.size(), slow.answers.size() - open) << seed;
    EXPECT_EQ(fast.answered, fast.answers.size()) << "each once";
    EXPECT_EQ(fast.run.unserved, open) << seed;
    double room = 0, prompt = 0, transfer = 0, begin = 0;
    for (const SglangPlainAnswer& a : slow.answers) {
      if (!a.whole) continue;
      const AnsweredRequest& b = fast.answers.at(a.came);
      ASSERT_NEAR(b.first.value, a.first, 1e-12 * std::max(1.0, a.first)) << seed << " came " << a.came;
      ASSERT_NEAR(b.last.value, a.last, 1e-12 * std::max(1.0, a.last)) << seed << " came " << a.came;
      room += a.room - a.came;
      prompt += a.prefilled - a.room;
      transfer += a.there - a.prefilled;
      begin += a.first - a.there;
    }
    const auto all = [](const RunQuantiles& q) { return q.mean() * static_cast<double>(q.count()); };
    EXPECT_NEAR(all(fast.run.room), room, 1e-9 * (1 + room)) << seed;
    EXPECT_NEAR(all(fast.run.prompt), prompt, 1e-9 * (1 + prompt)) << seed;
    EXPECT_NEAR(all(fast.run.transfer), transfer, 1e-9 * (1 + transfer)) << seed;
    EXPECT_NEAR(all(fast.run.begin), begin, 1e-9 * (1 + begin)) << seed;
    EXPECT_EQ(fast.run.retried, slow.retried) << seed;
    EXPECT_EQ(fast.run.cut_transfers, slow.cut) << seed;
    retried += fast.run.retried;
    cut += fast.run.cut_transfers;
    given_up += slow.given_up;
    unserved += open;
  }
  if (testing::kSanitized) return;  // a part of the loads
  // The loads are such that all of it happens.
  EXPECT_GT(retried, 2 * seeds);
  EXPECT_GT(cut, seeds / 8);
  EXPECT_GT(given_up, seeds / 2);
  EXPECT_LT(stops, seeds / 3);
  EXPECT_EQ(unserved, 0U);
}
TEST(SglangPairFailures, R15PlayIsThePlainLoops) { expect_the_failing_loops(false, false); }
TEST(SglangPairFailures, R18GroupsAreThePlainLoopsOfAllOfThem) { expect_the_failing_loops(true, false); }
TEST(SglangPairFailures, R17DraftsAreThePlainLoops) { expect_the_failing_loops(false, true); }
TEST(SglangPairFailures, R17DraftsOfGroupsAreThePlainLoops) { expect_the_failing_loops(true, true); }

TEST(SglangPairFailures, R15NothingIsLostOrCountedTwice) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SglangPairCase c = failing_case(seed);
    c.decode.max_total_tokens += c.decode.page_size * 2000;  // so that none stands still
    if (seed % 7 == 0 && !c.failures.empty()) c.failures.back().up = Seconds(kNever);
    const PlayedPair a = played(c, static_cast<Router>(seed % 3));
    EXPECT_EQ(a.answered, a.answers.size()) << "each once";
    ASSERT_EQ(a.answers.size() + a.run.unserved, c.requests.size()) << seed;
    std::uint64_t answers = 0, tokens = 0, asked = 0, prompts = 0;
    for (const ServedRequests& s : a.run.decode) answers += s.answered, tokens += s.answer_tokens;
    for (const TraceRequest& r : c.requests) {
      if (!a.answers.contains(r.arrival.value)) continue;
      asked += static_cast<std::uint64_t>(r.output);
      prompts += static_cast<std::uint64_t>(r.input);
    }
    EXPECT_EQ(answers, a.answers.size());
    EXPECT_EQ(tokens, asked);
    EXPECT_EQ(a.run.tokens_read, prompts) << "of who was answered, once";
    const double moved = std::accumulate(a.run.sending.begin(), a.run.sending.end(), 0.0) * c.links.senders /
                         c.links.token.value;
    EXPECT_NEAR(moved, static_cast<double>(a.run.tokens_read) + a.run.lost_tokens, 1e-6 * (1 + moved))
        << seed;
    for (std::size_t i = c.senders; i < a.schedulers.size(); ++i) {
      const bool died = std::any_of(c.failures.begin(), c.failures.end(), [&](const ReplicaFailure& f) {
        return f.pool == ReplicaPool::decode && f.replica + c.senders == i;
      });
      if (died) continue;
      EXPECT_EQ(a.schedulers[i]->kv_held(), 0) << seed;
    }
  }
}

// One request of 100 tokens, as SglangPair.R14OneRequestByHand has it: computed from 2 ms on, sent, answered.
// Whatever dies in a phase, it begins anew when all are up; only that its pages stay where nobody knows.
TEST(SglangPairFailures, R15EachPhaseByHand) {
  SglangPairCase c;
  for (SglangKnobs* k : {&c.prefill, &c.decode}) {
    k->context_length = 700;
    k->max_total_tokens = 10'000;
    k->disable_radix_cache = true;
  }
  c.links = {Seconds(0.001), Seconds(1e-5)};
  c.requests = {{Seconds(0), 100, 3, {}}};
  StepBatch prompt, decode;
  prompt.prompts.push_back({100, 0});
  const double took = BentStepTimes().of(prompt).value;
  decode.decodes = 1;
  decode.cached = decode.longest = 100;
  const double step = BentStepTimes().of(decode).value;
  const double sent = 0.002 + took, first = sent + 0.002;
  const auto dies = [&](ReplicaPool pool, double at) {
    c.failures = {{0, Seconds(at), Seconds(at + 12), pool}};
    return played(c);
  };
  for (const ReplicaPool pool : {ReplicaPool::prefill, ReplicaPool::decode}) {
    // On the way, while it is computed, while it is sent.
    for (const double at : {0.001, 0.002 + took / 2, sent + 0.0015}) {
      const PlayedPair a = dies(pool, at);
      EXPECT_NEAR(a.answers.at(0).first.value, at + 12 + first - 0.002, 1e-12) << at;
      EXPECT_EQ(a.run.retried, 1U);
      EXPECT_EQ(a.run.cut_transfers, at > sent ? 1U : 0U);
      EXPECT_NEAR(a.run.lost_tokens, at > sent ? 50 : 0, 1e-9);
    }
  }
  // It decodes.
  EXPECT_NEAR(dies(ReplicaPool::prefill, first + step / 2).answers.at(0).first.value, first, 1e-12);
  const PlayedPair a = dies(ReplicaPool::decode, first + step / 2);
  EXPECT_NEAR(a.answers.at(0).first.value, first + step / 2 + 12 + first - 0.002, 1e-12);
  EXPECT_EQ(a.run.decode.front().answered, 1U);
}

// The server that decodes has room for one: the other one dies while it computes, at 1 s, and is missed at
// 5 s and 10 s. So long the pages are held, though a second server that prefills is there.
TEST(SglangPairFailures, R15PagesAreHeldUntilTheOtherOneIsMissed) {
  SglangPairCase c;
  c.senders = 2;
  for (SglangKnobs* k : {&c.prefill, &c.decode}) {
    k->context_length = 700;
    k->max_total_tokens = 10'000;
    k->disable_radix_cache = true;
  }
  c.decode.max_total_tokens = 150;
  c.decode.num_reserved_decode_tokens = 20;
  c.links = {Seconds(0.001), Seconds(0.1)};
  c.requests = {{Seconds(0), 100, 3, {}}};
  c.failures = {{0, Seconds(1), Seconds(100), ReplicaPool::prefill}};
  StepBatch prompt;
  prompt.prompts.push_back({100, 0});
  const PlayedPair a = played(c);
  EXPECT_EQ(a.run.retried, 1U);
  EXPECT_NEAR(a.answers.at(0).first.value, 10 + BentStepTimes().of(prompt).value + 0.001 + 10, 1e-9);
  EXPECT_NEAR(a.run.room.mean(), 10, 1e-12);
}

}  // namespace
}  // namespace shardline
