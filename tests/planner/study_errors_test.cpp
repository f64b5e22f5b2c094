// How far what conversations, thresholds and partitions answer may be off [P12], [P17].
#include <gtest/gtest.h>

#include <cmath>

#include "planner/studies/conversation.hpp"
#include "planner/studies/searched_partition.hpp"
#include "planner/studies/threshold_study.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

Study study_on(const char* system, Question question) {
  Study s;
  s.study = decode_case("llama-3.1-70b", system, 0);
  s.study.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};
  s.study.batch = prefill_batch({{0, 1}});
  s.question = std::move(question);
  return s;
}

ErrorTerms errors_of(const Case& c, const char* plan) {
  Evaluator e(c);
  return rating_of(e, parse_plan(plan)).errors;
}

void expect_same(const ErrorTerms& one, const ErrorTerms& other) {
  ASSERT_EQ(one.all().size(), other.all().size());
  for (std::size_t i = 0; i < one.all().size(); ++i) {
    EXPECT_EQ(one.all()[i].source, other.all()[i].source);
    EXPECT_NEAR(one.all()[i].low, other.all()[i].low, 1e-12);
    EXPECT_NEAR(one.all()[i].high, other.all()[i].high, 1e-12);
  }
}

TEST(StudyErrors, P12OfATurnAreThoseOfItsPlansByTime) {
  const Study s = study_on("h200-hgx", Conversation{2, 4, {{32'768, 200}, {500, 0}}});
  const auto turns = converse(s);
  Case first = s.study;
  first.batch = prefill_batch({{0, 32'768}});
  expect_same(turns[0].kv_errors, errors_of(first, "ring_pass_kv:cp=2,tpa=4,tpf=4,batch=1"));
  expect_same(turns[0].q_errors, errors_of(first, "ring_pass_q:cp=2,tpa=4,tpf=4,batch=1"));
  first.batch = decode_batch(32'768 + 200);
  expect_same(turns[0].ttl_errors, errors_of(first, "ring_decode:cp=2,tpa=4,tpf=4,batch=1"));
  const double part = turns[0].ttft() / turns[0].answer;
  ErrorTerms whole = turns[0].ttft_errors() * part;
  whole += turns[0].ttl_errors * (1 - part);
  expect_same(turns[0].errors, whole);
  expect_same(turns[1].errors, turns[1].ttft_errors());
  EXPECT_TRUE(turns[1].ttl_errors.all().empty());
  const ErrorRange off = time_error(turns[0].errors);
  EXPECT_LT(off.low, -0.01);
  EXPECT_GT(off.high, 0.01);
}

TEST(StudyErrors, P17VariantsOfATurnAreToldApartByWhatTheyDoNotShare) {
  TurnTime t;
  t.pass_kv = Seconds(1);
  t.pass_q = Seconds(1.05);
  t.kv_errors = ErrorTerms(1, {-0.1, 0.1});
  t.q_errors = ErrorTerms(1, {-0.1, 0.1});
  EXPECT_TRUE(t.variants_told_apart());
  t.q_errors = ErrorTerms(2, {-0.1, 0.1});
  EXPECT_FALSE(t.variants_told_apart());
  t.pass_q = Seconds(1.2);
  EXPECT_TRUE(t.variants_told_apart());
}

TEST(StudyErrors, P12OfAChainAreThoseOfItsPlan) {
  const Study s = study_on("a100-sxm", PartitionGrid{});
  Case c = s.study;
  c.batch = prefill_batch({{0, 8192}});
  const ErrorTerms chain = errors_of_chain(s.study, 4, {4608, 3584});
  expect_same(chain, errors_of(c, "kv_runahead:cp=2,tpa=4,tpf=4,batch=1,partition=4608/3584"));
  EXPECT_FALSE(chain.all().empty());
  expect_same(errors_of_chain(s.study, 8, {8192}), errors_of(c, "tensor:tpa=8,tpf=8,batch=1"));
}

TEST(StudyErrors, P17CrossingsLieWhereTheTableHasThem) {
  const double least = 1.0 / 128;
  Study s = study_on("h100-hgx", ThresholdGrid{{2, 4, 8}, 8, 128, 131'072, 1'048'576, least, 1, 1, 100});
  s.study.model = decode_case("llama-3.1-405b", "h100-hgx", 0).model;
  const ThresholdStudy d = study_thresholds(s, 2, [](std::size_t, std::size_t) {});
  int found = 0;
  for (const RingThresholds& ring : d.rings) {
    if (!ring.crossing) continue;
    ++found;
    const RingCrossing& c = *ring.crossing;
    const auto ratio = [&](double miss) {
      const long long even = 2LL * ring.ranks;
      const long long fresh = std::llround(miss * static_cast<double>(c.total)) / even * even;
      return std::exp(ring.refined.table.log_ratio(fresh, (c.total - fresh) / even * even));
    };
    EXPECT_NE(ratio(c.miss / 1.02) >= 1, ratio(c.miss * 1.02) >= 1);
    for (const RingCrossing::Open* o : {&c.shared, &c.unrelated}) {
      EXPECT_LT(o->ratio.low, o->ratio.high);
      // At its ends the two are not told apart, just outside they are.
      const auto apart = [&](double miss) { return told_apart(ratio(miss), o->ratio); };
      if (o->lowest < o->most) {
        EXPECT_FALSE(apart(o->lowest));
        EXPECT_FALSE(apart(o->most));
        for (double miss = least; miss < o->lowest * 0.999; miss *= 1.01) EXPECT_TRUE(apart(miss)) << miss;
        for (double miss = o->most * 1.01; miss < 1; miss *= 1.01) EXPECT_TRUE(apart(miss)) << miss;
      }
      // Where the true ratio may be 1.
      const double middle = std::exp(-(o->ratio.low + o->ratio.high) / 2);
      const RingPoint even{ring.ranks, 1, 1, Seconds(1), Seconds(middle)};
      const RingPoint far{ring.ranks, 1, 1, Seconds(1), Seconds(9)};
      EXPECT_TRUE(o->holds(even));
      EXPECT_FALSE(o->holds(far));
    }
    EXPECT_LT(c.unrelated.lowest, c.unrelated.most);
    EXPECT_GE(c.unrelated.most, c.shared.most);
    EXPECT_LE(c.unrelated.lowest, c.shared.lowest);
  }
  EXPECT_GT(found, 0);
  Study without = s;
  without.study.system.calibration = {};
  for (const RingThresholds& ring : study_thresholds(without, 2, [](std::size_t, std::size_t) {}).rings)
    EXPECT_FALSE(ring.crossing);
}

}  // namespace
}  // namespace shardline
