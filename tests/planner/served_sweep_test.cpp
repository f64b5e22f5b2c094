// Sweeps by what is served [P19]: against serving every plan by itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "planner/plan/plan.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/search/memory.hpp"
#include "planner/search/search.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/simulated_plan.hpp"

namespace shardline {
namespace {

const char* const kServed =
    "name: q\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\nengine: {}\n"
    "precision: {{weights: bf16, kv: bf16, math: bf16}}\nstrategies: [{}]\ngpus: [1, 2, 4, 8]\nbatch: [1, 4, "
    "16, 64]\n"
    "workload: {{input: 8Ki tokens, output: 512 tokens}}\n";

TEST(ServedSweep, PrunedEqualsExhaustive) {
  for (const char* name : {"vllm", "sglang", "trtllm"}) {
    const Study s = parse_scenario("q.yaml", fmt::format(fmt::runtime(kServed), name, "tensor, pipeline"),
                                   shipped_catalogs())
                        .studies[0];
    SearchOptions o = s.sweep().search;
    const std::vector<Point> pruned = search(s.study, o).overall().points();
    o.prune = false;
    const std::vector<Point> all = search(s.study, o).overall().points();
    ASSERT_EQ(pruned.size(), all.size()) << name;
    ASSERT_FALSE(pruned.empty());
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(pruned[i].plan, all[i].plan);
      EXPECT_EQ(pruned[i].time, all[i].time);
      EXPECT_EQ(pruned[i].decoding, all[i].decoding);
    }
  }
}

// The interval of a TTFT was measured of loops of ten requests per user: it is theirs that is shown.
TEST(ServedSweep, ShowsTheTtftOfTheLoopThatItsIntervalIsOf) {
  const Study s =
      parse_scenario("q.yaml", fmt::format(fmt::runtime(kServed), "vllm", "tensor"), shipped_catalogs())
          .studies[0];
  ServedEvaluator evaluator(s.study, AllReduceRule::fastest);
  ServedWorkload shown = *s.sweep().search.workload;
  EXPECT_EQ(shown.rounds, kMeasuredRounds);
  shown.users = 64;
  ServedWorkload endless = shown;
  endless.rounds = 0;
  const Plan plan = parse_plan("tensor:tpa=2,tpf=2,batch=64");
  const Served a = evaluator.of(plan, shown).served, b = evaluator.of(plan, endless).served;
  EXPECT_NEAR(a.ttft.value, (9 * b.ttft.value + b.burst.value) / 10, 1e-9);
  EXPECT_GT(a.ttft, b.ttft * 1.5);
  EXPECT_EQ(a.tpot, b.tpot);
}

TEST(ServedSweep, RanksByWhatIsServed) {
  const Study s =
      parse_scenario("q.yaml", fmt::format(fmt::runtime(kServed), "vllm", "tensor"), shipped_catalogs())
          .studies[0];
  SearchOptions o = s.sweep().search;
  o.prune = false;
  o.keep_all = true;
  const SearchResult found = search(s.study, o);
  ASSERT_FALSE(found.all.empty());
  for (const Point& p : found.all) {
    ServedEvaluator evaluator(s.study, o.all_reduce);
    ServedWorkload load = *o.workload;
    load.users = p.plan.users() + p.all_waiting();
    const ServedPlan served = evaluator.of(p.plan, load);
    EXPECT_EQ(p.time, served.served.tpot);
    EXPECT_EQ(p.ttft, served.served.ttft);
    // All tokens of answers, the first one of each with them, as `simulate` and separate pools count them.
    EXPECT_NEAR(value(Metric::throughput, p), served.output_per_s_gpu, 1e-9 * served.output_per_s_gpu);
    EXPECT_GT(p.time, Evaluator(s.study, o.all_reduce).simulate(p.plan) * (p.plan.batch > 1 ? 1.0 : 0.999));
  }
}

Study study_of_served(const char* engine, const char* strategies) {
  return parse_scenario("q.yaml", fmt::format(fmt::runtime(kServed), engine, strategies), shipped_catalogs())
      .studies[0];
}

std::vector<Point> all_points(const Study& s, SearchOptions o) {
  o.prune = false;
  o.keep_all = true;
  return search(s.study, o).all;
}

// A target leaves the frontier of the plans that meet it, whether or not bounds rule plans out.
TEST(ServedSweep, ATtftTargetLeavesTheFrontierOfThoseThatMeetIt) {
  for (const char* name : {"vllm", "sglang", "trtllm"}) {
    const Study s = study_of_served(name, "tensor, pipeline");
    SearchOptions o = s.sweep().search;
    const std::vector<Point> all = all_points(s, o);
    std::vector<Seconds> ttft;
    for (const Point& p : all) ttft.push_back(p.ttft);
    std::sort(ttft.begin(), ttft.end());
    for (const double part : {0.1, 0.5, 0.9}) {
      o.most_ttft = ttft[static_cast<std::size_t>(part * static_cast<double>(ttft.size()))];
      Frontier expected(o.x, o.y);
      std::uint64_t order = 0;
      for (const Point& p : all) {
        if (p.ttft <= o.most_ttft) expected.add(p, order);
        ++order;
      }
      const SearchResult found = search(s.study, o);
      const std::vector<Point> met = found.overall().points(), want = expected.points();
      ASSERT_EQ(met.size(), want.size()) << name << " " << part;
      for (std::size_t i = 0; i < met.size(); ++i) {
        EXPECT_EQ(met[i].time, want[i].time);
        EXPECT_EQ(value(Metric::throughput, met[i]), value(Metric::throughput, want[i]));
      }
      if (part < 0.5) {
        EXPECT_GT(found.counts.pruned, 0u);
      }
      EXPECT_TRUE(found.nearest.empty());
    }
  }
}

TEST(ServedSweep, NoTtftIsBelowTheBoundThatRulesPlansOut) {
  for (const char* name : {"vllm", "sglang", "trtllm"}) {
    const Study s = study_of_served(name, "tensor, pipeline");
    ServedEvaluator evaluator(s.study, AllReduceRule::fastest);
    for (const Point& p : all_points(s, s.sweep().search)) {
      EXPECT_LE(evaluator.least_ttft(p.plan, 8192), p.ttft) << to_string(p.plan);
      EXPECT_GT(evaluator.least_ttft(p.plan, 8192), s.study.engine->host.path);
    }
  }
}

// Experts, stages and prompts of several chunks, whose prices do not all rise with the tokens of a step.
TEST(ServedSweep, ATtftTargetRulesOutNoExpertPlanThatMeetsIt) {
  for (const char* name : {"vllm", "sglang", "trtllm"}) {
    const Study s =
        parse_scenario("q.yaml",
                       fmt::format("name: q\nsystem: gb200-nvl72\nmodels: [deepseek-r1]\nengine: {}\n"
                                   "precision: {{weights: fp4, kv: fp8, math: fp4}}\n"
                                   "strategies: [tensor, pipeline, dp_ep]\ngpus: [4, 8]\n"
                                   "batch: [1, 8, 32]\n"
                                   "workload: {{input: 32Ki tokens, output: 2Ki tokens}}\n",
                                   name),
                       shipped_catalogs())
            .studies[0];
    const std::vector<Point> all = all_points(s, s.sweep().search);
    ASSERT_GT(all.size(), 4u) << name;
    ServedEvaluator evaluator(s.study, AllReduceRule::fastest);
    for (const Point& p : all) EXPECT_LE(evaluator.least_ttft(p.plan, 32768), p.ttft) << to_string(p.plan);
  }
}

TEST(ServedSweep, WhereNoneMeetsATtftTheNearestIsSaid) {
  const Study s = study_of_served("vllm", "tensor");
  SearchOptions o = s.sweep().search;
  Seconds lowest(1e9);
  for (const Point& p : all_points(s, o)) lowest = std::min(lowest, p.ttft);
  for (const bool prune : {true, false}) {
    o.prune = prune;
    o.most_ttft = lowest * 0.999;
    const SearchResult found = search(s.study, o);
    EXPECT_TRUE(found.overall().points().empty());
    ASSERT_FALSE(found.nearest.empty());
    EXPECT_EQ(found.nearest.front().ttft, lowest);
    o.most_ttft = lowest;
    EXPECT_EQ(search(s.study, o).overall().points().size(), 1u);
  }
}

// [P19] Between the users that fit with whole answers and those that fit at their mean length an engine which
// admits by what is used preempts; one that keeps room for whole answers never does.
TEST(ServedSweep, AnEngineThatAdmitsByUsePreemptsBetweenBothRooms) {
  for (const char* name : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(name);
    const Study s = parse_scenario("q.yaml",
                                   fmt::format("name: q\nsystem: h200-hgx\nmodels: [llama-3.1-70b]\n"
                                               "engine: {}\nstrategies: [tensor]\ngpus: [2]\n"
                                               "precision: {{weights: fp8_static, kv: fp8, math: fp8}}\n"
                                               "batch: [1]\n"
                                               "workload: {{input: 1Ki tokens, output: 8Ki tokens}}\n",
                                               name),
                                   shipped_catalogs())
                        .studies[0];
    Plan plan = parse_plan("tensor:tpa=2,tpf=2,batch=1");
    Case mean = s.study, whole = s.study;
    mean.batch = decode_batch(1024 + 4096);
    whole.batch = decode_batch(1024 + 8192);
    const int most = largest_batch(mean, plan, 4096), least = largest_batch(whole, plan, 4096);
    ASSERT_GT(least, 8);
    ASSERT_GT(most, least + 8);
    const bool used = s.study.engine->admission == Admission::used;
    for (const int users : {1, least - 1, least, least + 1, most, most + 20}) {
      ServedWorkload load{1024, 8192, users};
      EXPECT_EQ(preempts(s.study, plan, load), used && users > least) << users;
    }
  }
}

std::string with_users(const std::string& users, const std::string& more = "") {
  return "name: q\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\nengine: vllm\n"
         "precision: {weights: bf16, kv: bf16, math: bf16}\nstrategies: [tensor, pipeline]\n"
         "gpus: [1, 2, 4]\nworkload: {input: 2Ki tokens, output: 512 tokens, users: " +
         users + "}\n" + more;
}

// Those numbers of users and no others, on whatever plan: as if each plan were given its batch.
TEST(ServedSweep, UsersArePinnedForTheWholeDeployment) {
  const Study s = parse_scenario("q.yaml", with_users("[12, 32]"), shipped_catalogs()).studies[0];
  SearchOptions o = s.sweep().search;
  const std::vector<Point> pinned = all_points(s, o);
  o.users.clear();
  o.batches.resize(32);
  for (int i = 0; i < 32; ++i) o.batches[static_cast<std::size_t>(i)] = i + 1;
  std::vector<Point> expected;
  for (const Point& p : all_points(s, o)) {
    if (p.plan.users() == 12 || p.plan.users() == 32) expected.push_back(p);
  }
  ASSERT_EQ(pinned.size(), expected.size());
  ASSERT_GT(pinned.size(), 4u);
  bool stages = false;
  for (std::size_t i = 0; i < pinned.size(); ++i) {
    EXPECT_EQ(pinned[i].plan, expected[i].plan);
    EXPECT_EQ(pinned[i].time, expected[i].time);
    EXPECT_EQ(pinned[i].ttft, expected[i].ttft);
    stages = stages || pinned[i].plan.in_flight > 1;
  }
  EXPECT_TRUE(stages);
  o = s.sweep().search;
  const SearchResult pruned = search(s.study, o);
  Frontier frontier(o.x, o.y);
  for (std::size_t i = 0; i < pinned.size(); ++i) frontier.add(pinned[i], i);
  ASSERT_EQ(pruned.overall().size(), frontier.size());
}

// Llama-3.1-8B in BF16 on one H100 has room for some 400 requests of 2.3K tokens under vLLM.
TEST(ServedSweep, UsersBeyondTheRoomAreServedByTheBatchThatFits) {
  for (const char* name : {"vllm", "sglang", "trtllm"}) {
    std::string text = with_users("[4096]");
    text.replace(text.find("vllm"), 4, name);
    const Study s = parse_scenario("q.yaml", text, shipped_catalogs()).studies[0];
    SearchOptions o = s.sweep().search;
    o.gpus = {1};
    const std::vector<Point> all = all_points(s, o);
    ASSERT_EQ(all.size(), 1u) << name;
    const Point& p = all[0];
    EXPECT_EQ(p.plan.users() + p.all_waiting(), 4096);
    EXPECT_EQ(p.plan.batch, largest_batch(with_room(s.study), p.plan, 4096));
    EXPECT_GT(p.waiting, 1000);
    EXPECT_TRUE(fits(s.study, memory_use(s.study, p.plan)));
    // As many tokens as the same batch without a queue gives, or a little more; the first one comes later.
    Point alone = p;
    alone.waiting = 0;
    ServedEvaluator(s.study, AllReduceRule::fastest).serve(*o.workload, alone);
    EXPECT_NEAR(value(Metric::throughput, p) / value(Metric::throughput, alone), 1.0, 0.03);
    EXPECT_GE(p.time, alone.time * 0.99);
    EXPECT_GT(p.ttft, alone.ttft * 5);
  }
}

TEST(ServedSweep, OfAListTheFirstBatchBeyondTheRoomRunsAsFarAsItFits) {
  std::string text = fmt::format(fmt::runtime(kServed), "vllm", "tensor");
  text.replace(text.find("[1, 4, 16, 64]"), 14, "[16, 1024, 2048]");
  const Study s = parse_scenario("q.yaml", text, shipped_catalogs()).studies[0];
  SearchOptions o = s.sweep().search;
  o.gpus = {1, 2};
  SearchOptions every = o;
  every.prune = false;
  every.keep_all = true;
  const SearchResult found = search(s.study, every);
  const std::vector<Point>& all = found.all;
  ASSERT_EQ(all.size(), 4u);
  for (const std::size_t i : {1u, 3u}) {
    EXPECT_EQ(all[i].plan.batch + all[i].waiting, 1024);
    EXPECT_GT(all[i].plan.batch, 16);
    EXPECT_GT(value(Metric::throughput, all[i]), value(Metric::throughput, all[i - 1]));
  }
  EXPECT_EQ(found.counts.full, 2u);
  EXPECT_EQ(found.counts.infeasible, 0u);
  EXPECT_EQ(found.counts.simulated + found.counts.full, found.counts.configurations);
  const std::vector<Point> pruned = search(s.study, o).overall().points();
  Frontier frontier(o.x, o.y);
  for (std::size_t i = 0; i < all.size(); ++i) frontier.add(all[i], i);
  const std::vector<Point> want = frontier.points();
  ASSERT_EQ(pruned.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(pruned[i].plan, want[i].plan);
    EXPECT_EQ(pruned[i].ttft, want[i].ttft);
  }
}

TEST(ServedSweep, ASimulatedPlanBeyondTheRoomIsThatOfTheSweep) {
  const Study s = parse_scenario("q.yaml", with_users("[4096]"), shipped_catalogs()).studies[0];
  SearchOptions o = s.sweep().search;
  o.gpus = {2};
  const std::vector<Point> all = all_points(s, o);
  ASSERT_FALSE(all.empty());
  for (const Point& p : all) {
    Plan asked = p.plan;
    asked.batch += p.waiting;
    Evaluator e(s.study, o.all_reduce);
    const SimulatedPlan simulated = simulate_plan(s, e, asked);
    EXPECT_FALSE(simulated.misfit);
    EXPECT_EQ(simulated.plan, p.plan);
    EXPECT_EQ(simulated.asked, asked);
    EXPECT_EQ(simulated.served->users, 4096);
    EXPECT_EQ(simulated.served->served.tpot, p.time);
    EXPECT_EQ(simulated.served->served.ttft, p.ttft);
  }
}

TEST(ServedSweep, UsersThatGroupsCannotShareAreCounted) {
  const Study s = parse_scenario("q.yaml", with_users("7"), shipped_catalogs()).studies[0];
  const SearchResult found = search(s.study, s.sweep().search);
  EXPECT_GT(found.rejected.at("users that attention groups cannot share evenly"), 0u);
  for (const Point& p : found.overall().points()) EXPECT_EQ(p.plan.users(), 7);
}

TEST(ServedSweep, TtftHasAnIntervalWhereItWasMeasured) {
  EngineProfile e;
  const ErrorTerms kernels(kAssumedSource, {-0.1, 0.2});
  EXPECT_FALSE(served_ttft_error(e, false, 8, kernels));
  e.error.ttft_by_users = {{"any", 1, 4, {{-0.1, 0.2}, 9}}, {"drawn", 5, 16, {{-0.3, 0.4}, 20}}};
  EXPECT_FALSE(served_ttft_error(e, true, 8, kernels));
  EXPECT_FALSE(served_ttft_error(e, false, 17, kernels));
  // Among a few users no queue tells lengths apart.
  EXPECT_EQ(served_ttft_error(e, true, 1, kernels)->high, served_ttft_error(e, false, 4, kernels)->high);
  EXPECT_LT(served_ttft_error(e, true, 1, kernels)->high, served_ttft_error(e, false, 5, kernels)->high);
  const auto range = served_ttft_error(e, false, 8, kernels);
  ASSERT_TRUE(range);
  const ErrorRange prices = time_error(kernels);
  EXPECT_NEAR(std::log1p(range->low), -std::hypot(std::log1p(prices.low), 0.3), 1e-12);
  EXPECT_NEAR(std::log1p(range->high), std::hypot(std::log1p(prices.high), 0.4), 1e-12);
  EXPECT_LT(range->high, std::expm1(std::log1p(prices.high) + 0.4));
}

TEST(ServedSweep, StrategiesWithoutPromptsBesideNeedAPool) {
  const Study s =
      parse_scenario("q.yaml", fmt::format(fmt::runtime(kServed), "vllm", "tensor"), shipped_catalogs())
          .studies[0];
  SearchOptions o = s.sweep().search;
  o.strategies.push_back(strategy_id("ring_decode"));
  const SearchResult found = search(s.study, o);
  ASSERT_EQ(found.without_plans.size(), 1u);
  EXPECT_EQ(to_string(found.without_plans[0].first), "ring_decode");
}

}  // namespace
}  // namespace shardline
