// Which requests each micro-batch of SGLang computes where a plan has pipeline stages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "planner/requests/sglang_scheduler.hpp"
#include "tests/planner/requests/plain_sglang_pipeline.hpp"
#include "tests/planner/requests/random_play.hpp"
#include "tests/planner/requests/random_sglang.hpp"
#include "tests/planner/requests/random_vllm.hpp"
#include "tests/planner/requests/schedule_text.hpp"
#include "tests/planner/requests/staged_times.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

SglangKnobs sglang_stages(std::uint32_t stages) {
  SglangKnobs k;
  k.pp_size = stages;
  k.context_length = 64;
  k.max_total_tokens = 256;
  return k;
}

const std::string kNobodys = "0 decode (0)";

// Two stages, two micro-batches. The prompt of 6 tokens is in batch 0, of micro-batch 0; batch 1 is nobody's,
// and the loop waits for batch 0. So its tokens are those of batches 0, 2 and 4. With one more micro-batch
// (pp_async_batch_depth 1) of batches 0, 3 and 6. No row is computed in vain.
TEST(SglangPipeline, R37OneIsInEveryBatchOfItsTurn) {
  SglangKnobs k = sglang_stages(2);
  SglangScheduler s(k);
  s.add(asks(6, 3));
  EXPECT_EQ(s.depth(), 2U);
  EXPECT_EQ(steps_of(s),
            (Steps{"0 decode (0), 6+0", kNobodys, "1 decode (6)", kNobodys, "1 decode (7)", kNobodys}));
  EXPECT_EQ(s.available_pages(), 256U);
  k.pp_async_batch_depth = 1;
  SglangScheduler more(k);
  more.add(asks(6, 3));
  EXPECT_EQ(more.depth(), 3U);
  EXPECT_EQ(steps_of(more), (Steps{"0 decode (0), 6+0", kNobodys, kNobodys, "1 decode (6)", kNobodys,
                                   kNobodys, "1 decode (7)", kNobodys, kNobodys}));
}

// Four stages, prompts of 20 and 6 tokens, 8 of them a batch. Parts follow one another in the micro-batches:
// 8 and 8 of the first prompt, then its last 4 and 4 of the second one, whose last 2 are in batch 3. The
// first one's last part was in micro-batch 2, so that it decodes in batch 6: micro-batches 0 and 1 drop it,
// and micro-batch 2 the second prompt, which belongs to micro-batch 3, batch 7.
TEST(SglangPipeline, R37TheLastPartOfAPromptSaysWhoseItIs) {
  SglangKnobs k = sglang_stages(4);
  k.chunked_prefill_size = 8;
  SglangScheduler s(k);
  s.add(asks(20, 2));
  s.add(asks(6, 2));
  EXPECT_EQ(steps_of(s),
            (Steps{"0 decode (0), 8+0", "0 decode (0), 8+8", "0 decode (0), 4+16 4+0", "0 decode (0), 2+4",
                   kNobodys, kNobodys, "1 decode (20)", "1 decode (6)", kNobodys, kNobodys, kNobodys}));
  EXPECT_EQ(s.available_pages(), 256U);
}

// The second one comes when batch 0 has ended: batch 2 is micro-batch 0's, whose prompts go first, so that
// the first one waits for a whole turn. From batch 4 on both decode.
TEST(SglangPipeline, R37APromptHoldsUpItsMicroBatch) {
  SglangScheduler s(sglang_stages(2));
  s.add(asks(6, 4));
  while (s.decided() < s.depth() && s.schedule()) {
  }
  s.finish_steps();
  s.add(asks(5, 2));
  EXPECT_EQ(steps_of(s), (Steps{kNobodys, "0 decode (0), 5+0", kNobodys, "2 decode (11)", kNobodys,
                                "1 decode (7)", kNobodys, "1 decode (8)", kNobodys}));
}

// Of four that may run two are in each of two micro-batches, or three where pp_max_micro_batch_size says so.
// Without such a cap a burst is one micro-batch.
TEST(SglangPipeline, R37MicroBatchesHaveSoManyPlaces) {
  SglangKnobs k = sglang_stages(2);
  const auto burst = [&] {
    SglangScheduler s(k);
    for (int i = 0; i < 4; ++i) s.add(asks(4, 2));
    return steps_of(s);
  };
  EXPECT_EQ(burst(), (Steps{"0 decode (0), 4+0 4+0 4+0 4+0", kNobodys, "4 decode (16)", kNobodys}));
  k.max_running_requests = 4;
  EXPECT_EQ(burst(), (Steps{"0 decode (0), 4+0 4+0", "0 decode (0), 4+0 4+0", "2 decode (8)", "2 decode (8)",
                            kNobodys}));
  k.pp_max_micro_batch_size = 3;
  EXPECT_EQ(burst(), (Steps{"0 decode (0), 4+0 4+0 4+0", "0 decode (0), 4+0", "3 decode (12)", "1 decode (4)",
                            kNobodys}));
  // Two places each, and three in all (get_num_allocatable_reqs: the pool of requests). The fourth one is
  // looked at again when micro-batch 0 has found that its two are done, in batch 4, one turn later: batch 6,
  // as micro-batch 1 finds in batch 5, which nothing is under way behind, that its own is done.
  k.pp_max_micro_batch_size = 2;
  k.max_running_requests = 3;
  EXPECT_EQ(burst(), (Steps{"0 decode (0), 4+0 4+0", "0 decode (0), 4+0", "2 decode (8)", "1 decode (4)",
                            kNobodys, "0 decode (0), 4+0", kNobodys, "1 decode (4)", kNobodys}));
}

// Until nobody is there; an engine in which nothing is decided before that is not asked again.
Steps steps_without_rest(SglangScheduler& s) {
  Steps out;
  while (s.running() + s.waiting() + s.decided() > 0) {
    while (s.decided() < s.depth() && s.schedule()) {
    }
    if (s.decided() == 0) {
      ADD_FAILURE() << "somebody could go on";
      break;
    }
    out.push_back(text_of(s.front()));
    s.finish_steps();
  }
  return out;
}

SglangKnobs crowded(std::uint32_t tokens) {
  SglangKnobs k = sglang_stages(2);
  k.disable_radix_cache = true;
  k.max_total_tokens = tokens;
  k.pp_max_micro_batch_size = 2;
  k.init_new_token_ratio = 0;  // answers are kept no room for
  return k;
}

// 24 tokens of KV; three requests of 4 with 6 each, two in micro-batch 0 and one in micro-batch 1. Prompts
// take 12; batches 2, 4, 6, 8 take two each and 3, 5, 7, 9 one: none is left. Batch 10, of micro-batch 0,
// lacks two, and the second of its requests loses its 8, with 5 tokens of answer; nobody of micro-batch 1
// does. The other one has its last token there. Batch 11, of micro-batch 1, would begin with who lost: its 9
// tokens, 1 of answer and a page more are 11, and 7 are free, less the token that is left there. So it
// decodes, its last token. In batch 12 15 are free.
TEST(SglangPipeline, R37AMicroBatchRetractsItsOwn) {
  SglangScheduler s(crowded(24));
  for (int i = 0; i < 3; ++i) s.add(asks(4, 6));
  EXPECT_EQ(steps_of(s),
            (Steps{"0 decode (0), 4+0 4+0", "0 decode (0), 4+0", "2 decode (8)", "1 decode (4)",
                   "2 decode (10)", "1 decode (5)", "2 decode (12)", "1 decode (6)", "2 decode (14)",
                   "1 decode (7)", "1 decode (8)", "1 decode (8)", "0 decode (0), 9+0", kNobodys}));
  EXPECT_EQ(s.preemptions(), 1U);
  EXPECT_EQ(s.available_pages(), 24U);
}

// One token less: batch 9 finds none, and its only request has nobody to take it from. The engine aborts it.
TEST(SglangPipeline, R37TheLastOfAMicroBatchIsAborted) {
  SglangScheduler s(crowded(23));
  for (int i = 0; i < 3; ++i) s.add(asks(4, 6));
  try {
    steps_of(s);
    FAIL() << "the engine aborts a request";
  } catch (const EngineStops& e) {
    EXPECT_THAT(std::string(e.what()), HasSubstr("SGLang aborts a request"));
  }
}

// 24 tokens, one place in each of two micro-batches, and requests of 10 with 6, 6 and 1. The first one is in
// batch 0. In batch 1 the second one asks for 17, and 14 are free: micro-batch 1, which has nobody, is full
// from then on, as nobody of it will ever be done. The second one begins in micro-batch 0 when the first one
// is done, two turns later (its end is found in one turn, prompts are looked at in the next); the third one
// would fit beside it in micro-batch 1, and waits until it is done.
TEST(SglangPipeline, R37AnEmptyMicroBatchThatWasFullStaysClosed) {
  SglangKnobs k = crowded(24);
  k.pp_max_micro_batch_size = 1;
  SglangScheduler s(k);
  s.add(asks(10, 6));
  s.add(asks(10, 6));
  s.add(asks(10, 1));
  Steps expected;
  for (int request = 0; request < 2; ++request) {
    expected.insert(expected.end(), {"0 decode (0), 10+0", kNobodys});
    for (int cached = 10; cached < 15; ++cached)
      expected.insert(expected.end(), {"1 decode (" + std::to_string(cached) + ")", kNobodys});
  }
  expected.insert(expected.end(), {"0 decode (0), 10+0", kNobodys});
  EXPECT_EQ(steps_without_rest(s), expected);
}

// Alone in four stages of 1 s, 0.25 s on the way to each next one: a token takes 5 s. Who comes a second
// later waits for 5, and is in the micro-batch whose turn it is then, the first one's: it ends at 10, and the
// first one's second token, which waited for it, at 15.
TEST(SglangPipeline, R37TimesOfFewerRequestsThanStages) {
  const StagedTimes times(std::vector<StageTime>(4, {Seconds(1), Seconds(1), Seconds(0.25)}));
  SglangScheduler s(sglang_stages(4));
  const Played p = play({{Seconds(0), 6, 3, {}}, {Seconds(1), 6, 1, {}}}, s, times, true);
  ASSERT_EQ(p.answers.size(), 2U);
  EXPECT_NEAR(p.answers[0].last.value, 10, 1e-12);  // who came second
  EXPECT_NEAR(p.answers[1].first.value, 5, 1e-12);
  EXPECT_NEAR(p.answers[1].last.value, 20, 1e-12);
  EXPECT_EQ(p.served.steps, 4U);
  EXPECT_NEAR(p.served.busy.value, 20, 1e-12);
}

TEST(SglangPipeline, R37WhatDoesNotStartIsRefused) {
  const auto fault = [](const SglangKnobs& k, PairRole role = PairRole::none, const DraftLaw& law = {}) {
    try {
      const SglangScheduler s(k, role, law);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  SglangKnobs k = sglang_stages(2);
  EXPECT_EQ(fault(k), "");
  EXPECT_THAT(fault(k, PairRole::none, DraftLaw({0.7}, 1)), HasSubstr("with drafts where there are stages"));
  EXPECT_THAT(fault(k, PairRole::prefills), HasSubstr("stages in pairs of pools"));
  k.enable_mixed_chunk = true;
  EXPECT_THAT(fault(k), HasSubstr("enable_mixed_chunk"));
  k = sglang_stages(2);
  k.sliding_window = 16;
  EXPECT_THAT(fault(k), HasSubstr("windows in stages"));
}

SglangKnobs random_stages_of_sglang(RandomStream& random) {
  SglangKnobs k = random_sglang(random);
  k.enable_mixed_chunk = false;
  k.pp_size = 2 + static_cast<std::uint32_t>(random.below(4));
  k.pp_async_batch_depth = static_cast<std::uint32_t>(std::max<std::uint64_t>(2, random.below(5)) - 2);
  k.pp_max_micro_batch_size = random.below(2) == 0 ? 0 : 1U << random.below(5);
  k.max_total_tokens += 64 * static_cast<std::uint32_t>(random.below(100));
  if (random.below(2) == 0) {  // crowded, and room is kept for few answers
    k.schedule_conservativeness = 0.01;
    k.max_running_requests = 64;
    k.pp_max_micro_batch_size = 0;
    k.max_total_tokens = 2304;
  }
  k.prefill_max_requests = random.below(4) == 0 ? 1 + static_cast<std::uint32_t>(random.below(4)) : 0;
  return k;
}

struct SeenLoops {
  std::uint64_t plays = 0, stops = 0, retractions = 0, found = 0, batches = 0, chunks = 0, closed = 0;
};

void compare_with_loop(std::uint64_t seed, SeenLoops& seen) {
  RandomStream random(seed, "sglang pipeline");
  const SglangKnobs knobs = random_stages_of_sglang(random);
  const StagedTimes times = random_stages(random, knobs.pp_size);
  const std::vector<TraceRequest> requests = bursts_of_texts(random);
  PlainSglangPipeline plain(knobs, times);
  SglangScheduler scheduler(knobs);
  std::vector<AnsweredRequest> expected;
  try {
    expected = by_number(plain.play(requests));
  } catch (const PlainStop&) {
    ++seen.stops;
    EXPECT_THROW(play(requests, scheduler, times, true), EngineStops);
    return;
  }
  const Played played = play(requests, scheduler, times, true);
  ASSERT_NO_FATAL_FAILURE(expect_answers(by_number(played.answers), expected));
  EXPECT_EQ(played.served.steps, plain.batches);
  EXPECT_EQ(scheduler.available_pages(), scheduler.pages());  // every page was given back
  EXPECT_EQ(plain.available(), scheduler.pages());
  ++seen.plays;
  seen.retractions += plain.retractions;
  seen.found += played.served.found_tokens;
  seen.batches += plain.batches;
  seen.chunks += plain.chunks;
  seen.closed += plain.closed;
}

TEST(SglangPipeline, R37PlaysAreTheEnginesLoop) {
  SeenLoops seen;
  for (std::uint64_t seed = 0; seed < 480 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    compare_with_loop(seed, seen);
  }
  RecordProperty("plays", static_cast<int>(seen.plays));
  RecordProperty("stops", static_cast<int>(seen.stops));
  RecordProperty("retractions", static_cast<int>(seen.retractions));
  RecordProperty("found", static_cast<int>(seen.found));
  RecordProperty("closed", static_cast<int>(seen.closed));
  RecordProperty("chunks", static_cast<int>(seen.chunks));
  RecordProperty("batches", static_cast<int>(seen.batches));
  EXPECT_GE(seen.plays, 400U);
  EXPECT_GT(seen.stops, 0U);
  EXPECT_GT(seen.retractions, 100U);
  EXPECT_GT(seen.found, 100'000U);
  EXPECT_GT(seen.chunks, 1000U);
  EXPECT_GT(seen.closed, 10U);
  EXPECT_GT(seen.batches, 10'000U);
}

// Every token has been computed once, and intervals between them add up to requests' times.
TEST(SglangPipeline, R37TokensAndTimesAddUp) {
  std::uint64_t plays = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "sums of turns");
    SglangKnobs knobs = random_stages_of_sglang(random);
    knobs.max_total_tokens += 4096;  // the engine ends with an error in few loads
    const StagedTimes times = random_stages(random, knobs.pp_size);
    const std::vector<TraceRequest> requests = bursts_of_texts(random);
    SglangScheduler scheduler(knobs);
    Played p;
    try {
      p = play(requests, scheduler, times, true);
    } catch (const EngineStops&) {
      continue;
    }
    ++plays;
    EXPECT_EQ(p.answers.size(), requests.size());
    expect_sums(p);
  }
  EXPECT_GT(plays, 80U);
}

// Each request's tokens are as many steps apart as there are micro-batches at least, as its own is the only
// one that has it, and all of them are computed once.
TEST(SglangPipeline, R37NobodyLeavesItsTurn) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed, "turns");
    SglangKnobs knobs = random_stages_of_sglang(random);
    knobs.max_total_tokens = 60'000;
    SglangScheduler s(knobs);
    std::map<Scheduler::Id, std::uint64_t> last;
    std::uint64_t step = 0, tokens = 0, asked = 0;
    for (int i = 0; i < 40; ++i) {
      const auto answer = static_cast<std::int64_t>(1 + random.below(60));
      s.add(asks(static_cast<std::int64_t>(1 + random.below(300)), answer));
      asked += static_cast<std::uint64_t>(answer);
    }
    for (int idle = 0; idle < 2;) {
      while (s.decided() < s.depth() && s.schedule()) {
      }
      if (s.decided() == 0) {
        EXPECT_EQ(s.running() + s.waiting(), 0U);  // whoever can go on does so at once
        ++idle;
        continue;
      }
      idle = 0;
      ++step;
      for (const Scheduler::Id id : s.finish_steps().named) {
        if (last.count(id) > 0) {
          EXPECT_GE(step, last[id] + s.depth());
        }
        last[id] = step;
        ++tokens;
      }
    }
    EXPECT_EQ(tokens, asked);
    EXPECT_EQ(s.available_pages(), s.pages());
  }
}

}  // namespace
}  // namespace shardline
