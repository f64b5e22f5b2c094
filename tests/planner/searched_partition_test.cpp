// The one search of partitions: what a study, a sweep and `simulate` say of a plan is the same number.
#include "planner/studies/searched_partition.hpp"
#include "planner/strategies/strategy.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "hardware/machine/system.hpp"
#include "models/model/catalog.hpp"
#include "planner/search/search.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

Case chain_case(const char* model, const char* system, bool eager, long long tokens) {
  Case c =
      make_case(load_model(model, source_path("models/catalog")), catalog_system(system),
                {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}}, 0, 16, Routing{});
  c.batch = prefill_batch({{0, tokens}});
  c.kernels.attention = eager ? AttentionKernel::eager : AttentionKernel::flash;
  c.kernels.score_traffic = Bytes(eager ? 26.4 : 0);
  return c;
}

Plan chain(int ranks, std::vector<long long> parts = {}) {
  Plan p;
  p.strategy = strategy_id("kv_runahead");
  p.cp = ranks;
  list_parts(p, std::move(parts));
  return p;
}

// As a user who copies a plan's text.
Seconds simulated(const Case& c, const Plan& plan) {
  return Evaluator(c).simulate(parse_plan(to_string(plan)));
}

TEST(SearchedPartition, StudiesGiveTheTimesOfSimulate) {
  PartitionGrid grid;
  grid.contexts = {2048, 5000, 8192};
  for (const bool eager : {false, true}) {
    Case c = chain_case("llama-7b", eager ? "a100-hf-eager" : "a100-sxm", eager, 1);
    for (const int ranks : {2, 5}) {
      const PartitionStudy study = study_partitions(c, grid, ranks, 2, simulated_chains(c, grid.tpa));
      for (const PartitionCell& cell : study.cells) {
        SCOPED_TRACE(testing::Message() << cell.context << " on " << ranks << (eager ? " eager" : ""));
        c.batch = prefill_batch({{0, cell.context}});
        EXPECT_EQ(cell.searched.best.ttft, simulated(c, chain(ranks, cell.searched.best.tokens)));
        EXPECT_EQ(cell.interpolated_ttft, simulated(c, chain(ranks, cell.interpolated)));
        EXPECT_EQ(cell.even,
                  simulated(c, chain(ranks, even_partition({cell.context, ranks, grid.granularity}))));
        if (cell.grid) {
          EXPECT_EQ(cell.grid->ttft, simulated(c, chain(ranks, cell.grid->tokens)));
        }
        EXPECT_LE(cell.searched.bound.ttft, cell.searched.best.ttft * (1 + 1e-12));
        EXPECT_LE(cell.searched.best.ttft, cell.even);
      }
    }
  }
}

// What the closed form leaves to the events: hosts slower than their GPUs, and first ranks so long that they
// end after the last one.
TEST(SearchedPartition, TheClosedFormIsTheSimulationWithoutHosts) {
  std::mt19937_64 random(7);
  for (const char* system : {"a100-sxm", "h100-hgx"}) {
    for (const bool eager : {false, true}) {
      for (const int tpa : {1, 2}) {
        for (const double host : {0.0, 1e-3, 30e-3}) {
          Case c = chain_case("llama-3.1-8b", system, eager, 10'000);
          c.system.runtime.ring_step = Seconds(500e-6);
          c.system.runtime.host_layer = Seconds(host);
          const auto first = static_cast<long long>(2500 + random() % 1500);
          Plan p = chain(3, {first, 3000, 7000 - first});
          p.tpa = p.tpf = tpa;
          SCOPED_TRACE(to_string(p) + (eager ? ", eager" : ""));
          const double ratio = chain_time(chain_cost(c, 3, tpa), listed_parts(p)) / Evaluator(c).simulate(p);
          EXPECT_LE(ratio, 1 + 1e-12);
          EXPECT_GE(ratio, host == 0 ? 1 - 1e-12 : 0.97);
        }
      }
    }
  }
}

TEST(SearchedPartition, NeverSlowerThanEqualParts) {
  struct Given {
    const char *model, *system;
    bool eager;
    int ranks, batch;
    std::vector<Segment> requests;
  };
  for (const Given& g :
       {Given{"llama-7b", "a100-hf-eager", true, 8, 1, {{0, 1024}}},      // hosts set the pace
        Given{"llama-7b", "a100-hf-eager-1g", true, 4, 1, {{0, 8192}}},   // messages do
        Given{"deepseek-r1", "gb200-nvl72", false, 4, 1, {{0, 16'384}}},  // keys are expanded from latents
        Given{"llama-3.1-8b", "h100-hgx", false, 4, 3, {{0, 5000}, {0, 5000}}}}) {
    SCOPED_TRACE(testing::Message() << g.model << " on " << g.system);
    Case c = chain_case(g.model, g.system, g.eager, 1);
    c.batch = prefill_batch(g.requests);
    Plan p = chain(g.ranks);
    p.batch = g.batch;
    ASSERT_EQ(check_plan(c, p), std::nullopt);
    Evaluator e(c);
    const PartitionResult found = searched_partition(e, p), again = searched_partition(e, p);
    list_parts(p, found.tokens);
    EXPECT_EQ(check_plan(c, p), std::nullopt);
    EXPECT_EQ(found.ttft, simulated(c, p));
    EXPECT_EQ(found.tokens, again.tokens);
    EXPECT_EQ(found.evaluations, again.evaluations);
    set_parts(p, Parts::searched);
    set_parts(p, Parts::even);
    EXPECT_LE(found.ttft, simulated(c, p));
    EXPECT_LT(found.evaluations, 3000u);
  }
}

TEST(SearchedPartition, SweepsListSearchedAndEqualPartsAndBothCanBeRunAgain) {
  const Case c = chain_case("llama-7b", "a100-hf-eager", true, 16'384);
  SearchOptions o;
  o.strategies = {strategy_id("tsp"), strategy_id("kv_runahead")};
  o.gpus = {2, 4, 8};
  o.batches = {1, 2};
  o.space.stages = {1};
  o.x = Metric::gpus;
  o.y = Metric::time;
  o.threads = 1;
  const SearchResult one = search(c, o);
  o.threads = 3;
  const SearchResult three = search(c, o);
  o.prune = false;
  const SearchResult all = search(c, o);
  const std::vector<Point> chains = one.frontiers.at(strategy_id("kv_runahead")).points();
  const std::vector<Point> even = one.even.points();
  ASSERT_EQ(chains.size(), 3u);
  ASSERT_EQ(even.size(), 3u);
  for (std::size_t i = 0; i < chains.size(); ++i) {
    EXPECT_EQ(listed_parts(chains[i].plan).size(), static_cast<std::size_t>(chains[i].plan.cp));
    EXPECT_TRUE(to_string(even[i].plan).ends_with("partition=even"));
    EXPECT_EQ(chains[i].time, simulated(c, chains[i].plan));
    EXPECT_EQ(even[i].time, simulated(c, even[i].plan));
    EXPECT_LT(chains[i].time, even[i].time);
    EXPECT_EQ(chains[i].memory, memory_use(c, chains[i].plan).total());
    for (const SearchResult* other : {&three, &all}) {
      EXPECT_EQ(other->frontiers.at(strategy_id("kv_runahead")).points()[i].plan, chains[i].plan);
      EXPECT_EQ(other->even.points()[i].plan, even[i].plan);
    }
  }
  for (const SearchResult* r : {&one, &three, &all})
    EXPECT_EQ(r->counts.simulated + r->counts.pruned, r->counts.configurations - r->counts.infeasible);
}

TEST(SearchedPartition, OnlySequencesOfEqualLengthTakeOne) {
  Case c = chain_case("llama-7b", "a100-sxm", false, 4096);
  EXPECT_TRUE(takes_partition(c, parse_plan("kv_runahead:cp=4,batch=1")));
  for (const char* other : {"kv_runahead:cp=4,batch=1,partition=even", "tsp:cp=4,batch=1",
                            "kv_runahead:cp=2,batch=1,partition=4000/96", "tensor:batch=1"})
    EXPECT_FALSE(takes_partition(c, parse_plan(other))) << other;
  c.batch = prefill_batch({{0, 4096}, {0, 4095}});
  EXPECT_FALSE(takes_partition(c, chain(4)));
  c.batch = prefill_batch({{0, 3}});
  EXPECT_FALSE(takes_partition(c, chain(4)));
}

TEST(SearchedPartition, EqualPartsHaveAText) {
  const Plan even = parse_plan("kv_runahead:cp=4,batch=1,partition=even");
  EXPECT_EQ(to_string(even), "kv_runahead:cp=4,batch=1,partition=even");
  EXPECT_NE(even, chain(4));
  const Case c = chain_case("llama-7b", "a100-sxm", false, 4096);
  EXPECT_EQ(Evaluator(c).simulate(even), Evaluator(c).simulate(chain(4, {1024, 1024, 1024, 1024})));
  EXPECT_THROW(parse_plan("tsp:cp=4,batch=1,partition=even"), UserError);
}

TEST(SearchedPartition, GranulesAreTilesWhereRanksAreLong) {
  EXPECT_EQ(partition_granule(1 << 20, 8), 128);
  EXPECT_EQ(partition_granule(128 << 10, 8), 16);
  EXPECT_EQ(partition_granule(16 << 10, 8), 2);
  EXPECT_EQ(partition_granule(1000, 8), 1);
  EXPECT_EQ(partition_granule(8, 8), 1);
}

}  // namespace
}  // namespace shardline
