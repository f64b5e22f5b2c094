// planner/serving: steady serving [P19], against a play of every step.
#include "planner/serving/served.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <random>
#include <vector>

#include "planner/scenario/scenario.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/search/search.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {
namespace {

EngineProfile engine(PrefillPolicy policy) {
  EngineProfile e;
  e.prefill = policy;
  e.host.path = Seconds(0.02);
  return e;
}

// Users that start at times drawn over a cycle; each step decodes for all that have a first token and, while
// a prompt waits, computes one, beside them (mixed) or in their place (first). Means of what is answered
// after a while.
struct Played {
  double tpot = 0, ttft = 0, requests_per_s = 0;
};
Played play(const ServedLoad& load, const ServedTimes& t, PrefillPolicy policy, double path, double cycle,
            int answers) {
  struct User {
    double asked = 0, first = 0;
    int left = 0;
  };
  const int n = static_cast<int>(load.users);
  std::vector<User> users(static_cast<std::size_t>(n));
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> phase(0, cycle), length(0.8, 1.2);
  for (User& u : users) u.asked = phase(random);
  const auto draw = [&] { return std::max(2, static_cast<int>(load.output * length(random))); };
  double now = 0, tpot = 0, ttft = 0, from = 0;
  int done = 0, counted = 0;
  double tokens = 0;
  while (counted < answers) {
    int waits = -1, decodes = 0;
    for (int i = 0; i < n; ++i) {
      const User& u = users[static_cast<std::size_t>(i)];
      if (u.left > 0) ++decodes;
      if (u.left == 0 && u.asked + path <= now &&
          (waits < 0 || u.asked < users[static_cast<std::size_t>(waits)].asked))
        waits = i;
    }
    if (waits < 0 && decodes == 0) {
      now += 1e-4;
      continue;
    }
    const bool decode = decodes > 0 && (policy == PrefillPolicy::mixed || waits < 0);
    double step = 0;
    if (decode) step += t.decode.value;
    if (waits >= 0) step += decode ? t.prompt_added.value : t.prompt.value;
    now += step;
    if (waits >= 0) {
      User& u = users[static_cast<std::size_t>(waits)];
      u.first = now;
      u.left = draw() - 1;
      if (done > 2 * n) ttft += u.first - u.asked;
      ++u.left;  // counted down below only where it decodes from the next step on
    }
    for (int i = 0; i < n && decode; ++i) {
      User& u = users[static_cast<std::size_t>(i)];
      if (u.left == 0 || i == waits) continue;
      if (--u.left > 1) continue;
      u.left = 0;
      if (++done > 2 * n) {
        if (counted++ == 0) from = now;
        tpot += now - u.first;
        tokens += load.output - 1;
      }
      u.asked = now;
    }
  }
  return {tpot / tokens, ttft / counted, (counted - 1) / (now - from)};
}

TEST(SteadyServing, AgreesWithAPlayOfEveryStep) {
  struct Try {
    double users, output, decode, prompt, added;
  };
  for (const PrefillPolicy policy : {PrefillPolicy::mixed, PrefillPolicy::first}) {
    for (const Try& x : {Try{8, 200, 0.010, 0.05, 0.045}, Try{32, 400, 0.012, 0.03, 0.025},
                         Try{64, 300, 0.020, 0.04, 0.03}, Try{4, 1000, 0.007, 0.2, 0.195}}) {
      const double added = policy == PrefillPolicy::first ? x.prompt : x.added;
      const ServedTimes t{x.users, 1, Seconds(x.decode), Seconds(x.prompt), Seconds(added)};
      const ServedLoad load{1000, x.output, x.users, false, 0};
      const Served s = steady_serving(engine(policy), load, t);
      const double cycle = s.ttft.value + (x.output - 1) * s.tpot.value;
      const Played p = play(load, t, policy, 0.02, cycle, 3000);
      EXPECT_NEAR(s.tpot.value / p.tpot, 1, 0.04) << x.users << " users";
      EXPECT_NEAR(s.requests_per_s / p.requests_per_s, 1, 0.04) << x.users << " users";
      EXPECT_NEAR(s.ttft.value / p.ttft, 1, 0.35) << x.users << " users";  // a queue's mean, not its law
    }
  }
}

TEST(SteadyServing, OneUserHasItsStepsAlone) {
  const ServedTimes t{10, 1, Seconds(0.01), Seconds(0.1), Seconds(0.09)};
  const Served s = steady_serving(engine(PrefillPolicy::mixed), {1000, 101, 1, false, 0}, t);
  EXPECT_DOUBLE_EQ(s.tpot.value, 0.01);
  EXPECT_NEAR(s.ttft.value, 0.02 + 0.005 + 0.1, 1e-12);
  EXPECT_NEAR(s.requests_per_s, 1 / (s.ttft.value + 1.0), 1e-12);
  EXPECT_NEAR(s.prefill_part, 0, 1e-12);
}

TEST(SteadyServing, WorkIsConserved) {
  // Prefill first, phases apart: in a cycle every user decodes its steps and all prompts are computed once.
  for (const double n : {2.0, 16.0, 100.0}) {
    const ServedTimes t{1000, 1, Seconds(0.01), Seconds(0.02), Seconds(0.02)};
    const Served s = steady_serving(engine(PrefillPolicy::first), {1000, 401, n, false, 0}, t);
    const double cycle = s.ttft.value + 400 * s.tpot.value;
    EXPECT_NEAR(s.requests_per_s * cycle, n, 1e-9);
    EXPECT_GE(cycle,
              n * 0.02 + 400 * 0.01 - 0.03);  // its own prompt may lie in a step that counts for others
    EXPECT_GE(s.tpot.value, 0.01);
    EXPECT_LE(s.decoding, n);
  }
}

TEST(SteadyServing, UsersInStepHaveHalfOfTheOthersPromptsBehindThem) {
  const ServedTimes t{100, 1, Seconds(0.01), Seconds(0.02), Seconds(0.02)};
  const Served s = steady_serving(engine(PrefillPolicy::first), {1000, 101, 11, true, 0}, t);
  EXPECT_NEAR(s.tpot.value, 0.01 + 5 * 0.02 / 100, 1e-12);
  EXPECT_NEAR(s.ttft.value, 0.02 + 6 * 0.02, 1e-12);
}

TEST(SteadyServing, WhoFindsNoRoomWaits) {
  const ServedTimes t{8, 1, Seconds(0.01), Seconds(0.02), Seconds(0.015)};
  const EngineProfile e = engine(PrefillPolicy::mixed);
  const Served full = steady_serving(e, {1000, 101, 8, false, 0}, t);
  const Served more = steady_serving(e, {1000, 101, 20, false, 0}, t);
  EXPECT_DOUBLE_EQ(more.tpot.value, full.tpot.value);
  EXPECT_DOUBLE_EQ(more.requests_per_s, full.requests_per_s);
  EXPECT_NEAR(more.ttft.value - full.ttft.value, 12 / full.requests_per_s, 1e-9);
  EXPECT_EQ(more.waiting, 12);
  EXPECT_EQ(steady_serving(e, {1000, 101, 8, false, 0}, ServedTimes{}).tpot, Seconds(0));
}

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
    load.users = p.plan.users();
    const ServedPlan served = evaluator.of(p.plan, load);
    EXPECT_EQ(p.time, served.served.tpot);
    EXPECT_EQ(p.ttft, served.served.ttft);
    // Output tokens beside the first one of each request.
    EXPECT_NEAR(value(Metric::throughput, p) * 512 / 511, served.output_per_s_gpu,
                1e-9 * served.output_per_s_gpu);
    EXPECT_GT(p.time, Evaluator(s.study, o.all_reduce).simulate(p.plan) * (p.plan.batch > 1 ? 1.0 : 0.999));
  }
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
