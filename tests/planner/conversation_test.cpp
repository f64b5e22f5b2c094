// Ring variants timed on many requests, and conversations made of them.
#include "planner/studies/conversation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "planner/studies/ring_timing.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

Case gtt_case() {
  Case c = decode_case("llama-3.1-405b", "h100-gtt", 0);
  c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::fp8, Dtype::fp8};
  c.batch = prefill_batch({{0, 1}});
  c.persistent_kv = true;
  c.kernels = {true, true};
  return c;
}

TEST(RingTiming, IsThatOfSinglePlansForAnyNumberOfThreads) {
  const Case c = gtt_case();
  const auto splits = test_points({256, 64 << 10, 0.01, 512 << 10}, 4, 60, {});
  ASSERT_EQ(splits.size(), 60u);
  const auto one = ring_timer(c, 8, 1)(4, splits), three = ring_timer(c, 8, 3)(4, splits);
  for (std::size_t i = 0; i < splits.size(); ++i) {
    EXPECT_EQ(one[i].pass_kv, three[i].pass_kv);
    EXPECT_EQ(one[i].pass_q, three[i].pass_q);
    Case single = c;
    single.batch = prefill_batch({{splits[i].cached, splits[i].fresh}});
    Evaluator e(single);
    EXPECT_EQ(e.simulate(parse_plan("ring_pass_kv:cp=4,tpa=8,tpf=8,batch=1")), one[i].pass_kv);
    EXPECT_EQ(e.simulate(parse_plan("ring_pass_q:cp=4,tpa=8,tpf=8,batch=1")), one[i].pass_q);
  }
}

TEST(RingTiming, SettingIsThatOfANodeOfEightGpus) {
  const RingSetting peak = ring_setting(gtt_case(), 16, 8, false),
                    achieved = ring_setting(gtt_case(), 16, 8, true);
  EXPECT_NEAR(peak.compute.value, 8 * 800e12, 1);
  EXPECT_NEAR(peak.bandwidth.value, 8 * 50e9, 1);
  EXPECT_NEAR(achieved.compute.value, 8 * 800e12 * 0.7215, 1e3);
  EXPECT_NEAR(achieved.bandwidth.value, 8 * 50e9 * 0.554, 1);
  EXPECT_EQ(algorithm_1(peak, 4).message_ratio, 0.125);
  // Rings that fit a node do not cross the network.
  EXPECT_NEAR(ring_setting(gtt_case(), 4, 2, true).bandwidth.value, 2 * 450e9 * 0.89, 1);
}

Study talk(std::vector<Turn> turns, int cp = 4) {
  Study s;
  s.study = gtt_case();
  s.question = Conversation{cp, 8, std::move(turns)};
  return s;
}

TEST(Conversation, EachTurnFindsTheCacheOfAllTurnsBefore) {
  const auto turns = converse(talk({{64'000, 100}, {333, 0}, {2'000, 7}}));
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns[0].cached, 0);
  EXPECT_EQ(turns[1].cached, 64'100);
  EXPECT_EQ(turns[2].cached, 64'433);
  EXPECT_EQ(turns[0].hit_rate(), 0);
  EXPECT_NEAR(turns[1].hit_rate(), 64'100.0 / 64'433, 1e-15);
  for (const TurnTime& t : turns) {
    EXPECT_EQ(t.ttft(), std::min(t.pass_kv, t.pass_q));
    EXPECT_LE(t.fullest - t.emptiest, 1);
    EXPECT_LE(t.first_ttl, t.last_ttl);
  }
  EXPECT_EQ(turns[1].answer, turns[1].ttft());
  // The prefill gives the first of 7 tokens.
  EXPECT_NEAR((turns[2].answer - turns[2].ttft()) / turns[2].first_ttl, 6, 1e-3);
  // K and V of one of eight heads, a quarter of the tokens, 126 layers.
  EXPECT_NEAR(turns[2].kv_per_gpu.value, std::ceil(66'440 / 4.0) * 2 * 128 * 2 * 126, 1);
}

TEST(Conversation, FirstTurnIsAFullPrefillAndLateShortTurnsPassQueries) {
  const auto turns = converse(talk({{64'000, 1}, {256, 1}}));
  Case c = gtt_case();
  c.batch = prefill_batch({{0, 64'000}});
  Evaluator e(c);
  EXPECT_EQ(turns[0].pass_kv, e.simulate(parse_plan("ring_pass_kv:cp=4,tpa=8,tpf=8,batch=1")));
  EXPECT_TRUE(turns[0].kv_chosen);
  EXPECT_FALSE(turns[1].kv_chosen);
}

// Every turn against the cache with the position of every token that all turns before left.
TEST(Conversation, TurnsAreThoseOfTheWholeHistoryToTheLastBit) {
  std::mt19937_64 random(3);
  for (const char* system : {"h100-gtt", "h200-hgx"}) {
    std::vector<Turn> given;
    for (int i = 0; i < 12; ++i)
      given.push_back({1 + static_cast<long long>(random() % 700), static_cast<long long>(random() % 90)});
    Study s = talk(given, 3);
    s.study.system = catalog_system(system);
    const auto turns = converse(s);
    Case c = s.study, answer = s.study;
    Evaluator e(c), decodes(answer);
    Placement history(3, 1);
    for (std::size_t i = 0; i < given.size(); ++i) {
      SCOPED_TRACE(i);
      c.batch = prefill_batch({{history.length(0), given[i].fresh}});
      c.placement = std::make_shared<Placement>(history);
      EXPECT_EQ(turns[i].pass_kv, e.simulate(parse_plan("ring_pass_kv:cp=3,tpa=8,tpf=8,batch=1")));
      EXPECT_EQ(turns[i].pass_q, e.simulate(parse_plan("ring_pass_q:cp=3,tpa=8,tpf=8,batch=1")));
      history.prefill(0, given[i].fresh);
      history.decode(0, given[i].output);
      if (given[i].output > 0) {
        answer.batch = decode_batch(history.length(0));
        EXPECT_EQ(turns[i].last_ttl, decodes.simulate(parse_plan("ring_decode:cp=3,tpa=8,tpf=8,batch=1")));
      }
      long long most = 0, least = history.length(0);
      for (int r = 0; r < 3; ++r) {
        most = std::max(most, history.count(r, 0));
        least = std::min(least, history.count(r, 0));
      }
      EXPECT_EQ(turns[i].fullest, most);
      EXPECT_EQ(turns[i].emptiest, least);
    }
  }
}

TEST(Conversation, AConversationThatOutgrowsTheMemorySaysAtWhichTurn) {
  try {
    converse(talk({{100'000, 1}, {20'000'000, 1}}, 2));
    FAIL() << "no error";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("turn 2 does not fit h100-gtt"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace shardline
