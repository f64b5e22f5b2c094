// Published tables: what is read from them, what is left out of the error, and the arithmetic of the report
// on invented times. The last tests use the simulator.
#include "calibrate/validate/context_report.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

#include "calibrate/validate/context_model.hpp"
#include "models/model/catalog.hpp"
#include "planner/search/evaluate.hpp"
#include "sim/base/cancel.hpp"
#include "tests/planner/support.hpp"
#include "tests/support/bad_input.hpp"

namespace shardline {
namespace {

using Column = TruthColumn;
using Id = TruthTableId;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Catalogs catalogs() {
  return {source_path("models/catalog"), source_path("hardware/catalog"), source_path("scenarios")};
}

ContextTruth shipped() {
  return load_context_truth(source_path("calibrate/validate/context_parallel.yaml"), catalogs());
}

ContextTruth parse(const std::string& text) { return parse_context_truth("t.yaml", text, catalogs()); }

std::string table7(const std::string& rows) {
  return "table7:\n  system: gtt\n  tokens: 131072\n  unit: ms\n  rows:\n" + rows;
}

std::vector<std::string> fitted(const ContextTruth& truth) {
  std::vector<std::string> out;
  for (const TruthTable& table : truth.tables) {
    for (const TruthRow& row : table.rows) {
      for (const Column c : table.columns) {
        if (row.fitted(c))
          out.push_back(fmt::format("{} {} T={} B={} {}", to_string(table.id), to_string(row.plan),
                                    row.tokens, row.batch, to_string(c)));
      }
    }
  }
  return out;
}

// Every time is `factor` times what the shipped file publishes for that measurement, else `otherwise`.
ContextTimes scaled(const ContextTruth& truth, double factor, Seconds otherwise) {
  const auto find = [truth, factor, otherwise](Id id, const TruthRow& key, Column c) {
    for (const TruthTable& table : truth.tables) {
      if ((id == Id::table4 || id == Id::table5 || id == Id::table8) && table.id != id) continue;
      for (const TruthRow& row : table.rows) {
        if (row.time(c) && measurement(table.id, row, c) == measurement(id, key, c))
          return *row.time(c) * factor;
      }
    }
    return otherwise;
  };
  const auto row = [](const std::string& system, const ContextPlan& p, long long cached, long long tokens,
                      int batch) {
    TruthRow r;
    r.system = system;
    r.plan = p;
    r.cached = cached;
    r.tokens = tokens;
    r.batch = batch;
    return r;
  };
  ContextTimes t;
  t.ttft = [=](const std::string& s, const ContextPlan& p, long long cached, long long fresh,
               bool persistent) {
    const Column c = !persistent ? Column::ttft : p.pass_q ? Column::pass_q : Column::pass_kv;
    return find(persistent ? Id::table4 : Id::table6, row(s, p, cached, fresh, 1), c);
  };
  t.ring_parts = [=](const std::string& s, const ContextPlan& p, long long cached, long long fresh) {
    const TruthRow r = row(s, p, cached, fresh, 1);
    return RingParts{find(Id::table5, r, Column::attn), find(Id::table5, r, Column::send_recv),
                     find(Id::table5, r, Column::all2all)};
  };
  t.ttit = [=](const std::string& s, const ContextPlan& p, long long context, int batch) {
    return find(Id::table6, row(s, p, 0, context, batch), Column::ttit);
  };
  t.decode_parts = [=](const std::string& s, const ContextPlan& p, long long context, int batch) {
    const TruthRow r = row(s, p, 0, context, batch);
    return DecodeParts{find(Id::table8, r, Column::attn_op), find(Id::table8, r, Column::attn_loop),
                       find(Id::table8, r, Column::send_recv), find(Id::table8, r, Column::all2all),
                       find(Id::table8, r, Column::whole_pass_q)};
  };
  t.prefill_flops = [](long long fresh) { return Flops(static_cast<double>(fresh)); };
  return t;
}

TEST(ContextTruth, BadInput) {
  ::shardline::testing::expect_messages(
      "truth", ".yaml", 20,
      [](const std::string& name, const std::string& text) { parse_context_truth(name, text, catalogs()); });
}

TEST(ContextTruth, Parallelism) {
  for (const char* text : {"TP8", "TP32", "CP4xTP8", "CP8xTP4", "CP1xTP8", "TP1024"}) {
    ASSERT_TRUE(parse_parallelism(text)) << text;
  }
  EXPECT_EQ(parse_parallelism("CP8xTP4")->cp, 8);
  EXPECT_EQ(parse_parallelism("CP8xTP4")->tpa, 4);
  EXPECT_EQ(to_string(*parse_parallelism("CP1xTP8")), "TP8");
  EXPECT_EQ(to_string(*parse_parallelism("CP4xTP8")), "CP4xTP8");
  for (const char* text : {"", "TP", "TP0", "TP08", "TP8 ", "tp8", "CP4", "CP4x", "CPxTP8", "CP4XTP8",
                           "TP8xCP4", "CP4xTP8x", "TP1025", "CP2+TP8", "TP-8", "CP-1xTP8"}) {
    EXPECT_FALSE(parse_parallelism(text)) << text;
  }
}

TEST(ContextTruth, ShippedFileHoldsThePaper) {
  const ContextTruth truth = shipped();
  ASSERT_EQ(truth.tables.size(), 6u);
  const std::size_t rows[] = {3, 6, 4, 4, 3, 4};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(truth.tables[i].rows.size(), rows[i]) << i;
  const TruthTable& t4 = *truth.find(Id::table4);
  EXPECT_EQ(t4.rows[1].system, "h100-gtt");
  EXPECT_EQ(t4.rows[1].cached, 121600);
  EXPECT_DOUBLE_EQ(t4.rows[1].time(Column::pass_q)->value, 1.30201);
  const TruthTable& t5 = *truth.find(Id::table5);
  EXPECT_EQ(t5.rows[0].cached, 128000 - 3200);  // from the miss rate
  EXPECT_EQ(t5.rows[3].cached, 128000 - 12800);
  EXPECT_FALSE(t5.rows[0].time(Column::all2all));
  EXPECT_TRUE(t5.rows[3].plan.pass_q);
  EXPECT_DOUBLE_EQ(t5.rows[3].time(Column::all2all)->value, 1023e-6);
  EXPECT_EQ(truth.find(Id::table7)->rows[0].plan.cp, 1);
  EXPECT_EQ(truth.find(Id::table7)->rows[2].tokens, 131072);  // shared by the table
  EXPECT_EQ(truth.find(Id::headline)->rows[2].tokens, 1048576);
  EXPECT_EQ(truth.figures.size(), 7u);
  EXPECT_TRUE(truth.gti_claim);
  EXPECT_EQ(truth.tipping_tokens, 6400);
  EXPECT_THAT(truth.not_compared,
              ElementsAre("paper", "systems", "setup", "headline.gpus_max", "headline.gemm_flops_1m",
                          "headline.attn_flops_1m", "table4.claims.tie_at_5pct",
                          "table4.claims.exposed_below", "table4.claims.eq1_threshold"));
}

TEST(ContextTruth, CalibrationMarks) {
  EXPECT_THAT(fitted(shipped()),
              ElementsAre("headline CP8xTP8 T=131072 B=1 ttft", "table4 CP4xTP8 T=1280 B=1 pass_kv",
                          "table4 CP4xTP8 T=1280 B=1 pass_q", "table4 CP4xTP8 T=128000 B=1 pass_kv",
                          "table5 CP4xTP8 T=3200 B=1 send_recv", "table5 CP4xTP8 T=3200 B=1 attn",
                          "table5 CP4xTP8 T=3200 B=1 send_recv", "table5 CP4xTP8 T=3200 B=1 attn",
                          "table5 CP4xTP8 T=3200 B=1 all2all", "table5 CP4xTP8 T=12800 B=1 send_recv",
                          "table5 CP4xTP8 T=12800 B=1 send_recv", "table5 CP4xTP8 T=12800 B=1 all2all",
                          "table6 TP8 T=8192 B=1 ttft", "table6 TP8 T=131072 B=1 ttft",
                          "table6 TP8 T=131072 B=1 ttit", "table7 TP8 T=131072 B=1 ttft",
                          "table7 TP8 T=131072 B=1 ttit", "table7 TP16 T=131072 B=1 ttit",
                          "table8 TP8 T=131072 B=1 attn_op", "table8 TP8 T=131072 B=1 attn_loop",
                          "table8 TP8 T=131072 B=1 whole_pass_q", "table8 CP2xTP8 T=131072 B=1 attn_op",
                          "table8 CP2xTP8 T=131072 B=1 send_recv", "table8 CP2xTP8 T=131072 B=1 all2all",
                          "table8 CP4xTP8 T=131072 B=1 attn_op", "table8 CP2xTP8 T=32768 B=4 send_recv",
                          "table8 CP2xTP8 T=32768 B=4 all2all"));
}

// A file without marks gets those of the shipped one, in whichever table it prints the measurement.
TEST(ContextTruth, FittedMeasurementsAreMarkedInUserFiles) {
  ContextTruth truth = parse(
      "table6:\n  system: gtt\n  unit: s\n  rows:\n"
      "    - {tokens: 8192, parallelism: CP1xTP8, ttft: 1.8, ttit: 0.0445}\n"
      "    - {tokens: 32768, parallelism: TP8, ttft: 7, ttit: 0.045}\n"
      "    - {tokens: 131072, parallelism: CP8xTP8, ttft: 6}\n"
      "table7:\n  system: h100-gti\n  tokens: 131072\n  unit: ms\n  rows:\n    - {parallelism: TP8, ttft: "
      "42010}\n"
      "table8:\n  system: gtt\n  unit: us\n  rows:\n"
      "    - {batch: 4, context: 32768, parallelism: CP2xTP8, attn_op: 30, send_recv: 33, all2all: 70}\n"
      "    - {batch: 1, context: 131072, parallelism: CP4xTP8, send_recv: 100, all2all: 80}\n");
  EXPECT_TRUE(fitted(truth).empty());
  mark_calibration(truth, shipped());
  EXPECT_THAT(fitted(truth),
              ElementsAre("table6 TP8 T=8192 B=1 ttft", "table6 CP8xTP8 T=131072 B=1 ttft",
                          "table8 CP2xTP8 T=32768 B=4 send_recv", "table8 CP2xTP8 T=32768 B=4 all2all",
                          "table8 CP4xTP8 T=131072 B=1 attn_op"));
}

TEST(ContextTruth, RowsOfEveryKind) {
  const ContextTruth truth = parse(
      "table4:\n  system: gtt\n  unit: s\n  rows:\n"
      "    - {P: 123840, T: 4160, miss_rate: 0.0325, parallelism: CP4xTP8, pass_kv: null, pass_q: 1.2}\n"
      "    - {P: 1000, T: 1000, parallelism: CP8xTP4, pass_kv: 1}\n"
      "table5:\n  system: gti\n  parallelism: CP2xTP8\n  unit: ms\n  rows:\n"
      "    - {P: 7, T: 93, variant: pass-Q, attn: 1, calibration: true}\n" +
      table7("    - {parallelism: CP4xTP8, ttft: 1, ttit: 2}\n    - {parallelism: TP32, batch: 2, ttit: 2}\n"
             "    - {parallelism: CP4xTP8, variant: pass-Q, ttft: 1}\n"));
  const TruthTable& t4 = *truth.find(Id::table4);
  EXPECT_FALSE(t4.rows[0].time(Column::pass_kv));
  EXPECT_EQ(t4.rows[1].plan.tpa, 4);
  const TruthRow& ring = truth.find(Id::table5)->rows[0];
  EXPECT_EQ(ring.system, "h100-gti");
  EXPECT_EQ(ring.cached, 7);
  EXPECT_TRUE(ring.fitted(Column::attn) && ring.fitted(Column::send_recv));
  EXPECT_EQ(truth.find(Id::table7)->rows[1].batch, 2);
  EXPECT_EQ(truth.find(Id::table6), nullptr);
  EXPECT_TRUE(truth.figures.empty());
}

TEST(ContextTruth, ReadmeExampleParses) {
  const std::string readme = ::shardline::testing::read_file(source_path("calibrate/validate/README.md"));
  const std::size_t begin = readme.find("```yaml\n") + 8;
  std::string text = readme.substr(begin, readme.find("```\n", begin) - begin);
  text.replace(text.find("mine/h100.yaml"), 14, "h100-gtt");  // the reader's own file
  const ContextTruth truth = parse(text);
  EXPECT_EQ(truth.tables.size(), 6u);
  EXPECT_FALSE(context_report(truth, simulated_times(catalogs())).values.empty());
}

TEST(ContextReport, ErrorSummary) {
  const auto value = [](double published, double ours, Standing s) {
    return ComparedValue{Id::table6,    0, Column::ttft,      Seconds(published),
                         Seconds(ours), s, GoalGroup::cp_ttft};
  };
  const std::vector<ComparedValue> values{
      value(1, 1.01, Standing::held_out), value(1, 0.96, Standing::held_out),
      value(0, 0, Standing::held_out),    value(2, 2.04, Standing::held_out),
      value(1, 1.1, Standing::excluded),  value(4, 4.4, Standing::held_out),
      value(1, 3, Standing::calibration), value(1, 5, Standing::repeated)};
  const ErrorSummary s =
      error_summary(values, [](const ComparedValue& v) { return v.standing == Standing::held_out; });
  EXPECT_EQ(s.count, 4u);  // nothing to send has no error
  EXPECT_NEAR(s.median, 0.03, 1e-12);
  EXPECT_NEAR(s.largest, 0.1, 1e-12);
  EXPECT_EQ(error_summary(values, [](const ComparedValue&) { return false; }).count, 0u);
  const auto goals = goal_results(values);
  ASSERT_EQ(goals.size(), 1u);
  EXPECT_EQ(goals[0].held_out.count, 4u);
  EXPECT_EQ(goals[0].with_excluded.count, 5u);
  EXPECT_NEAR(goals[0].with_excluded.median, 0.04, 1e-12);
  EXPECT_NEAR(goals[0].excluded.median, 0.1, 1e-12);
  EXPECT_NEAR(goals[0].calibration.largest, 2, 1e-12);
  EXPECT_FALSE(goals[0].met());
}

TEST(ContextReport, GoalsAreMetUpToTheirEdge) {
  GoalResult r;
  r.group = GoalGroup::cp_ttft;
  EXPECT_FALSE(r.met());  // nothing was predicted
  r.held_out = {4, 0.01, 0.025};
  EXPECT_TRUE(r.met());
  r.held_out = {4, 0.0101, 0.025};
  EXPECT_FALSE(r.met());
  r.held_out = {4, 0.01, 0.0251};
  EXPECT_FALSE(r.met());
}

// Every predicted value is 3 % high: so is every error, and the order of the variants is the paper's.
TEST(ContextReport, InventedTimes) {
  const ContextTruth truth = shipped();
  const ContextReport report = context_report(truth, scaled(truth, 1.03, Seconds(7)));
  std::size_t count[4] = {};
  for (const ComparedValue& v : report.values) {
    ++count[static_cast<std::size_t>(v.standing)];
    // The times come from the first table that has the measurement; table 7 prints another TTIT of CP2.
    const bool other = v.table == Id::table7 && v.row == 1 && v.column == Column::ttit;
    const double expected = other ? 1.03 * 66.63 / 60.23 - 1 : 0.03;
    EXPECT_NEAR(v.error().value_or(0.03), expected, 1e-12);
  }
  // 3 headline, 12 + 10 + 8 + 6 + 15 of tables 4 to 8; TP8 sends nothing in table 8.
  EXPECT_EQ(report.values.size(), 54u);
  EXPECT_EQ(count[static_cast<std::size_t>(Standing::calibration)], 25u);
  EXPECT_EQ(count[static_cast<std::size_t>(Standing::excluded)],
            4u);  // T = 6400 twice, TTIT of CP2 in table 6
  EXPECT_EQ(count[static_cast<std::size_t>(Standing::repeated)], 1u);  // CP2's TTFT of tables 6 and 7
  ASSERT_EQ(report.winners.size(), 6u);
  for (const WinnerRow& w : report.winners) {
    EXPECT_EQ(w.published_pass_kv, w.our_pass_kv);
    EXPECT_EQ(w.regret, 0);
  }
  EXPECT_TRUE(report.winners[0].calibration);
  EXPECT_FALSE(report.winners[5].calibration);
  EXPECT_EQ(report.scaling.size(), 4u);
  for (const GoalResult& r : goal_results(report.values)) {
    EXPECT_NEAR(r.calibration.count == 0 ? 0.03 : r.calibration.largest, 0.03, 1e-12);
    EXPECT_EQ(r.excluded.count, r.group == GoalGroup::table4 || r.group == GoalGroup::ttit ? 2u : 0u);
  }
}

TEST(ContextReport, RegretIsThePublishedLossOfOurChoice) {
  const ContextTruth truth = parse(
      "table4:\n  system: gtt\n  parallelism: CP4xTP8\n  unit: ms\n  rows:\n"
      "    - {P: 1000, T: 1000, pass_kv: 100, pass_q: 104}\n    - {P: 0, T: 2000, pass_kv: 100, pass_q: "
      "100}\n");
  ContextTimes times = scaled(truth, 1, Seconds(1));
  times.ttft = [](const std::string&, const ContextPlan& p, long long, long long, bool persistent) {
    EXPECT_TRUE(persistent);
    return Seconds(p.pass_q ? 0.090 : 0.095);
  };
  const ContextReport report = context_report(truth, times);
  ASSERT_EQ(report.winners.size(), 2u);
  EXPECT_TRUE(report.winners[0].published_pass_kv);
  EXPECT_FALSE(report.winners[0].our_pass_kv);
  EXPECT_NEAR(report.winners[0].regret, 0.04, 1e-12);
  EXPECT_NEAR(report.winners[1].regret, 0, 1e-12);  // a tie
  ASSERT_EQ(report.crossings.size(), 1u);
  EXPECT_EQ(report.crossings[0].total, 2000);
  EXPECT_TRUE(report.crossings[0].tokens.empty());
}

TEST(ContextReport, Crossings) {
  const auto line = [](long long at) {
    return [at](long long t) { return static_cast<double>(t - at) + 0.5; };
  };
  EXPECT_THAT(crossings(line(6400), 128000, 8), ElementsAre(6400));
  EXPECT_THAT(crossings(line(6401), 128000, 8), ElementsAre(6408));
  EXPECT_THAT(crossings(line(128000), 128000, 8), ElementsAre(128000));
  EXPECT_TRUE(crossings(line(1), 128000, 8).empty());
  EXPECT_TRUE(crossings(line(6400), 4, 8).empty());
  const auto twice = [](long long t) {
    return static_cast<double>(t - 2000) * static_cast<double>(50000 - t);
  };
  EXPECT_THAT(crossings(twice, 128000, 8), ElementsAre(2008, 50000));
}

TEST(ContextReport, FiguresFollowFromTimes) {
  const ContextTruth truth = shipped();
  ContextTimes times = scaled(truth, 1, Seconds(7));
  times.prefill_flops = [](long long fresh) { return Flops(4.94e12 * static_cast<double>(fresh)); };
  std::map<TruthFigure::Kind, double> ours;
  for (const ComparedFigure& f : context_report(truth, times).figures) ours[f.published.kind] = f.ours;
  const double rate = ours[TruthFigure::Kind::achieved_rate];
  EXPECT_NEAR(ours[TruthFigure::Kind::parallel_efficiency], rate / 540, 1e-12);
  EXPECT_NEAR(ours[TruthFigure::Kind::mfu], rate / 800, 1e-12);
  EXPECT_NEAR(ours[TruthFigure::Kind::tp16_over_cp2], 29917.0 / 21042 - 1, 1e-12);
  EXPECT_EQ(ours.count(TruthFigure::Kind::standalone_rate), 0u);  // only a divisor
  EXPECT_NEAR(rate, 4.94e18 / (77.0 * 128) / 1e12, 1e-9);
}

TEST(ContextReport, ImpossiblePlansAreFaultsOfTheirRows) {
  const ContextTruth truth =
      parse(table7("    - {parallelism: TP256, ttft: 1, ttit: 1}\n"
                   "    - {parallelism: TP8, ttft: 42010}\n"
                   "    - {parallelism: CP32xTP8, ttft: 1}\n"));
  try {
    context_report(truth, simulated_times(catalogs()));
    FAIL() << "no error";
  } catch (const UserError& e) {
    ASSERT_EQ(e.diagnostics().size(), 2u);
    EXPECT_EQ(e.diagnostics()[0].where.line, 6);
    EXPECT_EQ(e.diagnostics()[1].where.line, 8);
    EXPECT_THAT(e.diagnostics()[1].what, HasSubstr("GPU count 256 exceeds the system's 128"));
  }
}

TEST(ContextReport, StopsWhenAsked) {
  const ContextTruth truth = shipped();
  EXPECT_THROW(context_report(truth, scaled(truth, 1, Seconds(1)), [] { return false; }), Cancelled);
}

// The shipped figures against the simulator. Goals that are missed are listed, so that none changes unseen.
TEST(ContextReport, SimulatorAgainstThePaper) {
  const ContextTruth truth = shipped();
  const ContextReport report = context_report(truth, simulated_times(catalogs()));
  std::vector<std::string> missed;
  for (const GoalResult& r : goal_results(report.values)) {
    if (!r.met()) missed.emplace_back(goal(r.group).name);
    if (r.group != GoalGroup::ttit) {
      EXPECT_LE(r.held_out.largest, goal(r.group).largest) << goal(r.group).name;
    }
    if (r.group == GoalGroup::table4 || r.group == GoalGroup::ttit) {
      EXPECT_LE(r.excluded.largest, goal(r.group).excluded_largest) << goal(r.group).name;
    }
  }
  EXPECT_THAT(missed, ElementsAre("Table 5", "TTIT", "Table 8, parts"));
  for (const WinnerRow& w : report.winners) EXPECT_EQ(w.regret, 0);
  ASSERT_EQ(report.crossings.size(), 1u);
  ASSERT_FALSE(report.crossings[0].tokens.empty());
  const double rate = static_cast<double>(report.crossings[0].tokens.back()) / 128000;
  EXPECT_GE(rate, 0.04);
  EXPECT_LE(rate, 0.06);
}

// Row-wise FP8 scales activations while it serves: where kernels were measured, each of the two products of a
// layer's network costs what the scenarios of this paper say, not what a static checkpoint's would.
TEST(ContextModel, FeedForwardNetworksScaleWhileTheyServe) {
  const System system = catalog_system("h100-gtt-measured");
  const Model llama = load_model("llama-3.1-405b", source_path("models/catalog"));
  const auto ttit = [&](Dtype ffn) {
    Precision p{Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, ffn, Dtype::fp8};
    Case c = make_case(llama, system, p, 131'072, 16, Routing{});
    c.kernels = {true, true};
    return Evaluator(c).simulate(parse_plan("tensor:tpa=8,tpf=8,batch=1"));
  };
  const ContextModel model(llama, system);
  EXPECT_DOUBLE_EQ(model.ttit({}, 131'072, 1).value, ttit(Dtype::fp8_dynamic).value);
  EXPECT_GT(model.ttit({}, 131'072, 1).value, 1.02 * ttit(Dtype::fp8).value);
}

}  // namespace
}  // namespace shardline
