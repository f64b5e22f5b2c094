#include <gtest/gtest.h>

#include <numeric>

#include "planner/search/compare.hpp"
#include "planner/search/search.hpp"
#include "tests/planner/support.hpp"
#include "tests/support/loads.hpp"

namespace shardline {
namespace {

SearchOptions options(std::vector<int> gpus, int batches) {
  SearchOptions o;
  for (const Strategy* s : strategies()) o.strategies.push_back(id_of(*s));
  o.gpus = std::move(gpus);
  o.batches.resize(static_cast<std::size_t>(batches));
  std::iota(o.batches.begin(), o.batches.end(), 1);
  with_hopb_chunks(o.space, {1, 4});
  return o;
}

void expect_same(const std::vector<Point>& a, const std::vector<Point>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(to_string(a[i].plan), to_string(b[i].plan));
    EXPECT_EQ(a[i].time, b[i].time);  // same bits
    EXPECT_EQ(a[i].memory, b[i].memory);
  }
}

void expect_same(const SearchResult& a, const SearchResult& b) {
  for (const auto& [id, frontier] : a.frontiers) {
    SCOPED_TRACE(to_string(id));
    expect_same(frontier.points(), b.frontiers.at(id).points());
  }
  expect_same(a.overall().points(), b.overall().points());
}

// "No plan fits" would not say that none was possible.
TEST(Search, AStrategyWithoutPlansSaysWhy) {
  const Case c = decode_case("llama-3.1-70b", "gb200-nvl72", 100'000);
  SearchOptions o = options({1, 8}, 4);
  o.space.degrees = {{&Plan::pp, {1}}};
  std::map<std::string, std::string> reasons;
  const SearchResult r = search(c, o);
  for (const auto& [id, reason] : r.without_plans) {
    reasons[std::string(to_string(id))] = reason;
    EXPECT_TRUE(r.frontiers.at(id).points().empty());
  }
  EXPECT_EQ(reasons["dcp"], "of 8 GPUs: dcp needs tpa above the 8 KV heads: it shares what would be copies");
  EXPECT_EQ(reasons["dp_ep"], "of 8 GPUs: ep needs a model with experts");
  EXPECT_EQ(reasons["pipeline"], "within the degrees and options asked for");
  EXPECT_EQ(reasons["ulysses"], "of 8 GPUs: ulysses is a strategy for prefill");
  for (const Strategy* s : strategies())
    EXPECT_EQ(reasons.contains(s->name), r.frontiers.at(id_of(*s)).points().empty()) << s->name;
  o.gpus = {1};
  for (const auto& [id, reason] : search(c, o).without_plans) EXPECT_NE(id, strategy_id("tensor")) << reason;
}

TEST(Search, ValuesThatNoPlanHasAreNamed) {
  const Case c = decode_case("llama-3.1-70b", "gb200-nvl72", 100'000);
  SearchOptions o = options({16}, 4);
  const auto asked = [](const char* text, const char* key, std::vector<int> values) {
    return OptionRange{&option_of(parse_plan(text), key), std::move(values)};
  };
  o.space.options = {asked("helix", "chunks", {2, 8}), asked("helix", "value_up", {1}),
                     asked("dcp", "interleave", {1, 3})};
  const SearchResult r = search(c, o);
  EXPECT_EQ(r.unused_values, (std::vector<std::string>{"chunks 8", "value_up after", "interleave 3"}));
  o.space.options = {asked("helix", "chunks", {8}), asked("dcp", "interleave", {3})};
  std::map<std::string, std::string> reasons;
  for (const auto& [id, reason] : search(c, o).without_plans) reasons[std::string(to_string(id))] = reason;
  EXPECT_EQ(reasons["helix"], "of a batch below 8");
  EXPECT_EQ(reasons["dcp"], "of 16 GPUs: interleave 3 does not divide the kv_block of 16");
}

// A prefill runs all requests of the case per entry of its batch; its axes say requests.
TEST(Metrics, OfAPrefillCountRequests) {
  Case c;
  c.batch = prefill_batch({{0, 100}, {50, 20}, {0, 60}});
  Plan plan;
  plan.tpa = plan.tpf = 4;
  plan.batch = 2;
  const Point p{plan, Seconds(0.5), Bytes(1e9)};
  const PrefillMetrics m = prefill_metrics(c, p.time, plan);
  EXPECT_DOUBLE_EQ(m.requests, 6);
  EXPECT_DOUBLE_EQ(m.new_tokens, 360);
  EXPECT_DOUBLE_EQ(value_of(c, Metric::entries, p), m.requests);
  EXPECT_DOUBLE_EQ(value_of(c, Metric::gpu_seconds, p), m.gpu_seconds_per_request);
  EXPECT_DOUBLE_EQ(value_of(c, Metric::throughput, p), m.requests / (0.5 * 4));
  EXPECT_DOUBLE_EQ(value_of(c, Metric::time, p), 0.5);
  c.batch = decode_batch(100);
  EXPECT_DOUBLE_EQ(value_of(c, Metric::throughput, p), decode_metrics(c, p.time, plan).tokens_per_s_gpu);
}

TEST(Search, PrunedEqualsExhaustiveOnEveryPairOfMetrics) {
  const Case c = decode_case("deepseek-r1", "gb200-nvl72", 1'000'000);
  for (const auto& [x, y] :
       {std::pair{Metric::speed, Metric::throughput}, std::pair{Metric::time, Metric::entries},
        std::pair{Metric::gpus, Metric::speed}, std::pair{Metric::memory, Metric::throughput}}) {
    SearchOptions o = options({1, 6, 8, 16, 32, 48, 64}, testing::part_of(64));
    o.x = x;
    o.y = y;
    const SearchResult pruned = search(c, o);
    o.prune = false;
    const SearchResult exhaustive = search(c, o);
    expect_same(pruned, exhaustive);
    EXPECT_LT(pruned.counts.simulated, exhaustive.counts.simulated);
    EXPECT_EQ(exhaustive.counts.simulated, exhaustive.counts.configurations - exhaustive.counts.infeasible);
    EXPECT_EQ(pruned.counts.simulated + pruned.counts.pruned, exhaustive.counts.simulated);
  }
}

TEST(Search, SameBitsForAnyNumberOfThreads) {
  const Case c = decode_case("llama-3.1-405b", "gb200-nvl72", 1'000'000);
  SearchOptions o = options({8, 16, 24, 32, 64}, 64);
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

TEST(Search, FrontierIsThatOfPlainDominance) {
  const Case c = decode_case("deepseek-r1", "gb200-nvl72", 1'000'000);
  SearchOptions o = options({8, 16}, 24);
  o.keep_all = true;
  const SearchResult r = search(c, o);
  ASSERT_GT(r.all.size(), 500u);
  const auto overall = r.overall();
  std::size_t on_frontier = 0;
  for (const Point& p : r.all) {
    bool beaten = false;
    for (const Point& q : r.all) {
      const double dx = score(o.x, q) - score(o.x, p), dy = score(o.y, q) - score(o.y, p);
      beaten = beaten || (dx >= 0 && dy >= 0 && (dx > 0 || dy > 0));
    }
    EXPECT_EQ(overall.dominates(score(o.x, p), score(o.y, p)), beaten);
    on_frontier += beaten ? 0 : 1;
  }
  // Equal points appear once.
  EXPECT_LE(overall.size(), on_frontier);
  EXPECT_GT(overall.size(), 5u);
}

TEST(Search, CountsAddUp) {
  const Case c = decode_case("llama-3.1-405b", "gb200-nvl72", 1'000'000);
  const SearchResult r = search(c, options({1, 2, 4, 8}, 16));
  std::uint64_t rejected = 0;
  for (const auto& [reason, n] : r.rejected) rejected += n;
  EXPECT_EQ(rejected, r.counts.infeasible);
  EXPECT_GT(r.rejected.at("weights alone exceed memory"), 0u);  // 203 GB on one GPU
  EXPECT_EQ(r.counts.simulated + r.counts.pruned + r.counts.infeasible, r.counts.configurations);
}

TEST(Search, TtlBudgetKeepsOnlyPlansWithin) {
  const Case c = decode_case("deepseek-r1", "gb200-nvl72", 1'000'000);
  SearchOptions o = options({16, 64}, 64);
  const auto free = search(c, o).overall().points();
  o.most_time = free[free.size() / 2].time;
  const auto bound = search(c, o).overall().points();
  std::vector<Point> expected;
  for (const Point& p : free) {
    if (p.time <= o.most_time) expected.push_back(p);
  }
  expect_same(bound, expected);
}

TEST(Search, LeastUsersFindsPlansOffTheFreeFrontier) {
  const Case c = decode_case("deepseek-r1", "gb200-nvl72", 1'000'000);
  SearchOptions o = options({64}, 1024);
  o.least_users = 530;  // DP + EP holds 512
  const SearchResult r = search(c, o);
  const auto points = r.overall().points();
  ASSERT_FALSE(points.empty());
  for (const Point& p : points) EXPECT_GE(p.plan.users(), 530);
  EXPECT_GT(r.rejected.at("fewer users than asked"), 0u);
  std::uint64_t rejected = 0;
  for (const auto& [reason, n] : r.rejected) rejected += n;
  EXPECT_EQ(rejected, r.counts.infeasible);
  o.prune = false;
  expect_same(points, search(c, o).overall().points());
}

TEST(Search, StopsWhenToldTo) {
  const Case c = decode_case("deepseek-r1", "gb200-nvl72", 1'000'000);
  int calls = 0;
  search(c, options({64}, 8), [&](std::uint64_t, std::uint64_t) { return ++calls < 2; });
  EXPECT_EQ(calls, 2);
}

TEST(Compare, GainOfAFrontierOverItselfIsOne) {
  const Case c = decode_case("deepseek-r1", "gb200-nvl72", 1'000'000);
  const auto f = search(c, options({16, 64}, 64)).overall().points();
  const Gain g = gain(f, f);
  EXPECT_EQ(g.interactivity, 1);
  EXPECT_NEAR(g.geometric_mean, 1, 1e-12);
  for (const GainPoint& p : g.curve) EXPECT_EQ(p.gain, 1);
}

}  // namespace
}  // namespace shardline
