// Winners that are ahead by more than prices may be off [P13].
#include "planner/studies/told_apart.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "hardware/machine/frameworks.hpp"
#include "planner/studies/sweep.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

const auto kAny = [](const Point&) { return true; };

/// Plans on 8 GPUs with 8 users each; times in s, errors of +-10 % from the source.
struct Rated {
  RatedPoints all;
  const Point& add(const char* plan, double time, ErrorSourceId source) {
    all.points.push_back({parse_plan(plan), Seconds(time), Bytes(1e9)});
    all.ratings.push_back({{}, ErrorTerms(source, {-0.1, 0.1}), {}, {}});
    return all.points.back();
  }
  Rated() { all.points.reserve(8); }
};

TEST(ToldApart, P13ByTheErrorsThatTheyDoNotShare) {
  Rated r;
  const Point& winner = r.add("tensor:tpa=8,tpf=8,batch=8", 1, 0);
  const Point& alike = r.add("helix:kvp=2,tpa=4,tpf=8,batch=8", 1.1, 0);
  const Point& other = r.add("kv_shard:kvp=2,tpa=4,tpf=4,batch=8", 1.1, 1);
  const Point& far = r.add("dp_ep:dp=8,ep=8,batch=1", 1.2, 2);
  EXPECT_TRUE(told_apart(r.all, Metric::throughput, winner, alike));
  EXPECT_FALSE(told_apart(r.all, Metric::throughput, winner, alike, FitErrors::unrelated));
  EXPECT_FALSE(told_apart(r.all, Metric::throughput, winner, other));  // sqrt(2) 10 % > 1.1
  EXPECT_TRUE(told_apart(r.all, Metric::throughput, winner, far));     // < 1.2
  for (const Metric m : {Metric::throughput, Metric::speed, Metric::time, Metric::gpu_seconds}) {
    EXPECT_FALSE(told_apart(r.all, m, winner, other));
    EXPECT_FALSE(told_apart(r.all, m, other, winner));
    EXPECT_TRUE(told_apart(r.all, m, far, winner));
  }
  EXPECT_TRUE(told_apart(r.all, Metric::memory, winner, other));  // known, though equal
  EXPECT_EQ(maybe_better(r.all, Metric::throughput, winner, kAny),
            std::vector<StrategyId>{strategy_id("kv_shard")});
  EXPECT_EQ(maybe_better(r.all, Metric::throughput, winner, kAny, FitErrors::unrelated),
            (std::vector<StrategyId>{strategy_id("helix"), strategy_id("kv_shard")}));
  EXPECT_TRUE(maybe_better(r.all, Metric::throughput, winner, [](const Point& p) {
                return p.time < Seconds(1.05);
              }).empty());
}

TEST(ToldApart, P13TheBestOfAStrategyStandsForIt) {
  Rated r;
  const Point& winner = r.add("tensor:tpa=8,tpf=8,batch=8", 1, 0);
  r.add("helix:kvp=2,tpa=4,tpf=8,batch=8", 1.05, 0);  // told apart, and the best of its strategy
  r.add("helix:kvp=4,tpa=2,tpf=8,batch=8", 1.1, 1);   // by itself not
  r.add("tensor:tpa=8,tpf=8,batch=7", 1, 1);          // of the winner's own
  EXPECT_TRUE(maybe_better(r.all, Metric::throughput, winner, kAny).empty());
}

TEST(ToldApart, P13GainOfASweepHasTheBandOfItsFastestPlans) {
  const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                          source_path("scenarios")};
  const Scenario scenario = load_scenario(source_path("tests/golden/small.yaml"), catalogs);
  const Study& study = scenario.studies.front();
  const SweepAnswer answer = answer_sweep(
      study, {}, [](std::uint64_t, std::uint64_t) {}, [] { return true; });
  ASSERT_TRUE(answer.gain && answer.interactivity);
  // The fastest rated plan of each side, found once more, and [H65] written out: what a source adds to one
  // time it takes from the other.
  const auto fastest_of = [&](const std::vector<StrategyId>& side) {
    std::size_t best = answer.rated.points.size();
    for (std::size_t i = 0; i < answer.rated.points.size(); ++i) {
      const Point& p = answer.rated.points[i];
      if (std::find(side.begin(), side.end(), p.plan.strategy) == side.end()) continue;
      if (best == answer.rated.points.size() || p.time < answer.rated.points[best].time) best = i;
    }
    return best;
  };
  const std::size_t one = fastest_of(study.sweep().compare.candidate),
                    other = fastest_of(study.sweep().compare.baseline);
  ASSERT_LT(one, answer.rated.points.size());
  ASSERT_LT(other, answer.rated.points.size());
  std::map<ErrorSourceId, std::pair<ErrorTerm, ErrorTerm>> sources;  // of the slower and of the faster
  for (const ErrorTerm& t : answer.rated.ratings[other].errors.all()) sources[t.source].first = t;
  for (const ErrorTerm& t : answer.rated.ratings[one].errors.all()) sources[t.source].second = t;
  EXPECT_FALSE(sources.empty());
  double middle = 0, below = 0, above = 0;
  for (const auto& source : sources) {
    const auto& terms = source.second;
    const auto at = [&](double ErrorTerm::*end) {
      return std::log1p(terms.first.*end) - std::log1p(terms.second.*end);
    };
    const double m = at(&ErrorTerm::middle), l = at(&ErrorTerm::low), h = at(&ErrorTerm::high);
    middle += m;
    below += std::pow(std::max({m - l, m - h, 0.0}), 2);
    above += std::pow(std::max({l - m, h - m, 0.0}), 2);
  }
  // By each other framework's kernels both are other times [P16].
  const Point &slower = answer.rated.points[other], &faster = answer.rated.points[one];
  double low = 0, high = 0;
  for (const char* framework : {"sglang", "vllm"}) {
    Case c = study.study;
    use_framework(c.system, framework, source_path("hardware/catalog"));
    Evaluator e(c);
    const double log =
        std::log(e.simulate(slower.plan) / e.simulate(faster.plan) / (slower.time / faster.time));
    low = std::min(low, log);
    high = std::max(high, log);
  }
  EXPECT_LT(low, high);
  below += low * low;
  above += high * high;
  EXPECT_NEAR(answer.interactivity->low, middle - std::sqrt(below), 1e-12);
  EXPECT_NEAR(answer.interactivity->high, middle + std::sqrt(above), 1e-12);
  EXPECT_LT(answer.interactivity->low, answer.interactivity->high);
}

}  // namespace
}  // namespace shardline
