// Plans priced by fitted forms: bounds of every strategy, pruning, and the way back to parameters.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "models/model/catalog.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/search/search.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

const char* const kCalibrated[] = {"a100-sxm",    "b200-hgx", "gb200-nvl72",
                                   "gb300-nvl72", "h100-hgx", "h200-hgx"};

Precision supported(const System& s) {
  Precision p;
  for (const Dtype t : {Dtype::fp4, Dtype::fp8, Dtype::bf16}) {
    if (s.device.peak[static_cast<std::size_t>(t)].value == 0) continue;
    p.weights = p.math = t;
    p.kv = t == Dtype::bf16 ? Dtype::bf16 : Dtype::fp8;
    break;
  }
  return p;
}

Case small_case(const std::string& model, const std::string& system, long long context) {
  const System s = catalog_system(system);
  Case c =
      make_case(load_model(model, source_path("models/catalog")), s, supported(s), context, 16, Routing{});
  cut_layers(c, 5, has_dense(c.model) ? 2 : 0);
  return c;
}

SearchSpace wide_space() {
  SearchSpace s;
  with_hopb_chunks(s, {1, 3});
  s.duplicate_kv = true;
  return s;
}

/// Bounds below simulations, and above half of them, on some of the plans of every strategy.
void expect_bounds(const Case& c, const std::vector<int>& gpus, int most, unsigned seed) {
  const std::size_t plans_each =
      c.batch.kind() == StepKind::prefill ? 3 : 12;  // per strategy and number of GPUs
  Evaluator e(c);
  for (const Strategy* s : strategies()) {
    std::mt19937 random(seed);  // of each by itself: a further row leaves the plans of others
    for (const int n : gpus) {
      std::vector<Plan> plans;
      s->enumerate(c, n, wide_space(), plans);
      std::shuffle(plans.begin(), plans.end(), random);
      plans.resize(std::min(plans.size(), plans_each));
      for (Plan p : plans) {
        std::vector<int> batches{least_batch(c, p)};
        while (batches.back() < most)
          batches.push_back(batches.back() + 1 + static_cast<int>(random() % 2) * batches.back());
        for (const int batch : batches) {
          p.batch = batch;
          if (check_plan(c, p)) continue;
          SCOPED_TRACE(to_string(p));
          const Seconds bound = e.bound(p), simulated = e.simulate(p);
          ASSERT_LE(bound, simulated * (1 + 1e-12));
          EXPECT_GT(bound, simulated * 0.5);
        }
      }
    }
  }
}

TEST(CalibratedPlans, BoundsAreBelowSimulations) {
  unsigned seed = 1;
  for (const char* system : kCalibrated) {
    for (const char* model : {"deepseek-r1", "qwen3-235b-a22b", "llama-3.1-405b", "falcon-7b"}) {
      SCOPED_TRACE(std::string(model) + " on " + system);
      expect_bounds(small_case(model, system, 100'000), {1, 8, 16}, 200, ++seed);
    }
  }
}

TEST(CalibratedPlans, BoundsOfPrefillsAreBelowSimulations) {
  unsigned seed = 100;
  for (const char* system : {"gb200-nvl72", "h100-hgx", "a100-sxm"}) {
    for (const char* model : {"deepseek-r1", "qwen3-235b-a22b", "llama-3.1-405b"}) {
      for (const std::vector<Segment>& requests :
           {std::vector<Segment>{{0, 6000}}, {{0, 1000}, {30'000, 700}}, {{100'000, 64}}}) {
        SCOPED_TRACE(std::string(model) + " on " + system);
        Case c = small_case(model, system, 0);
        c.batch = prefill_batch(requests);
        expect_bounds(c, {1, 8}, 6, ++seed);
      }
    }
  }
}

// One kernel in chunks: chunks that a batch does not divide evenly are of unequal length.
TEST(CalibratedPlans, BoundsOfChunkedHelixAreBelowSimulations) {
  std::mt19937 random(57);
  for (const auto& [model, system] :
       {std::pair("deepseek-r1", "gb200-nvl72"), std::pair("llama-3.1-405b", "gb200-nvl72"),
        std::pair("llama-3.1-405b", "h200-hgx")}) {
    SCOPED_TRACE(std::string(model) + " on " + system);
    const Case c = small_case(model, system, 1'000'000);
    Evaluator e(c);
    SearchSpace space;
    with_hopb_chunks(space, {2, 4, 8, 16, 32});
    std::vector<Plan> plans;
    for (const int gpus : {8, 12, 44, 64}) {
      if (gpus <= c.system.gpus()) strategy("helix").enumerate(c, gpus, space, plans);
    }
    std::shuffle(plans.begin(), plans.end(), random);
    plans.resize(std::min<std::size_t>(plans.size(), 40));
    ASSERT_FALSE(plans.empty());
    for (Plan p : plans) {
      SCOPED_TRACE(to_string(p));
      const int first = least_batch(c, p);
      for (int batch = first; batch <= first + 80; ++batch) {
        p.batch = batch;
        const Seconds bound = e.bound(p), simulated = e.simulate(p);
        ASSERT_LE(bound, simulated * (1 + 1e-12)) << batch;
        EXPECT_GT(bound, simulated * 0.6) << batch;
      }
    }
  }
}

TEST(CalibratedPlans, BlocksOfARingAreNoWholeSequences) {
  Case c = small_case("llama-3.1-405b", "h100-hgx", 0);
  c.batch = prefill_batch({{0, 16'384}});
  CostModel cost(c.system);
  Schedule s;
  for (const StrategyId id :
       {strategy_id("ring_pass_kv"), strategy_id("ring_pass_q"), strategy_id("ulysses")}) {
    Plan p;
    p.strategy = id;
    p.cp = 4;
    p.tpa = p.tpf = 2;
    lower(s, c, p);
    std::vector<Basis> bases;
    for (const Op& op : s.ops) {
      if (is_attention(op.kind)) bases.push_back(cost.price(op).basis);
    }
    // A rank's own block costs as a whole sequence of its rows, and Ulysses attends to whole ones.
    ASSERT_EQ(bases.size(), id == strategy_id("ulysses") ? 1u : 4u);
    for (std::size_t j = 0; j < bases.size(); ++j)
      EXPECT_EQ(bases[j], j == 0 ? Basis::measured : Basis::fitted) << to_string(id) << " " << j;
  }
}

SearchOptions options(std::vector<int> gpus, int batches) {
  SearchOptions o;
  for (const Strategy* s : strategies()) o.strategies.push_back(id_of(*s));
  o.gpus = std::move(gpus);
  o.batches.resize(static_cast<std::size_t>(batches));
  std::iota(o.batches.begin(), o.batches.end(), 1);
  with_hopb_chunks(o.space, {1, 4});
  return o;
}

void expect_same(const SearchResult& a, const SearchResult& b) {
  ASSERT_EQ(a.frontiers.size(), b.frontiers.size());
  for (const auto& [id, frontier] : a.frontiers) {
    SCOPED_TRACE(to_string(id));
    const auto one = frontier.points(), two = b.frontiers.at(id).points();
    ASSERT_EQ(one.size(), two.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(to_string(one[i].plan), to_string(two[i].plan));
      EXPECT_EQ(one[i].time, two[i].time);  // same bits
      EXPECT_EQ(one[i].memory, two[i].memory);
    }
  }
}

TEST(CalibratedPlans, PrunedEqualsExhaustiveOnEveryPairOfMetrics) {
  for (const auto& [model, system] :
       {std::pair("deepseek-r1", "gb200-nvl72"), std::pair("llama-3.1-405b", "h200-hgx"),
        std::pair("qwen3-235b-a22b", "gb300-nvl72")}) {
    SCOPED_TRACE(system);
    const Case c = small_case(model, system, 500'000);
    ASSERT_FALSE(c.system.calibration.empty());
    for (const auto& [x, y] :
         {std::pair{Metric::speed, Metric::throughput}, std::pair{Metric::time, Metric::entries},
          std::pair{Metric::gpus, Metric::speed}, std::pair{Metric::memory, Metric::throughput}}) {
      SearchOptions o = options({1, 6, 8, 16, 32}, 48);
      o.x = x;
      o.y = y;
      const SearchResult pruned = search(c, o);
      o.prune = false;
      const SearchResult exhaustive = search(c, o);
      expect_same(pruned, exhaustive);
      EXPECT_LT(pruned.counts.simulated, exhaustive.counts.simulated);
      EXPECT_EQ(pruned.counts.simulated + pruned.counts.pruned, exhaustive.counts.simulated);
    }
  }
}

TEST(CalibratedPlans, SameBitsForAnyNumberOfThreads) {
  const Case c = small_case("deepseek-r1", "gb200-nvl72", 500'000);
  SearchOptions o = options({8, 16, 32}, 48);
  o.threads = 1;
  const SearchResult one = search(c, o);
  for (const int threads : {2, 5}) {
    o.threads = threads;
    const SearchResult many = search(c, o);
    expect_same(one, many);
    EXPECT_EQ(one.counts.simulated, many.counts.simulated);
    EXPECT_EQ(one.counts.bounds, many.counts.bounds);
  }
}

TEST(CalibratedPlans, CostsByParametersAreThoseOfTheSystemWithoutItsCalibration) {
  const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                          source_path("scenarios")};
  const std::string head = "name: t\nsystem: gb200-nvl72\n", rest = R"(models: [deepseek-r1]
context: 131072 tokens
precision: {weights: fp4, kv: fp8, math: fp4, activations: bf16, dispatch: fp8}
strategies: [helix, dp_ep, kv_shard]
gpus: [8]
batch: {from: 1, to: 24}
)";
  const Study by_parameters =
                  parse_scenario("t.yaml", head + "costs: parameters\n" + rest, catalogs).studies[0],
              calibrated = parse_scenario("t.yaml", head + "costs: calibrated\n" + rest, catalogs).studies[0],
              by_default = parse_scenario("t.yaml", head + rest, catalogs).studies[0];
  Study emptied = calibrated;
  emptied.study.system.calibration = {};
  expect_same(search(by_parameters.study, by_parameters.sweep().search),
              search(emptied.study, emptied.sweep().search));
  expect_same(search(by_default.study, by_default.sweep().search),
              search(calibrated.study, calibrated.sweep().search));
  const auto fitted = search(calibrated.study, calibrated.sweep().search).overall().points(),
             assumed = search(emptied.study, emptied.sweep().search).overall().points();
  ASSERT_FALSE(fitted.empty());
  EXPECT_NE(fitted.front().time, assumed.front().time);
}

}  // namespace
}  // namespace shardline
