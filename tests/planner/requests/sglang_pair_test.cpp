// SGLang's pairs of pools against its event loops written plainly.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "planner/requests/pair.hpp"
#include "tests/planner/requests/plain_sglang_pair.hpp"
#include "tests/planner/requests/sglang_pair_case.hpp"
#include "tests/support/loads.hpp"

namespace shardline {
namespace {

// SHARDLINE_WHOLE=1 plays 4,000 loads.
void expect_the_plain_loops(bool groups, bool drafts) {
  const std::uint64_t seeds = testing::loads(400);
  std::uint64_t preempted = 0, found = 0, shared = 0, stops = 0, chunked = 0, waited = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SglangPairCase c = random_sglang_pair(seed);
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
    stopped = stopped || std::any_of(slow.answers.begin(), slow.answers.end(),
                                     [](const SglangPlainAnswer& a) { return a.first < 0; });
    if (stopped) {
      ++stops;
      EXPECT_THROW(played(c), UserError) << seed;
      continue;
    }
    const PlayedPair fast = played(c);
    ASSERT_EQ(fast.answers.size(), slow.answers.size()) << seed;
    double room = 0, prompt = 0, transfer = 0, begin = 0;
    for (const SglangPlainAnswer& a : slow.answers) {
      const AnsweredRequest& b = fast.answers.at(a.came);
      ASSERT_NEAR(b.first.value, a.first, 1e-12 * std::max(1.0, a.first)) << seed << " came " << a.came;
      ASSERT_NEAR(b.last.value, a.last, 1e-12 * std::max(1.0, a.last)) << seed << " came " << a.came;
      room += a.room - a.came;
      prompt += a.prefilled - a.room;
      transfer += a.there - a.prefilled;
      begin += a.first - a.there;
      preempted += b.preempted;
      waited += a.room - a.came > 0.1 ? 1 : 0;
    }
    const auto all = [](const RunQuantiles& q) { return q.mean() * static_cast<double>(q.count()); };
    EXPECT_NEAR(all(fast.run.room), room, 1e-9 * (1 + room)) << seed;
    EXPECT_NEAR(all(fast.run.prompt), prompt, 1e-9 * (1 + prompt)) << seed;
    EXPECT_NEAR(all(fast.run.transfer), transfer, 1e-9 * (1 + transfer)) << seed;
    EXPECT_NEAR(all(fast.run.begin), begin, 1e-9 * (1 + begin)) << seed;
    for (const ServedRequests& s : fast.run.prefill) found += s.found_tokens;
    shared += slow.most_flows > 1 ? 1 : 0;
    chunked += slow.most_parts > 1 ? 1 : 0;
  }
  if (testing::kSanitized) return;  // a part of the loads
  // The loads are such that all of it happens.
  EXPECT_GT(found, 0u);
  EXPECT_GT(preempted, seeds / 20);
  EXPECT_GT(shared, seeds / 2);
  EXPECT_GT(chunked, seeds / 4);
  EXPECT_GT(waited, seeds);
  EXPECT_GT(stops, 0u);
  EXPECT_LT(stops, seeds / 3);
}
TEST(SglangPair, R14PlayIsThePlainLoops) { expect_the_plain_loops(false, false); }
TEST(SglangPair, R18GroupsAreThePlainLoopsOfAllOfThem) { expect_the_plain_loops(true, false); }
TEST(SglangPair, R17DraftsAreThePlainLoops) { expect_the_plain_loops(false, true); }
TEST(SglangPair, R17DraftsOfGroupsAreThePlainLoops) { expect_the_plain_loops(true, true); }

TEST(SglangPair, R14EveryRequestOnceAndAllPagesFree) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SglangPairCase c = random_sglang_pair(seed);
    c.decode.max_total_tokens += c.decode.page_size * 2000;  // so that none stands still
    const PlayedPair a = played(c, static_cast<Router>(seed % 3));
    ASSERT_EQ(a.answers.size(), c.requests.size());
    std::uint64_t prompts = 0, answers = 0, tokens = 0, gaps = 0, asked = 0, prompt_tokens = 0;
    for (const ServedRequests& s : a.run.prefill) prompts += s.answered;
    for (const ServedRequests& s : a.run.decode)
      answers += s.answered, tokens += s.answer_tokens, gaps += s.itl.count();
    for (const TraceRequest& r : c.requests) {
      asked += static_cast<std::uint64_t>(r.output);
      prompt_tokens += static_cast<std::uint64_t>(r.input);
    }
    EXPECT_EQ(prompts, c.requests.size());
    EXPECT_EQ(answers, c.requests.size());
    EXPECT_EQ(tokens, asked);
    EXPECT_EQ(gaps, tokens - answers) << "one before each token but the first";
    EXPECT_EQ(a.run.transfer.count(), c.requests.size());
    EXPECT_EQ(a.run.tokens_read, prompt_tokens) << "what prefill found goes, too";
    for (std::size_t i = c.senders; i < a.schedulers.size(); ++i) EXPECT_EQ(a.schedulers[i]->kv_held(), 0);
  }
}

SglangPairCase small_case() {
  SglangPairCase c;
  for (SglangKnobs* k : {&c.prefill, &c.decode}) {
    k->context_length = 700;
    k->max_total_tokens = 10'000;
    k->disable_radix_cache = true;
  }
  c.links = {Seconds(0.001), Seconds(1e-5)};
  return c;
}

double step_of(std::vector<PromptPart> prompts) {
  StepBatch b;
  b.prompts = std::move(prompts);
  return BentStepTimes().of(b).value;
}

double step_of(std::uint32_t decodes, std::uint64_t cached, std::uint32_t longest) {
  StepBatch b;
  b.decodes = decodes;
  b.cached = cached;
  b.longest = longest;
  return BentStepTimes().of(b).value;
}

// By hand from the engine's source: one request of 100 tokens at 0, path 2 ms, transfers of 1 ms + 10 us a
// token. Both servers have it at once; an idle one that decodes has room at once. The first token comes with
// the cache.
TEST(SglangPair, R14OneRequestByHand) {
  for (const bool overlap : {false, true}) {
    SglangPairCase c = small_case();
    c.prefill.disable_overlap_schedule = c.decode.disable_overlap_schedule = !overlap;
    c.requests = {{Seconds(0), 100, 3, {}}};
    const PlayedPair a = played(c);
    const double first = 0.002 + step_of({{100, 0}}) + 0.001 + 100 * 1e-5;
    ASSERT_EQ(a.answers.size(), 1u);
    const AnsweredRequest& x = a.answers.begin()->second;
    EXPECT_NEAR(x.first.value, first, 1e-15);
    EXPECT_NEAR(x.last.value, first + step_of(1, 100, 100) + step_of(1, 101, 101), 1e-15);
    EXPECT_EQ(a.run.decode.front().steps, overlap ? 3u : 2u) << "a row in vain";
  }
}

// 200 tokens, of which the first request has 100 and keeps 20: of the other 80 are less than the second's
// prompt and the 20 that are kept for it. It has room when the first is done, and is computed then.
TEST(SglangPair, R14TheSecondWaitsForRoom) {
  for (const bool overlap : {false, true}) {
    SglangPairCase c = small_case();
    c.prefill.disable_overlap_schedule = c.decode.disable_overlap_schedule = !overlap;
    c.decode.max_total_tokens = 200;
    c.decode.num_reserved_decode_tokens = 20;
    c.requests = {{Seconds(0), 100, 4, {}}, {Seconds(1e-4), 100, 1, {}}};
    const PlayedPair a = played(c);
    const double prompt = step_of({{100, 0}});
    double done = 0.002 + prompt + 0.002;
    for (std::uint32_t i = 0; i < 3; ++i) done += step_of(1, 100 + i, 100 + i);
    EXPECT_NEAR(a.answers.at(0).last.value, done, 1e-15);
    const AnsweredRequest& two = a.answers.at(1e-4);
    // Its only token comes with the cache, to an engine that has nothing to do by then.
    EXPECT_NEAR(two.last.value, done + prompt + 0.002, 1e-14) << overlap;
    EXPECT_EQ(two.first.value, two.last.value);
    EXPECT_NEAR(a.run.room.mean(), (0.002 + done - 1e-4) / 2, 1e-14);
  }
}

// The first chunk's pages go while the second one is computed; where links are slow both share them.
TEST(SglangPair, R14ChunksGoBesideTheNext) {
  for (const bool overlap : {false, true}) {
    for (const double token : {5e-5, 2e-4}) {
      SglangPairCase c = small_case();
      c.prefill.disable_overlap_schedule = c.decode.disable_overlap_schedule = !overlap;
      c.prefill.chunked_prefill_size = 100;
      c.links.token = Seconds(token);
      c.requests = {{Seconds(0), 200, 2, {}}};
      const PlayedPair a = played(c);
      const double one = 0.002 + step_of({{100, 0}}), two = one + step_of({{100, 100}});
      const double whole = 100 * token;                        // of a chunk, alone
      const double left = std::max(0.0, whole - (two - one));  // of the first when the second flows
      const double there = two + 0.001 + whole + left;
      EXPECT_NEAR(a.answers.at(0).first.value, there, 1e-14);
      EXPECT_NEAR(a.run.transfer.mean(), there - two, 1e-14);
      EXPECT_EQ(left > 0, token > 1e-4);
    }
  }
}

// Ranks that share prompts by context parallelism have one in a step: two that come together are computed one
// after the other. The second joins the first in the step that is decided next after its cache has come.
TEST(SglangPair, R14OnePromptAStepUnderContextParallelism) {
  SglangPairCase c = small_case();
  c.prefill.disable_overlap_schedule = c.decode.disable_overlap_schedule = true;
  c.prefill.prefill_max_requests = 1;
  c.requests = {{Seconds(0), 100, 5, {}}, {Seconds(0.0001), 100, 2, {}}};
  const PlayedPair a = played(c);
  const double prompt = step_of({{100, 0}});
  const double one = 0.002 + prompt + 0.002, there = 0.002 + 2 * prompt + 0.002;
  EXPECT_NEAR(a.answers.at(0).first.value, one, 1e-15);
  double begins = one;
  std::uint32_t cached = 100;
  for (; begins < there; ++cached) begins += step_of(1, cached, cached);
  EXPECT_NEAR(a.answers.at(0.0001).first.value, begins, 1e-14);
  EXPECT_NEAR(a.answers.at(0.0001).last.value, begins + step_of(2, cached + 100, cached), 1e-14);
  c.prefill.prefill_max_requests = 0;
  c.requests[1].arrival = Seconds(0);
  EXPECT_NEAR(played(c).answers.at(0).first.value, 0.002 + step_of({{100, 0}, {100, 0}}) + 0.003, 1e-14)
      << "both at once on full links";
}

// A request is in both pools and waits once: of 40 that come at once all before each one.
TEST(SglangPair, R14WhoWaitsIsCountedOnce) {
  SglangPairCase c = small_case();
  for (int i = 0; i < 40; ++i) c.requests.push_back({Seconds(1e-6 * i), 100, 3, {}});
  c.path = Seconds(1e-7);
  const PlayedPair a = played(c);
  ASSERT_EQ(a.run.waiting.size(), ClusterRun::kParts);
  for (std::size_t part = 0; part < a.run.waiting.size(); ++part)
    EXPECT_NEAR(a.run.waiting[part], 2 * static_cast<double>(part) + 0.5, 1e-12) << part;
}

// Who is refused by one server is answered by neither, and counted once.
TEST(SglangPair, R14RefusedByOneIsRefused) {
  for (const bool prefill : {false, true}) {
    SglangPairCase c = small_case();
    (prefill ? c.prefill : c.decode).max_total_tokens = 90;
    c.requests = {{Seconds(0), 100, 3, {}}, {Seconds(1), 20, 3, {}}};
    c.decode.num_reserved_decode_tokens = 16;
    const PlayedPair a = played(c);
    EXPECT_EQ(a.answers.size(), 1u);
    EXPECT_EQ(a.run.prefill.front().refused + a.run.decode.front().refused, 1u);
    EXPECT_EQ(a.run.prefill.front().answered, 1u);
    EXPECT_EQ(a.run.prompt.count(), 1u);
  }
}

}  // namespace
}  // namespace shardline
