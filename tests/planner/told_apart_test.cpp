// Winners that are ahead by more than prices may be off [P13].
#include "planner/studies/told_apart.hpp"

#include <gtest/gtest.h>

#include <cmath>

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
    all.ratings.push_back({{}, ErrorTerms(source, {-0.1, 0.1})});
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
  EXPECT_LE(answer.interactivity->low, answer.interactivity->high);
  const double width = answer.interactivity->high - answer.interactivity->low;
  double most = 0;
  for (const Rating& rating : answer.rated.ratings) {
    const ErrorRange range = time_error(rating.errors);
    EXPECT_GT(range.low, -1);
    EXPECT_LT(range.low, range.high);
    most = std::max(most, range.high - range.low);
  }
  EXPECT_LT(width, 2 * most);
}

}  // namespace
}  // namespace shardline
