// Every strategy of the table, run on real tensors: exact (or equal to its definition), charged as executed,
// and broken schedules found.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "cuda_probe/execute/cpu/mutations.hpp"
#include "cuda_probe/execute/verify/verify_models.hpp"
#include "cuda_probe/execute/verify/verify_report.hpp"

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
  int uneven = 0, sequences = 0, cached = 0, histories = 0, mixed = 0, exact_charges = 0;
  for (const cli::VerifyCase& c : cli::verify_cases(s)) {
    uneven += c.what.find("41 tokens") != std::string::npos || c.what.find("45 tokens") != std::string::npos;
    sequences += c.kinds.front().lengths.size() > 1;
    cached += !c.study.batch.prefill.empty() && c.study.batch.prefill.front().cached > 0;
    histories += c.study.placement != nullptr;
    mixed += c.study.batch.kind() == StepKind::mixed;
    exact_charges += c.study.batch.kind() == StepKind::mixed && c.charges == Charges::every_rank;
  }
  EXPECT_EQ(mixed > 20, s.mixes);
  EXPECT_EQ(exact_charges > 5, s.mixes && !s.binds_prefill) << "mixed steps that mutations are tried on";
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

// Sums of errors, counts and faults are those of one thread to the last bit.
TEST(VerifyReport, SameForAnyNumberOfThreads) {
  std::vector<const Strategy*> chosen;
  for (const char* name : {"tensor", "star"}) chosen.push_back(&strategy(name));
  std::size_t told = 0;
  const auto watch = [&](std::size_t done, std::size_t total) {
    EXPECT_EQ(done, told++);
    EXPECT_LT(done, total);
  };
  const cli::VerifyReport one = cli::verify_strategies(chosen, watch, 1);
  EXPECT_TRUE(one.passed());
  std::size_t cases = 0;
  for (const cli::VerifiedStrategy& v : one.strategies) cases += v.cases;
  EXPECT_EQ(told, cases);
  for (const int threads : {3}) {
    told = 0;
    const cli::VerifyReport many = cli::verify_strategies(chosen, watch, threads);
    ASSERT_EQ(many.strategies.size(), one.strategies.size());
    for (std::size_t i = 0; i < one.strategies.size(); ++i) {
      const cli::VerifiedStrategy &a = one.strategies[i], &b = many.strategies[i];
      EXPECT_EQ(a.strategy, b.strategy);
      EXPECT_EQ(a.cases, b.cases);
      EXPECT_EQ(a.failed, b.failed);
      EXPECT_EQ(a.error_double, b.error_double);
      EXPECT_EQ(a.error_float, b.error_float);
      EXPECT_EQ(a.pairs, b.pairs);
      EXPECT_EQ(a.messages, b.messages);
      ASSERT_EQ(a.distance.has_value(), b.distance.has_value());
      EXPECT_EQ(a.distance.has_value(), !a.strategy->exact);
      if (!a.distance) continue;
      EXPECT_EQ(a.distance->least, b.distance->least);
      EXPECT_EQ(a.distance->most, b.distance->most);
    }
    EXPECT_EQ(one.faults, many.faults);
  }
  const auto stop = [](std::size_t done, std::size_t) {
    if (done == 3) throw UserError("interrupted");
  };
  for (const int threads : {1, 3}) EXPECT_THROW(cli::verify_strategies(chosen, stop, threads), UserError);
}

TEST(VerifyReport, MutationsAreTheSameForAnyNumberOfThreads) {
  const Strategy* chosen[] = {&strategy("tensor"), &strategy("tsp")};
  const auto watch = [](std::size_t, std::size_t) {};
  const auto one = cli::try_mutations(chosen, watch, 1), three = cli::try_mutations(chosen, watch, 3);
  ASSERT_EQ(one.size(), mutations().size());
  ASSERT_EQ(three.size(), one.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_STREQ(one[i].name, three[i].name);
    EXPECT_EQ(one[i].tried, three[i].tried);
    EXPECT_EQ(one[i].found, three[i].found);
    EXPECT_EQ(one[i].found, one[i].tried);
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
    for (Problem& p : c.kinds) {
      for (auto& length : p.lengths) length = 3;
      for (Interval& query : p.expected_queries) query = {query.request, 2, 3};
    }
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
    // A step that has no divisor in common with the number of cases: degrees and batches take turns in their
    // list, and a step of a whole turn would see one of them alone.
    std::size_t step = 1 + cases.size() / 7;
    while (std::gcd(step, cases.size()) > 1) ++step;
    std::vector<std::size_t> sampled;
    for (std::size_t n = 0; n < std::min<std::size_t>(8, cases.size()); ++n)
      sampled.push_back(n * step % cases.size());
    // Only these have what some mutations of a choice take away.
    struct Wanted {
      const char *layers, *step;
      int batch;
    };
    for (const Wanted& w :
         {Wanted{"index", "", 4}, Wanted{"chosen blocks", "", 4}, Wanted{"rows of 2", "", 4},
          Wanted{"rows of 2", "12 new", 1}, Wanted{"Mamba-2", "", 4}, Wanted{"DeltaNet", "drafts", 3}}) {
      const auto found = std::find_if(cases.begin(), cases.end(), [&](const cli::VerifyCase& c) {
        return c.what.find(w.layers) != std::string::npos && c.what.find(w.step) != std::string::npos &&
               c.plan.batch >= w.batch && c.plan.tpa == 1 && c.charges == Charges::every_rank;
      });
      if (found != cases.end()) sampled.push_back(static_cast<std::size_t>(found - cases.begin()));
    }
    for (const std::size_t i : sampled) {
      if (cases[i].charges != Charges::every_rank) continue;
      const Schedule whole = cli::verify_schedule(cases[i]);
      for (const Mutation& m : mutations()) {
        if (tried[m.name] >= 8) continue;
        Schedule broken = deep_copy(whole);
        std::mt19937_64 random(i);
        if (!m.apply(broken, random)) continue;
        ++tried[m.name];
        EXPECT_FALSE(check(broken, cases[i].kinds).passed(1e-12, 1e-5)) << m.name << ": " << cases[i].what;
      }
    }
  }
  for (const Mutation& m : mutations()) EXPECT_GT(tried[m.name], 0) << m.name << " fits no schedule";
}

// Buffers of two chunks hold the same keys first, and where they differ padding or keys that come too late
// for the queries: to read one for the other breaks nothing.
TEST(Strategies, OnlyBuffersThatDifferWhereSomebodyLooksAreTakenForOneAnother) {
  const auto all = mutations();
  const auto other = std::find_if(all.begin(), all.end(),
                                  [](const Mutation& m) { return m.name == std::string("other_buffer"); });
  ASSERT_NE(other, all.end());
  int tried = 0;
  for (const char* name : {"ring_pass_q", "ring_pass_kv"}) {
    const auto cases = cli::verify_cases(strategy(name));
    for (std::size_t i = 0; i < cases.size(); i += 10) {
      if (cases[i].plan[kPrefillChunk] == 0 || cases[i].charges != Charges::every_rank) continue;
      Schedule broken = deep_copy(cli::verify_schedule(cases[i]));
      std::mt19937_64 random(i);
      if (!other->apply(broken, random)) continue;
      ++tried;
      EXPECT_FALSE(check(broken, cases[i].kinds).passed(1e-12, 1e-5)) << cases[i].what;
    }
  }
  EXPECT_GE(tried, 10);
}

// Where every rank asks for the one request's query, the pieces that a rank sends home are equal: to exchange
// them breaks nothing. Of several requests they are not. Of three tokens on three ranks some pieces are of
// the one key that a rank has, whatever the query.
TEST(Strategies, OnlyPiecesThatDifferAreExchanged) {
  const Mutation* exchange = nullptr;
  for (const Mutation& m : mutations()) {
    if (m.name == std::string("pieces_exchanged")) exchange = &m;
  }
  ASSERT_NE(exchange, nullptr);
  int alike = 0, found = 0;
  for (const cli::VerifyCase& c : cli::verify_cases(strategy("ring_decode"))) {
    if (has_latents(c.study.model) || c.plan.cp != 3 || c.plan.tpa > 1) continue;
    SCOPED_TRACE(c.what);
    Schedule broken = deep_copy(cli::verify_schedule(c));
    std::mt19937_64 random(1);
    const bool applied = exchange->apply(broken, random);
    EXPECT_EQ(applied, c.plan.batch > 1);
    alike += !applied;
    if (!applied) continue;
    ++found;
    EXPECT_FALSE(check(broken, c.kinds).passed(1e-12, 1e-5));
  }
  EXPECT_GT(alike, 0);
  EXPECT_GT(found, 0);
  int one_key = 0;
  for (const cli::VerifyCase& c : cli::verify_cases(strategy("ring_pass_q"))) {
    if (c.what.find(", 3 tokens") == std::string::npos || c.plan.cp != 3) continue;
    for (const std::uint64_t seed : {0, 1, 2}) {
      Schedule broken = deep_copy(cli::verify_schedule(c));
      std::mt19937_64 random(seed);
      if (!exchange->apply(broken, random)) continue;
      ++one_key;
      EXPECT_FALSE(check(broken, c.kinds).passed(1e-12, 1e-5)) << c.what << ", seed " << seed;
    }
  }
  EXPECT_GT(one_key, 10);
}

// Of layers of two kinds each reads the cached tokens of its own kind, and an approximate strategy is
// compared with its definition in both.
TEST(Strategies, KindsOfLayersHaveCachesOfTheirOwn) {
  const cli::Layers both{"latent and full attention", [](const cli::CaseSizes& z) {
                           std::vector<Attention> out;
                           for (const AttentionKind kind : {AttentionKind::mla, AttentionKind::gqa}) {
                             for (const cli::Layers& layers : cli::verify_layers()) {
                               const Attention a = layers.attentions(z).front();
                               if (a.kind != kind || a.index || a.reach.local() || a.sinks) continue;
                               out.push_back(a);
                               break;
                             }
                           }
                           return out;
                         }};
  int prefills = 0, ulysses = 0, blocks = 0;
  for (const Strategy* const of : strategies()) {
    const Strategy& s = *of;
    if (!s.prefills || (!s.exact && s.blocks == nullptr)) continue;
    for (const int cp : {1, 2, 4}) {
      Plan p;
      p.strategy = id_of(s);
      p.cp = cp;
      Case c = cli::small_case(both, {});
      ASSERT_EQ(c.model.attentions.size(), 2u);
      c.batch = s.exact ? prefill_batch({{29, 7}, {4, 10}}) : prefill_batch({{0, 31}, {0, 10}});
      p.tpf = s.weights == WeightSharing::attention_tp ? p.tpa : p.ranks_per_stage();
      if (check_plan(c, p)) continue;
      SCOPED_TRACE(to_string(p));
      const Check result = cli::run_case(cli::verify_case_of(c, p));
      EXPECT_TRUE(result.passed(1e-12, 1e-5)) << result.max_error_double << " " << result.worst;
      ++prefills;
      ulysses += s.name == std::string_view("ulysses") && cp > 1 ? 1 : 0;
      blocks += s.exact ? 0 : 1;
    }
  }
  EXPECT_GT(prefills, 5);
  EXPECT_EQ(ulysses, 2);
  EXPECT_GE(blocks, 2);
}

}  // namespace
}  // namespace shardline
