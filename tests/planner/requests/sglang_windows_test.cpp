// SGLang's scheduler of models with windows [R22]: the engine's own loops on random loads, schedules by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "planner/requests/sglang_scheduler.hpp"
#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "tests/planner/requests/draft_laws.hpp"
#include "tests/planner/requests/plain_sglang_windows.hpp"
#include "tests/planner/requests/random_play.hpp"
#include "tests/planner/requests/random_windows.hpp"
#include "tests/planner/requests/schedule_text.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

SglangKnobs small(std::uint32_t full, std::uint32_t windows) {
  SglangKnobs k;
  k.disable_overlap_schedule = true;
  k.context_length = 1000;
  k.max_total_tokens = full;
  k.swa_full_tokens_ratio = static_cast<double>(windows) / full;
  k.sliding_window = 4;
  k.swa_eviction_interval = 1;
  return k;
}

// Free windows after each step.
std::vector<std::uint64_t> free_windows(const SglangKnobs& knobs, std::int64_t prompt, std::int64_t answer) {
  SglangScheduler s(knobs);
  s.add(asks(prompt, answer));
  std::vector<std::uint64_t> out;
  while (s.schedule()) {
    out.push_back(s.windows()->free);
    s.finish_steps();
  }
  EXPECT_EQ(s.windows()->available(), s.windows()->pages);
  return out;
}

// pool_configurator.py, HybridSWAPoolConfigurator: int(992 x .5) = 496 tokens are 31 pages of 16.
TEST(SglangWindows, R22ThePoolIsAPartOfTheOthersInWholePages) {
  SglangKnobs k = small(1000, 500);
  k.page_size = 16;
  const SglangScheduler s(k);
  EXPECT_EQ(s.pages(), 62U);
  EXPECT_EQ(s.windows()->pages, 31U);
  EXPECT_EQ(SglangScheduler(small(100, 200)).windows()->pages, 100U);  // no more than of the others
  k.sliding_window = 0;
  EXPECT_EQ(SglangScheduler(k).windows(), nullptr);
}

// maybe_evict_swa looks before each row takes its page, but the first. The prompt's 6 are the tree's. With n
// tokens of the answer known what is before 6 + n - 1 - 4 - 1 = n goes: nothing up to the sixth row, as the
// tree has it, and then one for each that is taken.
TEST(SglangWindows, R22WindowsAreDroppedBehindTheWindowAndAPage) {
  EXPECT_EQ(free_windows(small(40, 20), 6, 10),
            (std::vector<std::uint64_t>{14, 13, 12, 11, 10, 9, 8, 8, 8, 8}));
  // Looks are where the running batch's last one is a multiple of four, the prompt being the first: before
  // rows 4 and 8, where n = 8 and 8 - 6 go.
  SglangKnobs k = small(40, 20);
  k.swa_eviction_interval = 4;
  EXPECT_EQ(free_windows(k, 6, 10), (std::vector<std::uint64_t>{14, 13, 12, 11, 10, 9, 8, 7, 8, 7}));
  // With the overlap schedule a token less is known, and there is a row in vain. In the end the tree has
  // those of the prompt and of 15 - 9 tokens of the answer.
  k = small(40, 20);
  k.disable_overlap_schedule = false;
  SglangScheduler s(k);
  s.add(asks(6, 10));
  std::vector<std::uint64_t> free;
  while (true) {
    while (s.decided() < s.depth() && s.schedule()) {
    }
    if (s.decided() == 0) break;
    free.push_back(s.windows()->free);
    s.finish_steps();
  }
  EXPECT_EQ(free, (std::vector<std::uint64_t>{13, 12, 11, 10, 9, 8, 7, 7, 7, 7, 8}));
}

// Chunks of 8 of a pool of 10 windows. The first part leaves 2: alloc_extend may take a page more, so one
// token is computed; then none could be, as both nodes are locked (8 and 1, of which 1 is no window): it is
// parked, and alone it stands still.
TEST(SglangWindows, R22APromptIsParkedWithoutWindows) {
  SglangKnobs k = small(40, 10);
  k.chunked_prefill_size = 8;
  SglangScheduler s(k);
  ASSERT_TRUE(s.add(asks(20, 1)));
  std::vector<std::string> steps;
  for (int i = 0; i < 2 && s.schedule(); ++i) {
    steps.push_back(text_of(s.front()));
    s.finish_steps();
  }
  EXPECT_EQ(steps, (Steps{"0 decode (0), 8+0", "0 decode (0), 1+8"}));
  EXPECT_THAT([&] { s.schedule(); }, ThrowsMessage<EngineStops>(HasSubstr("stands still")));
  // With 9 windows a part of 8 and a page never fit: they are to be fewer.
  k.swa_full_tokens_ratio = 9.0 / 40;
  EXPECT_TRUE(SglangScheduler(k).takes(asks(7, 1)));
  EXPECT_FALSE(SglangScheduler(k).takes(asks(8, 1)));
}

// 17 windows, of which a first request has 4. Of the other prompt 8 are computed, then 17 - 4 - 8 - 1 = 4,
// and then none: it is parked while the first one decodes, which it does until it is done, with one row more.
// What it leaves can be lost, but for the page more: 17 - 4 (the last part is a window) - 1 = 12 and more are
// free then for the 8 that are left.
TEST(SglangWindows, R22AParkedPromptGoesOnWhenOthersHaveLeft) {
  SglangKnobs k = small(60, 17);
  k.chunked_prefill_size = 8;
  SglangScheduler s(k);
  s.add(asks(4, 3));
  ASSERT_TRUE(s.schedule());
  s.finish_steps();
  s.add(asks(20, 1));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 8+0", "0 decode (0), 4+8", "0 decode (0), 8+12",
                                "1 decode (4)", "1 decode (5)"}));
}

// 12 windows: the first holds 8 and its rows, the second needs 8 and a page, though the other pool has room.
// Without windows it begins at once.
TEST(SglangWindows, R22APromptWaitsForWindows) {
  for (const bool windows : {true, false}) {
    SglangKnobs k = small(100, 12);
    if (!windows) k.sliding_window = 0;
    SglangScheduler s(k);
    s.add(asks(8, 4));
    ASSERT_TRUE(s.schedule());
    s.finish_steps();
    s.add(asks(8, 1));
    EXPECT_EQ(steps_of(s),
              windows ? (Steps{"1 decode (8)", "1 decode (9)", "1 decode (10)", "0 decode (0), 8+0"})
                      : (Steps{"0 decode (0), 8+0", "1 decode (8)", "1 decode (9)", "1 decode (10)"}));
  }
}

// is_hybrid_swa: batch_is_full is reset, and who did not fit is tried in each step. 60 tokens, of which a
// request that runs has 10 and 19 to come: 31 are left, and stay: a row takes one, and one less is to come.
// With .1 of the ratio gone at each step (r = 1, .9, ...) 60 - 10 - n - r (19 - n) are, which is above
// 20 + 11 + 1 = 32 with n = 1. Without windows nobody is tried until the first is done.
TEST(SglangWindows, R22SomebodyIsTriedInEveryStep) {
  for (const bool windows : {true, false}) {
    SglangKnobs k = small(60, 60);
    k.init_new_token_ratio = 1;
    k.min_new_token_ratio_factor = 0.1;
    k.new_token_ratio_decay_steps = 9;
    if (!windows) k.sliding_window = 0;
    SglangScheduler s(k);
    s.add(asks(10, 20));
    ASSERT_TRUE(s.schedule());
    s.finish_steps();
    s.add(asks(20, 11));
    const Steps steps = steps_of(s);
    ASSERT_GT(steps.size(), 19U);
    EXPECT_EQ(steps[0], "1 decode (10)");
    EXPECT_EQ(steps[1], windows ? "0 decode (0), 20+0" : "1 decode (11)");
    EXPECT_EQ(steps[windows ? 2 : 19], windows ? "2 decode (31)" : "0 decode (0), 20+0");
  }
}

// Two decode; where windows are out one loses all, though the other pool has room: of equal ones the longer
// prompt. 16 - 9 = 7 windows are three rows of both, and one for two. Nothing is dropped yet.
TEST(SglangWindows, R22WindowsThatAreOutRetractSomebody) {
  SglangKnobs k = small(100, 16);
  k.init_new_token_ratio = 0;
  SglangScheduler s(k);
  s.add(asks(4, 9));
  s.add(asks(5, 9));
  std::vector<std::string> steps;
  for (int i = 0; i < 5 && s.schedule(); ++i) {
    steps.push_back(text_of(s.front()));
    s.finish_steps();
  }
  EXPECT_EQ(steps, (Steps{"0 decode (0), 4+0 5+0", "2 decode (9)", "2 decode (11)", "2 decode (13)",
                          "1 decode (7)"}));
  EXPECT_EQ(s.preemptions(), 1U);
  steps_of(s);
  EXPECT_EQ(s.windows()->available(), 16U);
  EXPECT_EQ(s.available_pages(), 100U);
}

TEST(SglangWindows, R22WhatIsNotPlayedIsRefused) {
  SglangKnobs k = small(100, 50);
  EXPECT_THAT([&] { SglangScheduler(k, PairRole::prefills); },
              ThrowsMessage<UserError>(HasSubstr("pairs of SGLang's servers of a model with windows")));
  EXPECT_THAT([&] { SglangScheduler(k, PairRole::none, draft_law(1, 0.5, 1)); },
              ThrowsMessage<UserError>(HasSubstr("drafts of a model with windows")));
  k.disable_radix_cache = true;
  EXPECT_THAT([&] { SglangScheduler{k}; }, ThrowsMessage<UserError>(HasSubstr("disable_radix_cache")));
  EXPECT_THAT([] { SglangScheduler{small(100, 0)}; },
              ThrowsMessage<UserError>(HasSubstr("room for no page")));
}

// A play, or how the engine ended.
struct Outcome {
  Played played;
  bool ended = false, stood = false;
};
template <class S>
Outcome outcome(const std::vector<TraceRequest>& requests, S& scheduler, bool jump) {
  const BentStepTimes times;
  try {
    return {play(requests, scheduler, times, jump)};
  } catch (const EngineStops&) {
    return {{}, true, true};
  } catch (const UserError& e) {
    EXPECT_EQ(std::string(e.what()).find("no request goes on"), std::string::npos) << e.what();
    return {{}, true};
  }
}

struct Sums {
  PlainSglangWindows::Counts counts;
  PlainWindowTree::Counts tree;
  std::uint64_t preemptions = 0, found = 0, ended = 0, stood = 0, steps = 0, events = 0, refused = 0;

  void add(const PlainSglangWindows& s) {
    const auto& c = s.counts();
    const auto& t = s.kv().tree.counts();
    counts.dropped += c.dropped;
    counts.parked += c.parked;
    counts.refused_for_windows += c.refused_for_windows;
    counts.mixed += c.mixed;
    tree.tombstoned += t.tombstoned;
    tree.recovered += t.recovered;
    tree.locked += t.locked;
    tree.full += t.full;
    tree.leaves += t.leaves;
  }
};

// 4,000 loads by hand.
std::uint64_t loads() { return std::getenv("SHARDLINE_WHOLE") == nullptr ? 400 : 4000; }

// In which step each request is done, what was held over time, and all gaps between tokens.
TEST(SglangWindows, R22EqualTheEnginesOwnLoops) {
  Sums sums;
  for (std::uint64_t seed = 0; seed < loads() && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "sglang windows");
    const SglangKnobs knobs = random_windows(random);
    const auto requests = bursts_of_words(random);
    OfWords<SglangScheduler> fast(knobs), jumping(knobs);
    OfWords<PlainSglangWindows> plain(knobs);
    const Outcome a = outcome(requests, fast, false), b = outcome(requests, plain, false),
                  c = outcome(requests, jumping, true);
    sums.add(plain);
    ASSERT_EQ(a.ended, b.ended);
    ASSERT_EQ(a.stood, b.stood);
    ASSERT_EQ(a.ended, c.ended);
    sums.ended += a.ended ? 1 : 0;
    sums.stood += a.stood ? 1 : 0;
    if (a.ended) continue;
    ASSERT_EQ(a.played.answers.size(), b.played.answers.size());
    if (a.played.answers.empty()) continue;
    expect_equal(a.played, b.played);
    expect_same(c.played, a.played);
    EXPECT_EQ(a.played.served.refused, b.played.served.refused);
    EXPECT_EQ(fast.available_pages(), fast.pages());
    EXPECT_EQ(fast.windows()->available(), fast.windows()->pages);
    EXPECT_EQ(fast.windows()->tree.tombstones(), jumping.windows()->tree.tombstones());
    EXPECT_EQ(fast.windows()->batches, jumping.windows()->batches);
    EXPECT_EQ(fast.new_token_ratio(), jumping.new_token_ratio());
    sums.preemptions += a.played.served.preemptions;
    sums.found += a.played.served.found_tokens;
    sums.refused += a.played.served.refused;
    sums.steps += c.played.served.steps;
    sums.events += c.played.served.events;
  }
  EXPECT_GT(sums.events, 50'000U);
  EXPECT_GT(sums.steps, 3 * sums.events);
  EXPECT_GT(sums.counts.dropped, 20'000U);
  EXPECT_GT(sums.counts.parked, 500U);
  EXPECT_GT(sums.counts.refused_for_windows, 20'000U);
  EXPECT_GT(sums.counts.mixed, 1'000U);
  EXPECT_GT(sums.tree.tombstoned, 10'000U);
  EXPECT_GT(sums.tree.recovered, 1'000U);
  EXPECT_GT(sums.tree.locked, 100U);
  EXPECT_GT(sums.tree.full, 5'000U);
  EXPECT_GT(sums.tree.leaves, 5'000U);
  EXPECT_GT(sums.preemptions, 500U);
  EXPECT_GT(sums.found, 500'000U);
  EXPECT_GT(sums.refused, 50U);
  EXPECT_GT(sums.stood, 1U);
  EXPECT_LT(sums.ended, loads() / 5);
}

}  // namespace
}  // namespace shardline
