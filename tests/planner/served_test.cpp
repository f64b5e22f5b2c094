// planner/serving: steady serving [P19], against a play of every step.
#include "planner/serving/served.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

// A step of `prompts` prompts: what they share (weights, launches) and what each adds.
struct StepCosts {
  double decode = 0, shared = 0, each = 0;
  long long most = 1;
  ServedTimes times(PrefillPolicy policy, double room, long long prompts) const {
    ServedTimes t;
    t.room = room;
    t.prompts = static_cast<double>(prompts);
    t.decode = Seconds(decode);
    const double added = shared + each * t.prompts;
    t.prompt = Seconds(policy == PrefillPolicy::mixed ? decode + added : added);
    t.prompt_added = Seconds(added / t.prompts);
    return t;
  }
};

// Users that start at times drawn over a cycle; each step decodes for all that have a first token and, while
// prompts wait, computes as many as it has the budget for, beside them (mixed) or in their place (first).
// Means of what is answered after a while.
class Play {
 public:
  Play(const ServedLoad& load, const StepCosts& costs, PrefillPolicy policy, double path, double cycle)
      : load_(load),
        costs_(costs),
        mixed_(policy == PrefillPolicy::mixed),
        path_(path),
        users_(static_cast<std::size_t>(load.users)) {
    std::uniform_real_distribution<double> phase(0, cycle);
    for (User& u : users_) u.asked = phase(random_);
  }

  void run(int answers) {
    const int warm = static_cast<int>(2 * users_.size());
    while (done_ < answers + warm) {
      counts_ = done_ >= warm;
      if (counts_ && from_ < 0) from_ = now_, first_ = done_;
      step();
    }
  }
  double tpot() const { return decoding_ / tokens_; }
  double ttft() const { return response_ / prompts_; }
  double requests_per_s() const { return (done_ - first_) / (now_ - from_); }

 private:
  struct User {
    double asked = 0, first = 0;
    int left = 0, length = 0;
  };

  void step() {
    std::vector<User*> waiting, decoding;
    for (User& u : users_) {
      if (u.left > 0)
        decoding.push_back(&u);
      else if (u.asked + path_ <= now_)
        waiting.push_back(&u);
    }
    std::sort(waiting.begin(), waiting.end(),
              [](const User* a, const User* b) { return a->asked < b->asked; });
    if (static_cast<long long>(waiting.size()) > costs_.most)
      waiting.resize(static_cast<std::size_t>(costs_.most));
    if (!waiting.empty() && !mixed_) decoding.clear();
    if (waiting.empty() && decoding.empty()) {
      now_ += 1e-4;
      return;
    }
    now_ += (decoding.empty() ? 0 : costs_.decode) +
            (waiting.empty() ? 0 : costs_.shared + costs_.each * static_cast<double>(waiting.size()));
    for (User* u : decoding) {
      if (--u->left > 0) continue;
      ++done_;
      if (counts_) decoding_ += now_ - u->first, tokens_ += u->length;
      u->asked = now_;
    }
    for (User* u : waiting) {
      if (counts_) response_ += now_ - u->asked, ++prompts_;
      u->first = now_;
      u->left = u->length = std::max(1, static_cast<int>(std::lround((load_.output - 1) * length_(random_))));
    }
  }

  const ServedLoad& load_;
  const StepCosts& costs_;
  const bool mixed_;
  const double path_;
  std::vector<User> users_;
  std::mt19937_64 random_{7};
  std::uniform_real_distribution<double> length_{0.8, 1.2};
  double now_ = 0, from_ = -1, decoding_ = 0, tokens_ = 0, response_ = 0;
  int done_ = 0, first_ = 0, prompts_ = 0;
  bool counts_ = false;
};

TEST(SteadyServing, AgreesWithAPlayOfEveryStep) {
  struct Try {
    double users, output;
    StepCosts costs;
  };
  for (const PrefillPolicy policy : {PrefillPolicy::mixed, PrefillPolicy::first}) {
    for (const Try& x : {Try{8, 200, {0.010, 0.005, 0.045, 8}}, Try{32, 400, {0.012, 0.006, 0.020, 4}},
                         Try{64, 300, {0.020, 0.010, 0.030, 1}}, Try{4, 1000, {0.007, 0.01, 0.190, 1}},
                         Try{64, 32, {0.012, 0.012, 0.002, 64}}, Try{128, 128, {0.015, 0.012, 0.003, 64}}}) {
      const ServedLoad load{1000, x.output, x.users, false, 0};
      const auto times = [&](long long k) { return x.costs.times(policy, x.users, k); };
      const Served s = packed_serving(engine(policy), load, x.costs.most, times).served;
      Play p(load, x.costs, policy, 0.02, s.ttft.value + (x.output - 1) * s.tpot.value);
      p.run(4000);
      const double within = x.output < 100 ? 0.12 : 0.05;  // short answers: prompts come in crowds
      EXPECT_NEAR(s.tpot.value / p.tpot(), 1, within) << x.users << " users, " << x.output;
      EXPECT_NEAR(s.requests_per_s / p.requests_per_s(), 1, within) << x.users << " users, " << x.output;
    }
  }
}

// The times that it says are those that its numbers follow from.
TEST(SteadyServing, PackedTimesAreTheOnesUsed) {
  const StepCosts costs{0.015, 0.012, 0.003, 64};
  const ServedLoad load{1000, 128, 128, false, 0};
  const EngineProfile e = engine(PrefillPolicy::mixed);
  const PackedServing p =
      packed_serving(e, load, 64, [&](long long k) { return costs.times(PrefillPolicy::mixed, 128, k); });
  EXPECT_GT(p.used.prompts, 1.1);
  EXPECT_NE(p.used.prompts, std::floor(p.used.prompts));
  EXPECT_EQ(steady_serving(e, load, p.used).tpot, p.served.tpot);
}

TEST(SteadyServing, OneUserHasItsStepsAlone) {
  const ServedTimes t{10, 1, 1, Seconds(0.01), Seconds(0.1), Seconds(0.09)};
  const Served s = steady_serving(engine(PrefillPolicy::mixed), {1000, 101, 1, false, 0}, t);
  EXPECT_DOUBLE_EQ(s.tpot.value, 0.01);
  EXPECT_NEAR(s.ttft.value, 0.02 + 0.005 + 0.1, 1e-12);
  EXPECT_NEAR(s.requests_per_s, 1 / (s.ttft.value + 1.0), 1e-12);
  EXPECT_NEAR(s.prefill_part, 0, 1e-12);
}

TEST(SteadyServing, WorkIsConserved) {
  // Prefill first, phases apart: in a cycle every user decodes its steps and all prompts are computed once.
  for (const double n : {2.0, 16.0, 100.0}) {
    const ServedTimes t{1000, 1, 1, Seconds(0.01), Seconds(0.02), Seconds(0.02)};
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
  const ServedTimes t{100, 1, 1, Seconds(0.01), Seconds(0.02), Seconds(0.02)};
  const Served s = steady_serving(engine(PrefillPolicy::first), {1000, 101, 11, true, 0}, t);
  EXPECT_NEAR(s.tpot.value, 0.01 + 5 * 0.02 / 100, 1e-12);
  EXPECT_NEAR(s.ttft.value, 0.02 + 6 * 0.02, 1e-12);
}

TEST(SteadyServing, WhoFindsNoRoomWaits) {
  const ServedTimes t{8, 1, 1, Seconds(0.01), Seconds(0.02), Seconds(0.015)};
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
