// Every scenario of the folder runs as shipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

#include "planner/scenario/scenario.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/search/compare.hpp"
#include "planner/studies/conversation.hpp"
#include "planner/studies/listing.hpp"
#include "planner/studies/partition_study.hpp"
#include "planner/studies/ring_timing.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

/// The table answers as the simulator does wherever it was derived.
void expect_sound_answer(const Study& study, const ThresholdGrid& g, std::uint64_t&) {
  const RingTimer time = ring_timer(study.study, g.tpa, 2);
  for (const int n : g.cp) {
    const DerivedTable derived = derive_table(g, n, time);
    const LookupTable& table = derived.refined.table;
    const Regret worst =
        regret(derived.tests, [&](int, long long t, long long cached) { return table.pass_kv(t, cached); });
    EXPECT_LT(worst.mean, 0.002) << n;
    EXPECT_LT(worst.worst, 0.02) << n;
  }
}

void expect_sound_answer(const Study& study, const PartitionGrid& g, std::uint64_t&) {
  for (const int ranks : g.processes) {
    for (const PartitionCell& cell : study_partitions(study.study, g, ranks, 2).cells) {
      EXPECT_TRUE(cell.searched.best.proven) << ranks << " ranks, " << cell.context;
      EXPECT_LE(cell.searched.bound.ttft, cell.searched.best.ttft);
      EXPECT_LE(cell.searched.best.ttft, cell.even);
      EXPECT_LE(cell.searched.best.ttft, cell.interpolated_ttft);
      EXPECT_EQ(cell.grid.has_value(), cell.asked);
    }
  }
}

void expect_sound_answer(const Study& study, const Conversation& talk, std::uint64_t&) {
  EXPECT_EQ(converse(study).size(), talk.turns.size());
}

void expect_sound_answer(const Study& study, const Sweep& sweep, std::uint64_t& configurations) {
  const SearchResult r = search(study.study, sweep.search);
  configurations += r.counts.configurations;
  const auto points = r.overall().points();
  ASSERT_FALSE(points.empty());
  for (const Point& p : points) {
    EXPECT_EQ(check_plan(study.study, p.plan).value_or(""), "");
    EXPECT_TRUE(fits(study.study, memory_use(study.study, p.plan)));
  }
  if (!sweep.compare.candidate.empty()) {
    const Gain g = gain(r.of(sweep.compare.candidate).points(), r.of(sweep.compare.baseline).points());
    EXPECT_GE(g.interactivity, 1);  // the candidate contains the baseline in every shipped scenario
    EXPECT_GE(g.geometric_mean, 1);
  }
}

// Part of a question, which exercises the same code: the ends of its grid, and batches that double.
void narrow(ThresholdGrid& g) { g.cp.resize(1), g.test_points = 200; }
void narrow(PartitionGrid& g) {
  g.contexts.resize(std::min<std::size_t>(g.contexts.size(), 2));
  g.processes.resize(1);
}
void narrow(Conversation& talk) { talk.turns.resize(std::min<std::size_t>(talk.turns.size(), 4)); }
void narrow(Sweep& sweep) {
  std::erase_if(sweep.search.batches, [](int batch) { return (batch & (batch - 1)) != 0; });
}

// The whole of every question is asked where SHARDLINE_WHOLE is set (the test labelled long).
TEST(ShippedScenarios, AllRunAndGiveAFrontier) {
  const bool whole = std::getenv("SHARDLINE_WHOLE") != nullptr;
  const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                          source_path("scenarios"), source_path("planner/engines")};
  int count = 0;
  std::uint64_t configurations = 0;
  for (const auto& entry : std::filesystem::directory_iterator(catalogs.scenarios)) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().filename().string());
    Scenario scenario = load_scenario(entry.path(), catalogs);
    EXPECT_FALSE(scenario.summary.empty());
    for (Study& study : scenario.studies) {
      SCOPED_TRACE(study.title);
      if (!whole) std::visit([](auto& asked) { narrow(asked); }, study.question);
      std::visit([&](const auto& asked) { expect_sound_answer(study, asked, configurations); },
                 study.question);
    }
    ++count;
  }
  EXPECT_GE(count, 4);
  EXPECT_GT(configurations, whole ? 1'000'000u : 10'000u);
}

// Listing reads no model or system: it takes milliseconds, and says what the whole scenario says.
// As the names of systems and engines, and of models of the catalogue.
TEST(ShippedScenarios, TheyAndTheirModelsAreNamedInAnyCapitals) {
  const Scenario s = scenario_named("Helix_GB200_1M", "", "");
  EXPECT_EQ(s.name, "helix-gb200-1m");
  ASSERT_GT(s.studies.size(), 1U);
  for (const Study& study : s.studies) {
    std::string capitals = study.study.model.name;
    std::transform(capitals.begin(), capitals.end(), capitals.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    ASSERT_NE(capitals, study.study.model.name);
    EXPECT_EQ(&study_of(s, capitals), &study);
    EXPECT_EQ(&study_of(s, study.study.model.name), &study);
  }
  EXPECT_THROW(study_of(s, "llama-3.1-405"), UserError);
  EXPECT_THROW(scenario_named("helix_gb200", "", ""), UserError);
}

TEST(ShippedScenarios, AreListedBySummariesOfTheirs) {
  const std::vector<ListedScenario> listed = list_scenarios();
  ASSERT_EQ(listed.size(), scenario_names().size());
  for (const ListedScenario& l : listed) {
    EXPECT_EQ(l.summary, scenario_named(l.name).summary) << l.name;
    EXPECT_NE(l.summary, "") << l.name;
  }
}
}  // namespace
}  // namespace shardline
