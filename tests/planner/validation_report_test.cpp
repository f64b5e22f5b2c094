// The report on every paper: its summary against its own points, verdicts of invented values, and the form of
// the Markdown.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "calibrate/validate/context_paper.hpp"
#include "calibrate/validate/helix_report.hpp"
#include "calibrate/validate/papers.hpp"
#include "sim/base/cancel.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using Column = TruthColumn;
using Id = TruthTableId;
using ::testing::HasSubstr;
using ::testing::Not;

PaperOptions options(int threads) {
  PaperOptions o;
  o.catalogs = {source_path("models/catalog"), source_path("hardware/catalog"), source_path("scenarios")};
  o.sensitivity = false;
  o.both_costs = true;
  o.threads = threads;
  return o;
}

const std::vector<PaperReport>& reports() {
  static const std::vector<PaperReport> kReports = all_papers(options(2));
  return kReports;
}

std::string document(std::span<const PaperReport> papers) {
  return validation_markdown(papers, "1.2.3", "pictures", {"helix"});
}

const PaperGroup& group(const PaperReport& report, const std::string& name) {
  const auto it = std::find_if(report.groups.begin(), report.groups.end(),
                               [&](const PaperGroup& g) { return g.name == name; });
  if (it == report.groups.end()) throw std::runtime_error("no group " + name);
  return *it;
}

// Cells of a row of a Markdown table, by its bars that are not escaped.
std::size_t cells(const std::string& line) {
  std::size_t bars = 0;
  for (std::size_t i = 0; i < line.size(); ++i) bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
  return bars - 1;
}

// Every table has a rule below its header and as many cells in every row; returns the number of tables.
std::size_t check_tables(const std::string& markdown) {
  std::istringstream in(markdown);
  std::size_t tables = 0, row = 0, columns = 0;
  for (std::string line; std::getline(in, line); row = line.starts_with('|') ? row + 1 : 0) {
    if (!line.starts_with('|')) continue;
    EXPECT_TRUE(line.ends_with('|')) << line;
    if (row == 0) {
      ++tables;
      columns = cells(line);
    }
    EXPECT_EQ(cells(line), columns) << line;
    if (row == 1) {
      EXPECT_EQ(line.find_first_not_of("|-:"), std::string::npos) << line;
    }
  }
  return tables;
}

TEST(ValidationReport, EveryPaperOfTheTableReports) {
  ASSERT_EQ(reports().size(), papers().size());
  std::set<std::string> ids;
  for (std::size_t i = 0; i < papers().size(); ++i) {
    const PaperReport& r = reports()[i];
    EXPECT_EQ(r.id, papers()[i].id);
    EXPECT_TRUE(ids.insert(r.id).second) << r.id;
    EXPECT_FALSE(r.sections.empty()) << r.id;
    std::set<std::string> names;
    for (const PaperGroup& g : r.groups) EXPECT_TRUE(names.insert(g.name).second) << g.name;
    for (const PaperPoint& p : r.points) {
      EXPECT_TRUE(names.contains(p.group)) << p.group;
      EXPECT_TRUE(std::isfinite(p.error())) << p.label;
    }
  }
}

// The summary is recomputed from the points that the report lists.
TEST(ValidationReport, SummaryIsThatOfThePoints) {
  std::size_t groups = 0, fitted_values = 0;
  for (const PaperReport& r : reports()) {
    for (const PaperGroup& g : r.groups) {
      SCOPED_TRACE(r.id + ": " + g.name);
      std::vector<double> errors;
      std::size_t fitted = 0;
      for (const PaperPoint& p : r.points) {
        if (p.group != g.name) continue;
        if (p.standing == g.counted) errors.push_back(std::abs(p.ours - p.published) / p.published);
        fitted += p.standing == Standing::calibration;
      }
      if (!g.finding.empty()) {
        EXPECT_TRUE(errors.empty());
        continue;
      }
      ++groups;
      EXPECT_EQ(g.fitted, fitted);
      fitted_values += fitted;
      ASSERT_EQ(g.errors.count, errors.size());
      ASSERT_FALSE(errors.empty());
      std::sort(errors.begin(), errors.end());
      const double median = (errors[(errors.size() - 1) / 2] + errors[errors.size() / 2]) / 2;
      EXPECT_NEAR(g.errors.median, median, 1e-12);
      EXPECT_NEAR(g.errors.largest, errors.back(), 1e-12);
    }
  }
  EXPECT_GT(groups, 15u);
  // Marks of the shipped tables that are published and not zero, and the loss that the noise was chosen for.
  EXPECT_EQ(fitted_values, 39u);
}

ComparedValue value(double ours, Standing standing, GoalGroup group = GoalGroup::cp_ttft) {
  const Id table = group == GoalGroup::table4 ? Id::table4 : Id::table7;
  const Column column = group == GoalGroup::table4 ? Column::pass_kv : Column::ttft;
  return {table, 1, column, Seconds(1), Seconds(ours), standing, group};
}

PaperReport invented(std::vector<ComparedValue> values) {
  ContextReport report;
  report.values = std::move(values);
  return context_paper(context_truth_of("", options(1).catalogs), report, "");
}

// TTFT of context parallelism: goals of 1 and 2.5 %.
TEST(ValidationReport, AMissedGoalIsReportedAsMissed) {
  const std::string name = "TTFT, context parallelism and one node";
  const auto verdict = [&](std::vector<ComparedValue> values) {
    return group(invented(std::move(values)), name).verdict;
  };
  EXPECT_EQ(verdict({value(1.005, Standing::held_out)}), Verdict::met);
  EXPECT_EQ(verdict({value(0.97, Standing::held_out)}), Verdict::missed);
  EXPECT_EQ(verdict({value(1.015, Standing::held_out)}), Verdict::missed);  // by its median alone
  // The largest error decides too, and fitted values do not help.
  EXPECT_EQ(verdict({value(1, Standing::held_out), value(1, Standing::held_out),
                     value(1.03, Standing::held_out), value(1, Standing::calibration)}),
            Verdict::missed);
  EXPECT_EQ(verdict({value(1, Standing::calibration)}), Verdict::none);

  const PaperReport missed = invented({value(1.04, Standing::held_out), value(1, Standing::calibration)});
  const auto rows = summary_rows({&missed, 1}, false);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(rows[1], ::testing::ElementsAre("context_parallel", name, "2", "1", "4.00 %", "4.00 %",
                                              "1 / 2.5 %", "MISSED"));
  EXPECT_EQ(goals_line({&missed, 1}),
            "Goals: 0 met, 1 MISSED (context_parallel: " + name + "); 0 explained, 0 open, 0 without a goal");
  EXPECT_THAT(document({&missed, 1}), HasSubstr("| 1 / 2.5 % | MISSED |"));
}

// Values that a goal leaves out are explained up to their own goal (Table 4: 11 %), and missed beyond it.
TEST(ValidationReport, LeftOutValuesHaveAGoalOfTheirOwn) {
  const std::string name = "Table 4, left out: T = 6400";
  for (const auto& [ours, verdict] : {std::pair{1.10, Verdict::explained}, {1.12, Verdict::missed}}) {
    const PaperReport r = invented({value(ours, Standing::excluded, GoalGroup::table4)});
    EXPECT_EQ(group(r, name).verdict, verdict) << ours;
    EXPECT_NEAR(group(r, name).errors.largest, ours - 1, 1e-12);
    EXPECT_FALSE(group(r, name).reason.empty());
  }
}

TEST(ValidationReport, HelixVerdictsFollowFromTheirRanges) {
  const PaperReport& helix = reports()[0];
  std::size_t claims = 0;
  for (const char* model : {"deepseek-r1", "llama-3.1-405b"}) {
    for (const HelixClaim& c : helix_claims(model)) {
      const std::string name = fmt::format("{}, {}", model, c.name);
      const auto p = std::find_if(helix.points.begin(), helix.points.end(),
                                  [&](const PaperPoint& x) { return x.group == name; });
      if (p == helix.points.end()) continue;
      ++claims;
      const bool inside = p->ours >= c.low && p->ours <= c.high;
      EXPECT_EQ(group(helix, name).verdict, c.high <= 0 ? Verdict::open
                                            : inside    ? Verdict::met
                                                        : Verdict::missed)
          << name;
      EXPECT_TRUE(p->assumed) << name;
    }
  }
  EXPECT_EQ(claims, 8u);
}

TEST(ValidationReport, AssumedParametersAreTheSystemWithoutItsCalibration) {
  const System shipped = load_system("gb200-nvl72", options(1).catalogs.systems);
  ASSERT_FALSE(shipped.calibration.empty());
  const auto both = helix_costs(shipped);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].name, "assumed parameters");
  EXPECT_TRUE(both[0].system.calibration.empty());
  EXPECT_EQ(both[0].system.device.kernel_cost.value, shipped.device.kernel_cost.value);
  EXPECT_EQ(both[1].name, "measured costs");
  EXPECT_EQ(both[1].system.calibration.fits.size(), shipped.calibration.fits.size());
  EXPECT_EQ(helix_costs(both[0].system).size(), 1u);
}

TEST(ValidationReport, EveryRowOfATableHasTheSameCells) {
  EXPECT_GE(check_tables(document(reports())), 16u);
  const std::string ragged = markdown_table({{"a", "b|c"}, {"1"}, {"-2", "x|y", "z"}, {"", "*_`"}});
  EXPECT_EQ(check_tables(ragged), 1u);
  EXPECT_EQ(ragged,
            "| a | b\\|c |  |\n|---:|---|---|\n| 1 |  |  |\n| -2 | x\\|y | z |\n|  | \\*\\_\\` |  |\n");
}

TEST(ValidationReport, DocumentShowsWhatWasDrawn) {
  const std::string text = document(reports());
  EXPECT_THAT(text, HasSubstr("(pictures/helix.png)"));
  EXPECT_THAT(text, Not(HasSubstr("(pictures/context_parallel.png)")));
  EXPECT_THAT(text, HasSubstr("claims under assumed parameters and measured costs"));
  EXPECT_THAT(text, Not(HasSubstr("\n\n\n")));
  EXPECT_TRUE(text.ends_with('\n') && !text.ends_with("\n\n"));
}

// Two runs, one model of Helix: the whole takes too long for each commit.
TEST(ValidationReport, SameTextForAnyThreads) {
  const Catalogs catalogs = options(1).catalogs;
  Scenario scenario = load_scenario(catalogs.scenarios / "validate_helix.yaml", catalogs);
  scenario.studies = {scenario.studies.back()};
  const auto text = [&](int threads) {
    const std::vector<PaperReport> both{helix_report(scenario, {false, true, threads, {}}),
                                        papers()[1].report(options(threads))};
    return document(both);
  };
  const std::string once = text(1);
  EXPECT_EQ(once, text(1));
  EXPECT_EQ(once, text(3));
}

TEST(ValidationReport, StopsWhenAsked) {
  PaperOptions o = options(1);
  o.steps = WorkSteps([] { return false; });
  for (const Paper& p : papers()) EXPECT_THROW(p.report(o), Cancelled) << p.id;
}

}  // namespace
}  // namespace shardline
