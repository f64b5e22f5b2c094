// SGLang's scheduler with drafts [R17]: schedules by hand, and the engine's own loops on random loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "planner/requests/sglang_scheduler.hpp"
#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "tests/planner/requests/draft_laws.hpp"
#include "tests/planner/requests/plain_sglang_drafts.hpp"
#include "tests/planner/requests/random_play.hpp"
#include "tests/planner/requests/random_sglang.hpp"
#include "tests/planner/requests/random_vllm.hpp"
#include "tests/planner/requests/schedule_text.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

SglangKnobs small(bool overlap, std::uint32_t page = 1) {
  SglangKnobs k;
  k.disable_overlap_schedule = !overlap;
  k.context_length = 1000;
  k.max_total_tokens = 1000;
  k.page_size = page;
  return k;
}

// All three drafts of each step are accepted: a prompt of 6 tokens yields one, then come 4, 4 and the last 2
// of 11. Each step has room for two times four tokens behind what is known: 6, 14, 18 and 22 pages of one
// token, of which the tree keeps those of the prompt's 5 pairs.
TEST(SglangDrafts, R17WithAllAcceptedEachStepYieldsOneAndAllDrafts) {
  SglangScheduler s(small(false), PairRole::none, draft_law(3, 1, 1));
  s.add(asks(6, 11));
  std::vector<std::uint64_t> held;
  Steps steps;
  while (s.schedule()) {
    steps.push_back(text_of(s.front()));
    held.push_back(s.pages() - s.available_pages());
    s.finish_steps();
  }
  EXPECT_EQ(steps, (Steps{"0 decode (0), 6+0", "1 decode (6)", "1 decode (10)", "1 decode (14)"}));
  EXPECT_EQ(held, (std::vector<std::uint64_t>{6, 14, 18, 22}));
  EXPECT_EQ(s.available_pages(), s.pages());
}

// With the overlap schedule the step behind the one that ends an answer is decided before that is known: a
// row in vain, of an answer of one token, too. Its rows begin where those of the step before ended.
TEST(SglangDrafts, R17TheOverlapScheduleComputesARowInVain) {
  for (const std::int64_t answer : {10, 13}) {
    SglangScheduler s(small(true), PairRole::none, draft_law(3, 1, 1));
    s.add(asks(6, answer));
    EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 6+0", "1 decode (6)", "1 decode (10)", "1 decode (14)",
                                  "1 decode (18)"}));
    EXPECT_EQ(s.available_pages(), s.pages());
  }
  SglangScheduler s(small(true), PairRole::none, draft_law(3, 1, 1));
  s.add(asks(6, 1));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 6+0", "1 decode (6)"}));
}

// Drafts that are all rejected: pages of 4, a prompt of 5 has two. Then 5 + 8 tokens are four pages, as many
// as 6 + 8 and 8 + 8, and 9 + 8 a fifth; rejected ones keep theirs. With the overlap schedule a step less is
// known.
TEST(SglangDrafts, R17PagesHaveRoomForTwoSteps) {
  SglangKnobs k = small(false, 4);
  k.disable_radix_cache = true;
  SglangScheduler s(k, PairRole::none, draft_law(3, 1e-300, 1));
  s.add(asks(5, 7));
  std::vector<std::uint64_t> held;
  while (s.schedule()) {
    held.push_back(s.pages() - s.available_pages());
    s.finish_steps();
  }
  EXPECT_EQ(held, (std::vector<std::uint64_t>{2, 4, 4, 4, 4, 5, 5}));
}

// The tree compares pairs of tokens. Of 13 equal tokens in pages of 4 three pages could be found, all but the
// last token; of pairs there are two whole pages before it. Of texts that differ behind 8 tokens the second
// page's last pair differs.
TEST(SglangDrafts, R17TextIsFoundByPairsOfTokens) {
  const auto found = [](const std::vector<std::uint64_t>& other, DraftLaw law) {
    SglangScheduler s(small(false, 4), PairRole::none, std::move(law));
    s.add(asks(13, 1, {1, 2, 3, 4}), 4);
    steps_of(s);
    s.add(asks(13, 1, other), 4);
    return steps_of(s);
  };
  EXPECT_EQ(found({1, 2, 3, 4}, {}), (Steps{"0 decode (0), 1+12"}));
  EXPECT_EQ(found({1, 2, 3, 4}, draft_law(1, 0.5, 1)), (Steps{"0 decode (0), 5+8"}));
  EXPECT_EQ(found({1, 2, 5}, {}), (Steps{"0 decode (0), 5+8"}));
  EXPECT_EQ(found({1, 2, 5}, draft_law(1, 0.5, 1)), (Steps{"0 decode (0), 9+4"}));
}

TEST(SglangDrafts, R17MixedChunksAreRefused) {
  SglangKnobs k = small(true);
  k.enable_mixed_chunk = true;
  EXPECT_THAT([&] { SglangScheduler(k, PairRole::none, draft_law(1, 0.5, 1)); },
              ThrowsMessage<UserError>(HasSubstr("enable_mixed_chunk")));
}

SglangKnobs draft_knobs(RandomStream& random) {
  SglangKnobs k = random_sglang(random);
  k.enable_mixed_chunk = false;
  k.prefill_max_requests = random.below(4) == 0 ? 2 : 0;
  if (random.below(2) == 0) return k;
  // Few requests fit, so that answers are retracted.
  k.context_length = 330;
  k.max_total_tokens = 448 + 64 * static_cast<std::uint32_t>(random.below(10));
  return k;
}

// A play, or how the engine ended.
struct Outcome {
  Played played;
  bool ended = false;
};
template <class S>
Outcome outcome(const std::vector<TraceRequest>& requests, S& scheduler, bool jump) {
  const BentStepTimes times;
  try {
    return {play(requests, scheduler, times, jump), false};
  } catch (const UserError& e) {
    EXPECT_EQ(std::string(e.what()).find("no request goes on"), std::string::npos) << e.what();
    return {{}, true};
  }
}

// In which step each request is done, what was held over time, and all gaps between chunks.
TEST(SglangDrafts, R17EqualTheEnginesOwnLoops) {
  std::uint64_t preemptions = 0, found = 0, tokens = 0, ended = 0;
  for (std::uint64_t seed = 0; seed < 600 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "sglang drafts");
    const SglangKnobs knobs = draft_knobs(random);
    const auto requests = bursts_of_texts(random);
    const DraftLaw drafts = random_law(random);
    SglangScheduler fast(knobs, PairRole::none, drafts);
    PlainSglangDrafts plain(knobs, drafts);
    const Outcome a = outcome(requests, fast, random.below(2) == 0), b = outcome(requests, plain, false);
    ASSERT_EQ(a.ended, b.ended);
    ended += a.ended ? 1 : 0;
    if (a.ended) continue;
    expect_equal(a.played, b.played);
    EXPECT_EQ(fast.available_pages(), fast.pages());
    EXPECT_EQ(plain.available_pages(), plain.pages());
    preemptions += b.played.served.preemptions;
    found += b.played.served.found_tokens;
    tokens += b.played.served.answer_tokens;
  }
  EXPECT_LT(ended, 60U);
  EXPECT_GT(preemptions, 300U);
  EXPECT_GT(found, 100'000U);
  EXPECT_GT(tokens, 900'000U);
}

// Step by step, what each computes; requests come between.
TEST(SglangDrafts, R17EachStepIsTheSame) {
  for (std::uint64_t seed = 0; seed < 200 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "each step of sglang with drafts");
    const SglangKnobs knobs = draft_knobs(random);
    const DraftLaw drafts = random_law(random);
    SglangScheduler fast(knobs, PairRole::none, drafts);
    PlainSglangDrafts plain(knobs, drafts);
    try {
      for (const TraceRequest& r : bursts_of_texts(random)) {
        ASSERT_EQ(fast.add(r), plain.add(r));
        const auto steps = static_cast<int>(random.below(random.below(3) == 0 ? 60 : 3));
        ASSERT_EQ(steps_of(fast, steps), steps_of(plain, steps));
        ASSERT_EQ(fast.available_pages(), plain.available_pages());
        ASSERT_EQ(fast.waiting(), plain.waiting());
      }
      ASSERT_EQ(steps_of(fast, 100'000), steps_of(plain, 100'000));
    } catch (const UserError&) {  // the engine ends with an error, which the test above compares
    }
    EXPECT_EQ(fast.preemptions(), plain.preemptions());
  }
}

}  // namespace
}  // namespace shardline
