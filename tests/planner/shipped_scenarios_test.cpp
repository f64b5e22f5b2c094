// Every scenario of the folder runs as shipped.
#include <gtest/gtest.h>

#include "planner/scenario/scenario.hpp"
#include "planner/search/compare.hpp"
#include "planner/studies/conversation.hpp"
#include "planner/studies/partition_study.hpp"
#include "planner/studies/ring_timing.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

TEST(ShippedScenarios, AllRunAndGiveAFrontier) {
  const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                          source_path("scenarios")};
  int count = 0;
  std::uint64_t configurations = 0;
  for (const auto& entry : std::filesystem::directory_iterator(catalogs.scenarios)) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().filename().string());
    const Scenario scenario = load_scenario(entry.path(), catalogs);
    EXPECT_FALSE(scenario.summary.empty());
    for (const Study& study : scenario.studies) {
      SCOPED_TRACE(study.title);
      if (std::holds_alternative<ThresholdGrid>(study.question)) {
        // The table answers as the simulator does wherever it was derived.
        const ThresholdGrid& g = study.thresholds();
        const RingTimer time = ring_timer(study.study, g.tpa, 2);
        for (const int n : g.cp) {
          const DerivedTable derived = derive_table(g, n, time);
          const LookupTable& table = derived.refined.table;
          const Regret worst = regret(
              derived.tests, [&](int, long long t, long long cached) { return table.pass_kv(t, cached); });
          EXPECT_LT(worst.mean, 0.002) << n;
          EXPECT_LT(worst.worst, 0.02) << n;
        }
        continue;
      }
      if (std::holds_alternative<PartitionGrid>(study.question)) {
        for (const int ranks : study.partition().processes) {
          for (const PartitionCell& cell : study_partitions(study.study, study.partition(), ranks, 2).cells) {
            EXPECT_TRUE(cell.searched.best.proven) << ranks << " ranks, " << cell.context;
            EXPECT_LE(cell.searched.bound.ttft, cell.searched.best.ttft);
            EXPECT_LE(cell.searched.best.ttft, cell.even);
            EXPECT_LE(cell.searched.best.ttft, cell.interpolated_ttft);
            EXPECT_EQ(cell.grid.has_value(), cell.asked);
          }
        }
        continue;
      }
      if (std::holds_alternative<Conversation>(study.question)) {
        const auto turns = converse(study);
        EXPECT_EQ(turns.size(), study.conversation().turns.size());
        continue;
      }
      const SearchResult r = search(study.study, study.sweep().search);
      configurations += r.counts.configurations;
      const auto points = r.overall().points();
      ASSERT_FALSE(points.empty());
      for (const Point& p : points) {
        EXPECT_EQ(check_plan(study.study, p.plan).value_or(""), "");
        EXPECT_TRUE(fits(study.study, memory_use(study.study, p.plan)));
      }
      if (!study.sweep().compare.candidate.empty()) {
        const Gain g = gain(r.of(study.sweep().compare.candidate).points(),
                            r.of(study.sweep().compare.baseline).points());
        EXPECT_GE(g.interactivity, 1);  // the candidate contains the baseline in every shipped scenario
        EXPECT_GE(g.geometric_mean, 1);
      }
    }
    ++count;
  }
  EXPECT_GE(count, 4);
  EXPECT_GT(configurations, 1'000'000u);
}

}  // namespace
}  // namespace shardline
