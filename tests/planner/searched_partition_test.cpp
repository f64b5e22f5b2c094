// The one search of partitions: what a study, a sweep and `simulate` say of a plan is the same number.
#include "planner/studies/searched_partition.hpp"
#include "planner/strategies/strategy.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

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

// Positive parts that sum to `tokens`, most of them far from equal.
std::vector<long long> random_parts(std::mt19937_64& random, long long tokens, int ranks) {
  std::vector<long long> ends{0, tokens};
  while (static_cast<int>(ends.size()) <= ranks) {
    const auto end = 1 + static_cast<long long>(random() % static_cast<std::uint64_t>(tokens - 1));
    if (std::find(ends.begin(), ends.end(), end) == ends.end()) ends.push_back(end);
  }
  std::sort(ends.begin(), ends.end());
  std::vector<long long> parts;
  for (std::size_t i = 1; i < ends.size(); ++i) parts.push_back(ends[i] - ends[i - 1]);
  return parts;
}

// [P7] What a sweep prunes by: below the time of every partition, of every plan of a chain.
TEST(SearchedPartition, BoundsAreBelowEveryPartition) {
  struct Given {
    const char *model, *system;
    bool eager;
    double host;
    std::vector<Segment> requests;
  };
  std::mt19937_64 random(11);
  int plans_seen = 0;
  for (const Given& g : {Given{"llama-3.1-8b", "h100-hgx", false, 0, {{0, 40'000}}},
                         Given{"llama-3.1-8b", "h100-hgx", false, 0, {{0, 3000}, {0, 3000}}},
                         Given{"llama-3.1-70b", "h100-gtt", false, 2e-3, {{0, 9000}}},
                         Given{"llama-7b", "a100-hf-eager", true, 1e-3, {{0, 4096}}},
                         Given{"qwen3-235b-a22b", "h200-hgx", false, 0, {{0, 5000}}},
                         Given{"deepseek-r1", "gb200-nvl72", false, 0, {{0, 17'000}}}}) {
    Case c = chain_case(g.model, g.system, g.eager, 1);
    c.batch = prefill_batch(g.requests);
    if (g.host > 0) c.system.runtime.host_layer = Seconds(g.host);
    Evaluator e(c);
    std::vector<Plan> plans;
    for (const int gpus : {4, 8}) {
      std::vector<Plan> all;
      strategy("kv_runahead").enumerate(c, gpus, {}, all);
      for (std::size_t i = 0; i < all.size(); i += 1 + all.size() / 8) plans.push_back(all[i]);
    }
    for (Plan p : plans) {
      for (const int batch : {1, 3}) {
        set_parts(p, Parts::searched);
        p.batch = batch;
        if (check_plan(c, p) || !takes_partition(c, p)) continue;
        ++plans_seen;
        SCOPED_TRACE(std::string(g.model) + " " + to_string(p));
        const Seconds least = least_time_of_partitions(e, p);
        const ChainCost cost = least_chain_cost(c, p, e.cost(), Pricing::exact);
        EXPECT_GT(least, Seconds(0));
        std::vector<std::vector<long long>> tried{searched_partition(e, p).tokens};
        for (int i = 0; i < 4; ++i) tried.push_back(random_parts(random, c.batch.prefill[0].fresh, p.cp));
        for (const std::vector<long long>& parts : tried) {
          list_parts(p, parts);
          const Seconds time = e.simulate(p);
          EXPECT_LE(least, time);
          EXPECT_LE(chain_time(cost, parts), time * (1 + 1e-9));
        }
      }
    }
  }
  EXPECT_GT(plans_seen, 80);
}

// What partition_bound() rests on: a part that ends later or has more before it takes no less, one that
// begins earlier hardly. (The mean query then sees fewer keys, and corrections are by keys.)
TEST(SearchedPartition, FloorsOfAChainHardlyFall) {
  std::mt19937_64 random(12);
  const auto draw = [&](long long most) {
    return 1 + static_cast<long long>(random() % static_cast<std::uint64_t>(most));
  };
  for (const auto& [model, system] :
       {std::pair{"llama-3.1-8b", "h100-hgx"}, std::pair{"llama-7b", "a100-sxm"},
        std::pair{"qwen3-235b-a22b", "h200-hgx"}, std::pair{"deepseek-r1", "gb200-nvl72"},
        std::pair{"llama-3.1-405b", "h100-gtt"}}) {
    const Case c = chain_case(model, system, false, 1 << 17);
    Evaluator e(c);
    for (const int tpa : {1, 4}) {
      Plan p = chain(4);
      p.tpa = p.tpf = tpa;
      const ChainCost cost = least_chain_cost(c, p, e.cost(), Pricing::floor);
      const double dip = c.system.calibration.empty() ? 1e-12 : kLargestDip;
      for (int i = 0; i < 4000; ++i) {
        const long long tokens = draw(40'000), before = draw(60'000), more = draw(i % 2 == 0 ? 64 : 5000);
        const long long end = before + tokens;
        const ChainStep s = cost.step(tokens, end), longer = cost.step(tokens + more, end + more),
                        later = cost.step(tokens, end + more);
        SCOPED_TRACE(fmt::format("{}: {} after {}, {} more", model, tokens, before, more));
        ASSERT_LE(s.loop(), longer.loop());
        ASSERT_LE(s.loop(), later.loop());
        ASSERT_LE(s.send, later.send);
        ASSERT_LE(s.project, longer.project);
        if (more > before) continue;
        ASSERT_LE(s.loop() * (1 - dip), cost.step(tokens + more, end).loop());
      }
    }
  }
}

// Trials that a bound rules out are not played, and count all the same.
TEST(SearchedPartition, BoundsChangeNoPartition) {
  for (const int tpa : {1, 2}) {
    const Case c = chain_case("llama-3.1-8b", "h100-hgx", false, 20'000);
    Plan p = chain(4);
    p.tpa = p.tpf = tpa;
    Evaluator e(c);
    const PartitionProblem problem{20'000, 4, partition_granule(20'000, 4)};
    PartitionSearch all{simulated_chain(e, p), 0};
    int played = 0;
    const ChainEvaluator counted = [&, exact = all.exact](std::span<const long long> parts) {
      ++played;
      return exact(parts);
    };
    all.exact = counted;
    const SearchedPartition whole = best_partition(chain_cost(c, 4, tpa), problem, all);
    const int of_all = std::exchange(played, 0);
    const ChainCost least = least_chain_cost(c, p, e.cost(), Pricing::exact);
    PartitionSearch bounded = all;
    bounded.least = &least;
    const SearchedPartition some = best_partition(chain_cost(c, 4, tpa), problem, bounded);
    EXPECT_LT(played, of_all / 4);
    EXPECT_EQ(some.best.tokens, whole.best.tokens);
    EXPECT_EQ(some.best.ttft, whole.best.ttft);
    EXPECT_EQ(some.best.evaluations, whole.best.evaluations);
    EXPECT_EQ(searched_partition(e, p).tokens, whole.best.tokens);
    EXPECT_EQ(searched_partition(e, p).evaluations, whole.best.evaluations);
  }
}

// Layers that chains of other plans have priced already are the same ones.
TEST(SearchedPartition, KnownLayersChangeNothing) {
  for (const auto& [model, system] :
       {std::pair{"llama-3.1-8b", "h100-hgx"}, std::pair{"deepseek-r1", "gb200-nvl72"}}) {
    const Case c = chain_case(model, system, false, 20'000);
    Evaluator e(c);
    const auto known = known_layers();
    for (const char* text :
         {"kv_runahead:cp=4,batch=1", "kv_runahead:cp=3,tpa=2,tpf=2,batch=1", "kv_runahead:cp=8,ep=8,batch=1",
          "kv_runahead:cp=4,ep=4,batch=2", "kv_runahead:cp=5,batch=1", "kv_runahead:pp=2,cp=4,batch=1"}) {
      const Plan p = parse_plan(text);
      if (check_plan(c, p)) continue;
      SCOPED_TRACE(std::string(model) + " " + text);
      EXPECT_EQ(least_time_of_partitions(e, p, known), least_time_of_partitions(e, p));
      const PartitionResult shared = searched_partition(e, p, nullptr, known), own = searched_partition(e, p);
      EXPECT_EQ(shared.tokens, own.tokens);
      EXPECT_EQ(shared.ttft, own.ttft);
      EXPECT_EQ(shared.evaluations, own.evaluations);
      EXPECT_EQ(shared.ttft, simulated(c, [&] {
                  Plan found = p;
                  list_parts(found, shared.tokens);
                  return found;
                }()));
    }
  }
}

TEST(SearchedPartition, PrunedChainsLeaveTheFrontierAsItIs) {
  struct Given {
    const char *model, *system;
    bool eager;
    std::vector<int> gpus;
  };
  for (const Given& g : {Given{"llama-3.1-8b", "h100-hgx", false, {2, 3, 4, 8}},
                         Given{"llama-7b", "a100-hf-eager", true, {1, 2, 3, 4, 8}},
                         Given{"qwen3-235b-a22b", "h200-hgx", false, {4}}}) {
    const Case c = chain_case(g.model, g.system, g.eager, 12'000);
    std::uint64_t ruled_out = 0;
    for (const auto& [x, y] :
         {std::pair{Metric::gpus, Metric::time}, std::pair{Metric::gpu_seconds, Metric::time},
          std::pair{Metric::memory, Metric::throughput}}) {
      SearchOptions o;
      o.strategies = {strategy_id("kv_runahead")};
      o.gpus = g.gpus;
      o.batches = {1, 2};
      o.x = x;
      o.y = y;
      const SearchResult pruned = search(c, o);
      o.prune = false;
      const SearchResult exhaustive = search(c, o);
      const std::vector<Point> a = pruned.overall().points(), b = exhaustive.overall().points();
      SCOPED_TRACE(g.model);
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].plan, b[i].plan);
        EXPECT_EQ(a[i].time, b[i].time);
        EXPECT_EQ(a[i].memory, b[i].memory);
      }
      ruled_out += pruned.counts.pruned;
      EXPECT_LE(pruned.counts.partitions, exhaustive.counts.partitions);
      EXPECT_EQ(pruned.counts.simulated + pruned.counts.pruned,
                pruned.counts.configurations - pruned.counts.infeasible);
    }
    EXPECT_GT(ruled_out, 0u) << g.model;
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
