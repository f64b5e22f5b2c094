// Schedules of hand-made requests, each step derived from SGLang's source (see sglang_scheduler.hpp).
#include "planner/requests/sglang_scheduler.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "tests/planner/requests/schedule_text.hpp"

namespace shardline {
namespace {

SglangKnobs small(std::uint32_t tokens) {
  SglangKnobs k;
  k.disable_overlap_schedule = true;
  k.context_length = 1000;
  k.max_total_tokens = tokens;
  return k;
}

// Chunks of 10: of 14 tokens 10; then the last 4, and 6 of the next one's 7; its last token while the first
// waits, as prompts go first; then both decode.
TEST(SglangScheduler, R8PromptsGoFirst) {
  SglangKnobs k = small(1000);
  k.chunked_prefill_size = 10;
  SglangScheduler s(k);
  s.add(asks(14, 3));
  s.add(asks(7, 2));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 10+0", "0 decode (0), 4+10 6+0", "0 decode (0), 1+6",
                                "2 decode (21)", "1 decode (15)"}));
  EXPECT_EQ(s.available_pages(), 1000U);
}

// With --enable-mixed-chunk the first decodes beside the second's last token.
TEST(SglangScheduler, R8MixedChunks) {
  SglangKnobs k = small(1000);
  k.chunked_prefill_size = 10;
  k.enable_mixed_chunk = true;
  SglangScheduler s(k);
  s.add(asks(14, 3));
  s.add(asks(7, 2));
  EXPECT_EQ(steps_of(s),
            (Steps{"0 decode (0), 10+0", "0 decode (0), 4+10 6+0", "1 decode (14), 1+6", "2 decode (22)"}));
}

// One that was done in the step before takes a token of the next chunk, as it is in the running batch still,
// and of none after that: 9, 10 and 10 of 29 tokens.
TEST(SglangScheduler, R8MixedChunksAfterTheLastAnswer) {
  SglangKnobs k = small(1000);
  k.chunked_prefill_size = 10;
  k.enable_mixed_chunk = true;
  SglangScheduler s(k);
  s.add(asks(4, 2));
  EXPECT_EQ(steps_of(s, 2), (Steps{"0 decode (0), 4+0", "1 decode (4)"}));
  s.add(asks(29, 1));
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 9+0", "0 decode (0), 10+9", "0 decode (0), 10+19"}));
}

// Without chunks the first prompt is taken whatever its length, a further one only below max_prefill_tokens.
TEST(SglangScheduler, R8WholePrompts) {
  SglangKnobs k = small(1000);
  k.chunked_prefill_size = 0;
  k.max_prefill_tokens = 16;
  SglangScheduler s(k);
  s.add(asks(20, 1));
  s.add(asks(9, 1));
  s.add(asks(8, 1));  // 7 are left
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 20+0", "0 decode (0), 9+0", "0 decode (0), 8+0"}));
}

// The next step is decided before it is known that a request has its last token: a row is computed in vain.
TEST(SglangScheduler, R8ARowInVainUnderOverlap) {
  for (const bool overlap : {false, true}) {
    SglangKnobs k = small(100);
    k.disable_overlap_schedule = !overlap;
    SglangScheduler s(k);
    s.add(asks(4, 2));
    Steps expected{"0 decode (0), 4+0", "1 decode (4)"};
    if (overlap) expected.push_back("1 decode (5)");
    EXPECT_EQ(steps_of(s), expected);
    EXPECT_EQ(s.available_pages(), 100U);
  }
}

// 16 pages of a token. Of 7 and 4 tokens of prompts 5 are left, which two steps and a half fill. Of two with
// 3 tokens of answer the longer prompt loses its pages, its prompt too, for 20 tokens of the one that is left
// (10 free, then one is taken). The new ratio is 1, (3 + 20) / 7 being more. Its 10 tokens, one of answer and
// a page do not fit 9 - 1: nobody is tried until the other one is done. Then 10 tokens are computed anew.
SglangKnobs tight() {
  SglangKnobs k = small(16);
  k.init_new_token_ratio = 0;
  k.clip_max_new_tokens_estimation = 1;
  return k;
}

TEST(SglangScheduler, R8RetractedAndComputedAnew) {
  SglangScheduler s(tight());
  s.add(asks(7, 6));
  EXPECT_EQ(steps_of(s, 1), (Steps{"0 decode (0), 7+0"}));
  s.add(asks(4, 6));
  EXPECT_EQ(steps_of(s, 4), (Steps{"0 decode (0), 4+0", "2 decode (11)", "2 decode (13)", "1 decode (6)"}));
  EXPECT_EQ(s.new_token_ratio(), 1);
  EXPECT_EQ(s.available_pages(), 9U);
  EXPECT_EQ(steps_of(s),
            (Steps{"1 decode (7)", "1 decode (8)", "0 decode (0), 10+0", "1 decode (10)", "1 decode (11)"}));
  EXPECT_EQ(s.preemptions(), 1U);
  EXPECT_EQ(s.available_pages(), 16U);
}

// With overlap the second has fewer tokens when pages are out, and loses the one under way: its 2 known ones
// and 4 of its prompt are computed anew, and the step that was under way gives it none.
TEST(SglangScheduler, R8ATokenUnderWayIsLost) {
  SglangKnobs k = tight();
  k.disable_overlap_schedule = false;
  SglangScheduler s(k);
  s.add(asks(7, 6));
  EXPECT_EQ(steps_of(s, 1), (Steps{"0 decode (0), 7+0"}));
  s.add(asks(4, 6));
  EXPECT_EQ(steps_of(s), (Steps{"1 decode (7)", "0 decode (0), 4+0", "2 decode (12)", "2 decode (14)",
                                "1 decode (10)", "1 decode (11)", "1 decode (12)", "0 decode (0), 6+0",
                                "1 decode (6)", "1 decode (7)", "1 decode (8)", "1 decode (9)"}));
  EXPECT_EQ(s.preemptions(), 1U);
  EXPECT_EQ(s.available_pages(), 16U);
}

// Pages of 4. Who comes when the text is in the tree finds all of it but the page of the last token; who
// comes together finds nothing.
TEST(SglangScheduler, R8PrefixesAreFound) {
  SglangKnobs k = small(400);
  k.page_size = 4;
  SglangScheduler s(k);
  s.add(asks(12, 1, {1, 2, 3}), 4);
  s.add(asks(12, 1, {1, 2, 3}), 4);
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 12+0 12+0"}));
  s.add(asks(12, 1, {1, 2, 3}), 4);
  s.add(asks(12, 1, {1, 5, 3}), 4);
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 4+8 8+4"}));
  EXPECT_EQ(s.available_pages(), 100U);
  k.disable_radix_cache = true;
  SglangScheduler none(k);
  for (int i = 0; i < 2; ++i) {
    none.add(asks(12, 1, {1, 2, 3}), 4);
    EXPECT_EQ(steps_of(none), (Steps{"0 decode (0), 12+0"}));
  }
}

// 200 pages, one request of 10 + 100 runs: 190 pages less 0.7 x 99 are 120.7. 10 + 115 + 1 do not fit; nobody
// behind is tried either, for 10 + 5 + 1, until the one that runs is done.
TEST(SglangScheduler, R8RoomIsKeptForPartsOfAnswers) {
  SglangScheduler s(small(200));
  s.add(asks(10, 100));
  steps_of(s, 1);
  s.add(asks(10, 115));
  s.add(asks(10, 5));
  const Steps steps = steps_of(s, 100);
  ASSERT_GE(steps.size(), 99U);
  for (int i = 0; i < 99; ++i)
    EXPECT_EQ(steps[static_cast<std::size_t>(i)], "1 decode (" + std::to_string(10 + i) + ")");
  EXPECT_NEAR(s.new_token_ratio(), 0.7 - 99 * 0.7 * (1 - 0.14) / 600, 1e-12);
  EXPECT_EQ(steps_of(s, 2).front(), "0 decode (0), 10+0 10+0");
  // 120 are less than 120.7.
  SglangScheduler fits(small(200));
  fits.add(asks(10, 100));
  steps_of(fits, 1);
  fits.add(asks(10, 109));
  EXPECT_EQ(steps_of(fits, 1), (Steps{"0 decode (0), 10+0"}));
}

TEST(SglangScheduler, R8PlacesAreLimited) {
  SglangKnobs k = small(1000);
  k.max_running_requests = 2;
  SglangScheduler s(k);
  for (int i = 0; i < 3; ++i) s.add(asks(4, i == 0 ? 2 : 3));
  // That the first is done is seen when a step that decodes is decided: a step late.
  EXPECT_EQ(steps_of(s), (Steps{"0 decode (0), 4+0 4+0", "2 decode (8)", "1 decode (5)", "0 decode (0), 4+0",
                                "1 decode (4)", "1 decode (5)"}));
}

TEST(SglangScheduler, WhatCannotBeServedIsRefused) {
  SglangKnobs k = small(16);
  SglangScheduler s(k);
  EXPECT_FALSE(s.add(asks(10, 1)));  // 16 - 1 - 5
  ASSERT_TRUE(s.add(asks(9, 100)));  // cut to 16 - 1 - 9 - 1 tokens
  EXPECT_EQ(steps_of(s).size(), 5U);
  k.chunked_prefill_size = 4;
  k.page_size = 8;
  EXPECT_THROW(SglangScheduler{k}, UserError);
}

}  // namespace
}  // namespace shardline
