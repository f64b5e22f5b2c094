// TensorRT-LLM's scheduler with drafts [R20]: schedules by hand, and the engine's own loop on random loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "planner/requests/trtllm_scheduler.hpp"
#include "sim/base/error.hpp"
#include "sim/base/random.hpp"
#include "tests/planner/requests/draft_laws.hpp"
#include "tests/planner/requests/plain_trtllm_drafts.hpp"
#include "tests/planner/requests/random_play.hpp"
#include "tests/planner/requests/random_vllm.hpp"
#include "tests/planner/requests/schedule_text.hpp"
#include "tests/support/loads.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TrtllmKnobs small(bool overlap, std::uint32_t blocks = 64) {
  TrtllmKnobs k;
  k.disable_overlap_scheduler = !overlap;
  k.tokens_per_block = 4;
  k.max_seq_len = 64;
  k.blocks = blocks;
  if (blocks < 16) k.max_seq_len = 16;
  return k;
}

// Blocks that are held in each step.
std::vector<std::uint32_t> held_of(TrtllmScheduler& s, Steps* steps = nullptr) {
  std::vector<std::uint32_t> out;
  while (s.schedule()) {
    if (steps != nullptr) steps->push_back(text_of(s.front()));
    out.push_back(s.pool().size() - s.pool().available());
    s.finish_steps();
  }
  return out;
}

// All three drafts of each step are accepted: a prompt of 7 tokens yields one, then come 4, 4 and the last 2
// of 11. Blocks of 4 tokens are there for the prompt and two tokens of the module's later passes, 9 in all,
// and for 4 more in each step: 13, 17, 21.
TEST(TrtllmDrafts, R20WithAllAcceptedEachStepYieldsOneAndAllDrafts) {
  TrtllmScheduler s(small(false), draft_law(3, 1, 1));
  s.add(asks(7, 11));
  Steps steps;
  EXPECT_EQ(held_of(s, &steps), (std::vector<std::uint32_t>{3, 4, 5, 6}));
  EXPECT_EQ(steps, (Steps{"0 decode (0), 7+0", "1 decode (7)", "1 decode (11)", "1 decode (15)"}));
  EXPECT_EQ(s.pool().available(), 64U);
}

// Drafts that are all rejected give their blocks back when the step ends: 5 + 2 tokens, then 4 more of which
// one stays. So 11, 12, 13 and 14 tokens have blocks in steps, 8, 9 and 10 between them.
TEST(TrtllmDrafts, R20RejectedDraftsGiveTheirBlocksBack) {
  TrtllmScheduler s(small(false), draft_law(3, 1e-300, 1));
  s.add(asks(5, 5));
  std::vector<std::uint32_t> in, between;
  while (s.schedule()) {
    in.push_back(64 - s.pool().available());
    s.finish_steps();
    between.push_back(64 - s.pool().available());
  }
  EXPECT_EQ(in, (std::vector<std::uint32_t>{2, 3, 3, 4, 4}));
  EXPECT_EQ(between, (std::vector<std::uint32_t>{2, 2, 3, 3, 0}));
}

// A block that rejected drafts alone had is the next that is taken. Of 8 blocks four that never had text are
// in front of those of a text that is left. One that decodes takes two of these for its prompt and then one
// more in each of five steps, which in four of them is the one that it has just given back, so that the text
// is found as a whole. Were blocks given back to the end of the queue the fourth would be of the text.
TEST(TrtllmDrafts, R20BlocksOfRejectedDraftsAreTakenNext) {
  TrtllmScheduler s(small(false, 8), draft_law(3, 1e-300, 1));
  s.add(asks(13, 1, {1, 2, 3, 4}), 4);
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 13+0"}));
  s.add(asks(5, 6));
  EXPECT_EQ(held_of(s), (std::vector<std::uint32_t>{2, 3, 3, 4, 4, 4}));
  s.add(asks(13, 1, {1, 2, 3, 4}), 4);
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 1+12"}));
}

// With the overlap scheduler the step behind the one that ends an answer was decided before that was known: a
// row in vain, whose place is behind all that was accepted. It is left out where one token is lacking and a
// step is under way: of 10 tokens 9 are known when the last step begins, of 9 all are; of 2 one is when the
// second begins.
TEST(TrtllmDrafts, R20TheOverlapSchedulerComputesARowInVain) {
  const auto steps = [](std::int64_t answer) {
    TrtllmScheduler s(small(true), draft_law(3, 1, 1));
    s.add(asks(6, answer));
    const Steps out = steps_of(s);
    EXPECT_EQ(s.pool().available(), 64U);
    return out;
  };
  const Steps all{"0 decode (0), 6+0", "1 decode (6)", "1 decode (10)", "1 decode (14)"};
  EXPECT_EQ(steps(10), all);
  EXPECT_EQ(steps(9), all);
  EXPECT_EQ(steps(5), (Steps{all[0], all[1], all[2]}));
  EXPECT_EQ(steps(4), (Steps{all[0], all[1], all[2]}));
  EXPECT_EQ(steps(2), (Steps{all[0], all[1]}));
  EXPECT_EQ(steps(1), (Steps{all[0]}));
}

// With the overlap scheduler blocks are for the tokens of two steps: 6 + 2 of the prompt and 4 of the next
// step, 12, then 16, as a prompt that has ended gives nothing back. Each step that decodes leaves one token
// of its four, so that with the next one's it is 17 and 18. The last token is in a step that is under way
// when one more could be decided: 15.
TEST(TrtllmDrafts, R20WithOverlapBlocksAreForTwoSteps) {
  TrtllmScheduler s(small(true), draft_law(3, 1e-300, 1));
  s.add(asks(6, 5));
  std::vector<std::uint32_t> held;
  do {
    while (s.decided() < s.depth() && s.schedule()) {
    }
    held.push_back(64 - s.pool().available());
    s.finish_steps();
  } while (s.running() > 0);
  EXPECT_EQ(held, (std::vector<std::uint32_t>{3, 4, 5, 5, 4}));
}

// Of a step of 10 tokens two requests have four rows each; the third has none rather than fewer, and the
// prompt of one token behind it is not tried. When two are done it decodes, and the prompt beside it.
TEST(TrtllmDrafts, R20TheBudgetCountsAllRowsOrNone) {
  TrtllmKnobs k = small(false);
  k.max_num_tokens = 10;
  TrtllmScheduler s(k, draft_law(3, 1, 1));
  for (int i = 0; i < 3; ++i) s.add(asks(2, 9));
  EXPECT_EQ(steps_of(s, 1), (Steps{"0 decode (0), 2+0 2+0 2+0"}));
  s.add(asks(1, 1));
  EXPECT_EQ(steps_of(s), (Steps{"2 decode (4)", "2 decode (12)", "1 decode (2), 1+0", "1 decode (6)"}));
}

// A prompt of two waits beside one that decodes, four tokens of the half of 20 that the step must have.
TEST(TrtllmDrafts, R20PromptsWaitForMoreBesideAllRows) {
  TrtllmKnobs k = small(false);
  k.max_num_tokens = 20;
  k.batch_wait_timeout_iters = 9;
  k.batch_wait_max_tokens_ratio = 0.5;
  for (const std::int64_t prompt : {5, 6}) {
    TrtllmScheduler s(k, draft_law(3, 1, 1));
    s.add(asks(8, 9));
    EXPECT_EQ(steps_of(s, 1), (Steps{"0 decode (0), 8+0"}));
    s.add(asks(prompt, 1));
    EXPECT_EQ(steps_of(s, 1), (Steps{prompt == 5 ? "1 decode (8)" : "1 decode (8), 6+0"}));
  }
}

// What is kept free for an answer ends with it, and blocks that drafts have behind its end are lent out: of
// 10 the first has 5 for 20 tokens, of which 4 are for its prompt and answer. 24 tokens are 6 blocks, and
// fit.
TEST(TrtllmDrafts, R20BlocksBehindTheEndAreNotCounted) {
  TrtllmKnobs k = small(false, 10);
  k.max_seq_len = 24;
  TrtllmScheduler s(k, draft_law(7, 1e-300, 1));
  s.add(asks(6, 10));
  EXPECT_EQ(steps_of(s, 9).back(), "1 decode (13)");
  EXPECT_EQ(10 - s.pool().available(), 5U);
  s.add(asks(4, 20));
  EXPECT_EQ(steps_of(s, 1), (Steps{"1 decode (14), 4+0"}));
}

// Nor are they there: 16 tokens are 4 blocks, with 4 drafts behind them 5. The engine ends with an error.
TEST(TrtllmDrafts, R20WithoutABlockForDraftsTheEngineEnds) {
  for (const TrtllmPolicy policy : {TrtllmPolicy::guaranteed_no_evict, TrtllmPolicy::max_utilization}) {
    for (const std::uint32_t blocks : {4U, 5U}) {
      TrtllmKnobs k = small(false, blocks);
      k.capacity_scheduler_policy = policy;
      TrtllmScheduler s(k, draft_law(3, 1, 1));
      s.add(asks(6, 10));
      if (blocks == 5)
        EXPECT_EQ(steps_of(s).size(), 4U);
      else
        EXPECT_THAT([&] { steps_of(s); }, ThrowsMessage<EngineStops>(HasSubstr("No free blocks left")));
    }
  }
}

// One draft, blocks of 4 tokens, 4 of them: both prompts of 7 take 2. The first needs a third block for 7 + 2
// tokens: the second is paused, with a token. Its 8 tokens are a prompt when the first is done; it has its
// draft still, so that 9 tokens have blocks, 11 in the next step and 12 in the last one.
TEST(TrtllmDrafts, R20WhoIsPausedKeepsItsDrafts) {
  TrtllmKnobs k = small(false, 4);
  k.capacity_scheduler_policy = TrtllmPolicy::max_utilization;
  TrtllmScheduler s(k, draft_law(1, 1e-300, 1));
  s.add(asks(7, 4));
  s.add(asks(7, 4));
  Steps steps;
  EXPECT_EQ(held_of(s, &steps), (std::vector<std::uint32_t>{4, 3, 3, 3, 3, 3, 3}));
  EXPECT_EQ(steps, (Steps{"0 decode (0), 7+0 7+0", "1 decode (7)", "1 decode (8)", "1 decode (9)",
                          "0 decode (0), 4+4", "1 decode (8)", "1 decode (9)"}));
  EXPECT_EQ(s.preemptions(), 1U);
}

// As above with five blocks and steps of 14 tokens: its prompt of 8 and its draft leave no room for the 6 of
// the third, which has the blocks that it needs and comes a step later.
TEST(TrtllmDrafts, R20DraftsOfWhoIsPausedCostTokensOfAStep) {
  TrtllmKnobs k = small(false, 5);
  k.capacity_scheduler_policy = TrtllmPolicy::max_utilization;
  k.max_num_tokens = 14;
  k.enable_block_reuse = false;
  TrtllmScheduler s(k, draft_law(1, 1e-300, 1));
  s.add(asks(7, 4));
  s.add(asks(7, 4));
  EXPECT_EQ(steps_of(s, 1), (Steps{"0 decode (0), 7+0 7+0"}));
  s.add(asks(6, 1));
  EXPECT_EQ(steps_of(s), (Steps{"1 decode (7)", "1 decode (8)", "1 decode (9)", "0 decode (0), 8+0",
                                "1 decode (8), 6+0", "1 decode (9)"}));
}

// A prompt that is found has no block less, as the module's cache is in the same ones; of an answer what is
// accepted beyond its end is never stored: of 6 + 6 tokens 11 are two full blocks, of 6 + 9 it would be
// three.
TEST(TrtllmDrafts, R20FoundAndStoredIsAcceptedTextAlone) {
  TrtllmScheduler s(small(false), draft_law(3, 1, 1));
  s.add(asks(12, 1, {1, 2, 3}), 4);
  steps_of(s);
  s.add(asks(12, 1, {1, 2, 3}), 4);
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 4+8"}));
  TrtllmScheduler t(small(false), draft_law(3, 1, 1));
  t.add(asks(6, 6));
  EXPECT_EQ(steps_of(t).size(), 3U);
  EXPECT_EQ(t.pool().filled(), 2U);
}

TEST(TrtllmDrafts, R20AStepHasRoomForOneRequest) {
  TrtllmKnobs k = small(true);
  k.max_num_tokens = 4;
  EXPECT_NO_THROW(TrtllmScheduler(k, draft_law(3, 0.5, 1)));
  EXPECT_THAT([&] { TrtllmScheduler(k, draft_law(4, 0.5, 1)); },
              ThrowsMessage<UserError>(HasSubstr("max_num_tokens 4 is less than the 5 tokens")));
}

TrtllmKnobs draft_knobs(RandomStream& random) {
  TrtllmKnobs k;
  const std::uint64_t policy = random.below(6);
  k.capacity_scheduler_policy = policy == 0   ? TrtllmPolicy::static_batch
                                : policy <= 2 ? TrtllmPolicy::guaranteed_no_evict
                                              : TrtllmPolicy::max_utilization;
  k.context_chunking_policy =
      random.below(3) == 0 ? TrtllmChunking::equal_progress : TrtllmChunking::first_come_first_served;
  k.disable_overlap_scheduler = random.below(3) == 0;
  k.enable_chunked_prefill = random.below(3) > 0;
  k.enable_block_reuse = random.below(4) > 0;
  k.max_batch_size = random.below(4) == 0 ? 1U << random.below(4) : 64;
  k.max_num_tokens = k.enable_chunked_prefill ? 64U << random.below(6) : 2048U << random.below(2);
  k.batch_wait_timeout_iters = random.below(3) == 0 ? 5 : 0;
  k.batch_wait_max_tokens_ratio = random.below(2) == 0 ? 0.5 : 0;
  k.tokens_per_block = 4U << random.below(5);
  // Few requests fit, so that answers are paused.
  k.max_seq_len = random.below(2) == 0 ? 2048 : 330;
  const std::uint32_t longest = (k.max_seq_len + k.tokens_per_block - 1) / k.tokens_per_block;
  k.blocks = longest + static_cast<std::uint32_t>(random.below(1 + random.below(3 * longest)));
  return k;
}

// A play, or how the engine ended.
struct Outcome {
  Played played;
  std::string ended;
};
template <class S>
Outcome outcome(const std::vector<TraceRequest>& requests, S& scheduler, bool jump) {
  const BentStepTimes times;
  try {
    return {play(requests, scheduler, times, jump), ""};
  } catch (const UserError& e) {
    const std::string what = e.what();
    if (what.find("No free blocks") != std::string::npos) return {{}, "blocks"};
    return {{}, what.find("no request goes on") != std::string::npos ? "stands still" : "too long"};
  }
}

struct Sums {
  std::uint64_t played = 0, preemptions = 0, found = 0, tokens = 0, blocks = 0, stands_still = 0;
};
// In which step each request is done, what was held over time, and all gaps between chunks.
void equals_the_executor(std::uint64_t seed, const DraftLaw& drafts, Sums& sums) {
  RandomStream random(seed, "trtllm drafts");
  const TrtllmKnobs knobs = draft_knobs(random);
  const auto requests = bursts_of_texts(random);
  TrtllmScheduler fast(knobs, drafts);
  PlainTrtllmDrafts plain(knobs, drafts);
  const Outcome a = outcome(requests, fast, random.below(2) == 0), b = outcome(requests, plain, false);
  ASSERT_EQ(a.ended, b.ended);
  sums.blocks += a.ended == "blocks" ? 1 : 0;
  sums.stands_still += a.ended == "stands still" ? 1 : 0;
  if (!a.ended.empty()) return;
  if (drafts.drafts() > 0)
    expect_equal(a.played, b.played);
  else
    expect_same(a.played, b.played);  // jumps hold blocks at their ends
  EXPECT_EQ(fast.pool().available(), knobs.blocks);
  EXPECT_EQ(fast.pool().filled(), plain.pool().filled());
  ++sums.played;
  sums.preemptions += b.played.served.preemptions;
  sums.found += b.played.served.found_tokens;
  sums.tokens += b.played.served.answer_tokens;
}

// SHARDLINE_WHOLE=1 plays 4,000 loads. A part of them ends as the engine does, on blocks for drafts.
TEST(TrtllmDrafts, R20EqualTheExecutorsLoop) {
  Sums sums;
  const std::uint64_t seeds = testing::loads(600);
  for (std::uint64_t seed = 0; seed < seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "laws");
    equals_the_executor(seed, random_law(random), sums);
  }
  if (testing::kSanitized) return;  // a part of the loads
  EXPECT_GT(sums.played, 400U);
  EXPECT_GT(sums.blocks, 50U);
  EXPECT_GT(sums.preemptions, 150U);
  EXPECT_GT(sums.found, 1'000'000U);
  EXPECT_GT(sums.tokens, 900'000U);
}

// Without drafts jumps and all.
TEST(TrtllmDrafts, R9WithoutDraftsItIsTheExecutorsLoopToo) {
  Sums sums;
  const std::uint64_t seeds = testing::loads(200, 2000);
  for (std::uint64_t seed = 0; seed < seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    equals_the_executor(seed, {}, sums);
  }
  if (testing::kSanitized) return;  // a part of the loads
  EXPECT_GT(sums.played, 190U);
  EXPECT_LT(sums.blocks, 5U);
  EXPECT_GT(sums.preemptions, 100U);
}

// Step by step, what each computes, up to the one before which the engine ends; requests come between.
TEST(TrtllmDrafts, R20EachStepIsTheSame) {
  const auto steps = [](Scheduler& s, int most) {
    try {
      return steps_of(s, most);
    } catch (const UserError&) {
      return Steps{"ends"};
    }
  };
  std::uint64_t preemptions = 0, ended = 0;
  for (std::uint64_t seed = 0; seed < 400 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "each step of trtllm with drafts");
    const TrtllmKnobs knobs = draft_knobs(random);
    const DraftLaw drafts = random_law(random);
    TrtllmScheduler fast(knobs, drafts);
    PlainTrtllmDrafts plain(knobs, drafts);
    const auto requests = bursts_of_texts(random);
    bool ends = false;
    for (std::size_t i = 0; i <= requests.size() && !ends; ++i) {
      const bool all = i == requests.size();
      if (!all) {
        ASSERT_EQ(fast.add(requests[i]), plain.add(requests[i]));
      }
      const int most = all ? 100'000 : static_cast<int>(random.below(random.below(3) == 0 ? 60 : 3));
      for (int step = 0; step < most && !ends; ++step) {
        const Steps one = steps(fast, 1);
        ASSERT_EQ(one, steps(plain, 1));
        if (one.empty()) break;
        ends = one.front() == "ends";
        if (ends) break;
        ASSERT_EQ(fast.pool().available(), plain.pool().available());
        ASSERT_EQ(fast.pool().filled(), plain.pool().filled());
        ASSERT_EQ(fast.running(), plain.running());
        ASSERT_EQ(fast.waiting(), plain.waiting());
      }
    }
    EXPECT_EQ(fast.preemptions(), plain.preemptions());
    preemptions += fast.preemptions();
    ended += ends ? 1 : 0;
  }
  EXPECT_GT(preemptions, 100U);
  EXPECT_GT(ended, 20U);
}

}  // namespace
}  // namespace shardline
