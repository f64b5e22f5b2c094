// Every strategy of the table, run on real tensors: exact (or equal to its definition), charged as executed,
// and broken schedules found.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "cuda_probe/execute/cpu/mutations.hpp"
#include "cuda_probe/execute/verify/verify_cases.hpp"

namespace shardline {
namespace {

// By name: test names and reports do not show addresses.
class EveryStrategy : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryStrategy, EqualsItsDefinitionAndChargesWhatItDoes) {
  const auto cases = cli::verify_cases(strategy(GetParam()));
  EXPECT_GE(cases.size(), 40u);
  for (const cli::VerifyCase& c : cases) {
    SCOPED_TRACE(c.what);
    const Check result = cli::run_case(c);
    EXPECT_TRUE(result.passed(1e-12, 1e-5)) << result.max_error_double << " " << result.max_error_float << " "
                                            << (result.faults.empty() ? "" : result.faults.front());
    EXPECT_GT(result.counts.pairs, 0u);
  }
}

// The grid of a strategy that shards must hold what the claim of exactness is about.
TEST_P(EveryStrategy, GridHasUnevenLengthsSeveralSequencesAndHistories) {
  const Strategy& s = strategy(GetParam());
  int uneven = 0, sequences = 0, cached = 0, histories = 0;
  for (const cli::VerifyCase& c : cli::verify_cases(s)) {
    uneven += c.what.find("41 tokens") != std::string::npos || c.what.find("45 tokens") != std::string::npos;
    sequences += c.problem.lengths.size() > 1;
    cached += !c.study.batch.prefill.empty() && c.study.batch.prefill.front().cached > 0;
    histories += c.study.placement != nullptr;
  }
  EXPECT_GT(uneven, 0);
  EXPECT_GT(sequences, 0);
  cli::VerifyCase first = cli::verify_cases(s).front();
  first.study.batch = prefill_batch({{1, 47}});
  const bool may_be_cached = s.prefills && !check_plan(first.study, first.plan);
  EXPECT_EQ(may_be_cached, s.prefills && s.exact && id_of(s) != strategy_id("kv_runahead"));
  if (may_be_cached) {
    EXPECT_GT(cached, 0);
    EXPECT_GT(histories, 0);
  }
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const Strategy* s : strategies()) {
    if (id_of(*s) != strategy_id("sparse")) out.emplace_back(s->name);  // timed only
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Strategies, EveryStrategy, ::testing::ValuesIn(names()),
                         [](const auto& param) { return param.param; });

// Three tokens on two or four ranks of one cache, also all of them on one: who has none weighs nothing.
TEST(Strategies, RanksOfACacheWithoutATokenCountNothing) {
  int empty = 0;
  for (cli::VerifyCase c : cli::verify_cases(strategy("dcp"))) {
    if (c.plan.batch != 4) continue;
    SCOPED_TRACE(c.what);
    c.study.batch = decode_batch(3);
    for (auto& length : c.problem.lengths) length = 3;
    for (Interval& query : c.problem.expected_queries) query = {query.request, 2, 3};
    c.charges = Charges::fullest_rank;
    const Check result = cli::run_case(c);
    EXPECT_TRUE(result.passed(1e-12, 1e-5)) << (result.faults.empty() ? "" : result.faults.front());
    for (const Extent& e : cli::verify_schedule(c).flow->extents) empty += e.rows == 0;
  }
  EXPECT_GT(empty, 0);
}

TEST(Strategies, EveryMutationOfTheirSchedulesIsFound) {
  ASSERT_GE(mutations().size(), 20u);
  std::map<std::string, int> tried;
  for (const Strategy* s : strategies()) {
    const auto cases = cli::verify_cases(*s);
    for (std::size_t i = 0; i < cases.size(); i += 1 + cases.size() / 7) {
      if (cases[i].charges != Charges::every_rank) continue;
      const Schedule whole = cli::verify_schedule(cases[i]);
      for (const Mutation& m : mutations()) {
        if (tried[m.name] >= 8) continue;
        Schedule broken = deep_copy(whole);
        std::mt19937_64 random(i);
        if (!m.apply(broken, random)) continue;
        ++tried[m.name];
        EXPECT_FALSE(check(broken, cases[i].problem).passed(1e-12, 1e-5)) << m.name << ": " << cases[i].what;
      }
    }
  }
  for (const Mutation& m : mutations()) EXPECT_GT(tried[m.name], 0) << m.name << " fits no schedule";
}

}  // namespace
}  // namespace shardline
