// reports/accuracy.md: its numbers from hand-made calibrations. The file itself: accuracy_report_test.cpp.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <span>
#include <sstream>

#include "calibrate/calibrate.hpp"
#include "tests/calibrate/accuracy_support.hpp"
#include "tests/support/files.hpp"

namespace shardline::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Accuracy, EveryFormHasAGoalAndEveryAxisAMeaning) {
  EXPECT_EQ(accuracy_goals().size(), forms().size());
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.family);
    EXPECT_GT(accuracy_goal(form.family).median, 0);
    for (std::size_t a = 0; a < form.axes.size(); ++a) EXPECT_FALSE(axis_meaning(form, a).empty());
  }
  EXPECT_THROW(accuracy_goal("nothing"), std::logic_error);
}

TEST(Accuracy, BothNumbersMustMeetTheGoal) {
  const AccuracyGoal goal{"", "", 0.05, 0.15};
  EXPECT_EQ(verdict(error(0.05, 0.15), goal), Verdict::met);
  EXPECT_EQ(verdict(error(0.0501, 0.15), goal), Verdict::missed);
  EXPECT_EQ(verdict(error(0.05, 0.1501), goal), Verdict::missed);
  EXPECT_EQ(verdict(FitError{}, goal), Verdict::unknown);
}

TEST(Accuracy, NarrowProductsHaveANarrowerGoal) {
  const AccuracyGoal& wide = accuracy_goal("gemm");
  EXPECT_EQ(&accuracy_goal(made("gemm", {"bf16", "x"}, {})), &wide);
  for (const char* type : {"fp8", "fp8_static", "fp8_block", "nvfp4"}) {
    const AccuracyGoal& g = accuracy_goal(made("gemm", {type, "x"}, {}));
    EXPECT_LT(g.median, wide.median) << type;
    EXPECT_LT(g.p90, wide.p90) << type;
  }
  EXPECT_EQ(&accuracy_goal(made("mla_bmm", {"mla_gen_pre", "fp8", ""}, {})), &accuracy_goal("mla_bmm"));
  const std::vector<System> systems{made_system({made("gemm", {"bf16", "x"}, error(0.028, 0.09)),
                                                 made("gemm", {"fp8", "x"}, error(0.024, 0.081)),
                                                 made("gemm", {"nvfp4", "x"}, error(0.026, 0.07))})};
  // By its own goal fp8 is nearer than nvfp4, though farther from that of the family.
  const std::vector<FamilyAccuracy> families = accuracy_by_family(systems[0].calibration);
  EXPECT_EQ(families.at(0).missed, 2u);
  EXPECT_EQ(families.at(0).worst, &systems[0].calibration.fits[2]);
  EXPECT_EQ(families.at(0).best, &systems[0].calibration.fits[0]);
  const std::string whole = accuracy_report(systems, {}),
                    text = whole.substr(whole.find("## At a glance"));  // behind the goals by framework
  EXPECT_EQ(rows_with(text, "bf16 x").at(0)[8], "met");
  EXPECT_EQ(rows_with(text, "fp8 x").at(0)[8], "MISSED");
  EXPECT_EQ(rows_with(text, "GEMM").at(0)[1], "3/10, 2.5/8");
  EXPECT_THAT(rows_with(text, "made").at(1),
              ElementsAre("made", "GEMM", "nvfp4 x", "2.60/7.00", "-", "2.5/8"));
  EXPECT_THAT(rows_with(text, "GEMM of fp8, fp8_static, fp8_block, nvfp4"),
              ElementsAre(ElementsAre("GEMM of fp8, fp8_static, fp8_block, nvfp4", "2.5", "8")));
}

// Goals of gemm 3/10 and 2.5/8, of moe 8/35.
TEST(Accuracy, TheWorstVariantIsTheOneFarthestFromItsGoal) {
  Calibration c;
  c.fits = {made("moe", {"a"}, error(0.07, 0.30)),         made("gemm", {"bf16", "x"}, error(0.025, 0.07)),
            made("gemm", {"fp8", "x"}, error(0.02, 0.11)), made("gemm", {"nvfp4", "x"}, error(0.01, 0.03)),
            made("gemm", {"fp8", "y"}, FitError{}),        made("moe", {"b"}, error(0.02, 0.05))};
  const std::vector<FamilyAccuracy> families = accuracy_by_family(c);
  ASSERT_EQ(families.size(), 2u);
  EXPECT_STREQ(families[0].goal->family, "gemm");
  EXPECT_EQ(families[0].fits.size(), 4u);
  EXPECT_EQ(families[0].best, &c.fits[3]);
  EXPECT_EQ(families[0].worst, &c.fits[2]);  // by its 90th percentile; the first has the larger median
  EXPECT_EQ(families[0].missed, 1u);
  EXPECT_EQ(families[1].best, &c.fits[5]);
  EXPECT_EQ(families[1].worst, &c.fits[0]);
  EXPECT_EQ(families[1].missed, 0u);
}

// What stands for experts is their error on unseen models; other kernels keep theirs, and so do experts of a
// calibration that did not keep it.
TEST(Accuracy, ExpertsAreHeldToUnseenModels) {
  KernelFit moe = made("moe", {"torch", "bf16", "balanced"}, error(0.03, 0.10));
  EXPECT_EQ(&reported_error(moe), &moe.corrected);
  moe.intervals.inside.rows = 100;
  moe.intervals.family.emplace().error = error(0.09, 0.50);
  moe.intervals.family->fast = error(0.05, 0.12);
  moe.intervals.family->rows = 100;
  moe.intervals.slow = SlowTactics{9, 100, 4, 50, 2.5, 4};
  KernelFit decode = made("attention_decode", {"bf16", "bf16", "x"}, error(0.01, 0.02));
  decode.intervals.family.emplace().error = error(0.04, 0.06);
  EXPECT_EQ(&reported_error(moe), &moe.intervals.family->error);
  EXPECT_EQ(&reported_error(decode), &decode.corrected);
  const std::string whole = accuracy_report(std::vector<System>{made_system({moe, decode})}, {}),
                    text = whole.substr(whole.find("## At a glance"));
  EXPECT_THAT(rows_with(text, "MoE experts").at(0),
              ElementsAre("MoE experts", "8/35", "made", "9.0/50.0 !1"));
  EXPECT_THAT(rows_with(text, "decode attention").at(0),
              ElementsAre("decode attention", "3.5/12", "made", "1.0/2.0"));
  EXPECT_THAT(text, HasSubstr("MoE on unseen models: 9.0/50.0 % on made."));
  EXPECT_THAT(rows_with(text, "MoE experts").at(1),
              ElementsAre("MoE experts", "made", "1", "9.0/50.0", "5.0/12.0"));
  EXPECT_THAT(rows_with(text, "decode attention").at(1),
              ElementsAre("decode attention", "made", "1", "4.0/6.0", "4.0/6.0"));
  // Beside a miss: the error where models are seen.
  EXPECT_THAT(rows_with(text, "made").at(0),
              ElementsAre("made", "MoE experts", "torch bf16 balanced", "9.00/50.00", "3.00/10.00", "8/35"));
  const auto slow = rows_with(text, "made");
  EXPECT_THAT(slow, ::testing::Contains(
                        ElementsAre("made", "torch bf16 balanced", "9.0", "8.0", "2.5", "4.0", "5.0/12.0")));
}

TEST(Accuracy, WhatMissesItsGoalIsMarkedEverywhere) {
  const std::vector<System> systems{made_system(
      {made("gemm", {"bf16", "x"}, error(0.02, 0.08)), made("gemm", {"fp8", "x"}, error(0.0304, 0.09)),
       made("nccl", {"all_reduce"}, error(0.01, 0.02)), made("nccl", {"all_gather"}, FitError{})})};
  const std::string whole = accuracy_report(systems, {}),
                    text = whole.substr(whole.find("## At a glance"));  // behind the goals by framework
  const auto gemm = rows_with(text, "GEMM");
  ASSERT_FALSE(gemm.empty());
  EXPECT_THAT(gemm[0], ElementsAre("GEMM", "3/10, 2.5/8", "made", "2.0/8.0 to 3.0/9.0 !1"));
  EXPECT_THAT(rows_with(text, "NCCL collectives")[0],
              ElementsAre("NCCL collectives", "5/18", "made", "1.0/2.0"));
  EXPECT_EQ(rows_with(text, "MoE experts").size(), 1u);  // its goal alone
  EXPECT_THAT(text, HasSubstr("4 variants: 2 meet their goal, 1 miss it, 1 have no held-out rows:\n"));
  const auto named = rows_with(text, "made");
  ASSERT_GE(named.size(), 1u);
  EXPECT_THAT(named[0], ElementsAre("made", "GEMM", "fp8 x", "3.04/9.00", "-", "2.5/8"));
  ASSERT_EQ(rows_with(text, "fp8 x").size(), 1u);
  EXPECT_EQ(rows_with(text, "fp8 x")[0][8], "MISSED");
  EXPECT_EQ(rows_with(text, "bf16 x")[0][8], "met");
  EXPECT_EQ(rows_with(text, "all_gather")[0][8], "unknown");
}

TEST(Accuracy, WhereAllGoalsAreMetNothingIsMarked) {
  const std::string text =
      accuracy_report(std::vector<System>{made_system({made("gemm", {"bf16", "x"}, error(0.02, 0.08))})}, {});
  EXPECT_THAT(text, HasSubstr("1 variants: 1 meet their goal, 0 miss it.\n"));
  EXPECT_THAT(text, Not(HasSubstr("MISSED")));
}

TEST(Accuracy, RangesAreInPlainUnits) {
  KernelFit nccl = made("nccl", {"all_reduce"}, error(0.01, 0.02));
  nccl.range_low = {1, 8};
  nccl.range_high = {3, 30};
  KernelFit decode = made("attention_decode", {"bf16", "bf16", "x"}, error(0.01, 0.02));
  decode.range_low = {0, 1, -2, 7};         // a group of one lies apart
  decode.range_high = {15.8074, 17, 5, 7};  // 57344, as its six digits tell
  KernelFit moe = made("moe", {"x"}, error(0.01, 0.02));
  moe.range_low = {-2, 4, 0};
  moe.range_high = {10, 14, 7};
  const std::string text = accuracy_report(std::vector<System>{made_system({nccl, decode, moe})}, {});
  const auto last = [&](const std::string& variant, std::size_t count) {
    const auto row = rows_with(text, variant).at(0);
    return std::vector<std::string>(row.end() - static_cast<std::ptrdiff_t>(count), row.end());
  };
  EXPECT_THAT(last("all_reduce", 2), ElementsAre("2 to 8", "256 B to 1 GiB"));
  EXPECT_THAT(last("bf16 bf16 x", 4), ElementsAre("1 to 57344", "2 to 131072", "1 to 32", "128"));
  EXPECT_THAT(last("x", 3), ElementsAre("0.25 to 1024", "16 to 16384", "1 to 128"));
}

/// A table whose errors are known: times are predictions over 1 + e.
MeasurementTable gemm_table(const System& system, const std::string& dtype,
                            const std::vector<double>& errors) {
  std::string text = "m,n,k,dtype,kernel,latency_us\n";
  for (std::size_t i = 0; i < errors.size(); ++i)
    text += std::to_string(64 * (i + 1)) + ",4096,4096," + dtype + ",torch_flow,1\n";
  std::vector<MeasurementTable> tables{parse_measurements("t.csv", text)};
  const Evaluation e = evaluate(system, system.calibration, tables);
  EXPECT_EQ(e.rows.size(), errors.size());
  for (const PredictedRow& r : e.rows) tables[0].median[r.row] = Seconds(r.predicted / (1 + errors[r.row]));
  return tables[0];
}

TEST(AccuracyOfTables, PoolsTheRowsOfAllVariants) {
  MeasuredTables m;
  m.system = load_system("h100-hgx", kCatalog);
  m.hash = "other";
  m.tables = {gemm_table(m.system, "bf16", {0.01, 0.02, 0.03}), gemm_table(m.system, "fp8", {0.04, -0.50})};
  // Errors 1, 2, 3, 4, 50 %: median 3, 90th percentile 4 + 0.6 (50 - 4) = 31.6, bias 2.
  EXPECT_THAT(rows_with(measured_section(std::vector<MeasuredTables>{m}), "GEMM"),
              ElementsAre(ElementsAre("GEMM", "h100-hgx", "new", "5", "0", "0", "3.0/31.6", "50", "+2.0",
                                      "3/10 MISSED")));
  m.borrowed = true;
  m.tables.pop_back();
  EXPECT_THAT(
      rows_with(measured_section(std::vector<MeasuredTables>{m}), "GEMM"),
      ElementsAre(ElementsAre("GEMM", "h100-hgx", "new", "3", "0", "0", "2.0/2.8", "3", "+2.0", "6/18 met")));
  m.hash = m.system.calibration.hash;  // what was fitted is held to no goal
  EXPECT_EQ(rows_with(measured_section(std::vector<MeasuredTables>{m}), "GEMM").at(0).back(), "-");
}

// H200's rows are 10 % longer than H100's fits say, and one of them twice as long.
TEST(AccuracyOfTables, BorrowedFitsAreJudgedByTheRowsOfTheOther) {
  std::vector<MeasuredTables> all(2);
  all[0].system = load_system("h100-hgx", kCatalog);
  all[1].system = load_system("h200-hgx", kCatalog);
  for (MeasuredTables& m : all) m.hash = m.system.calibration.hash;
  System borrower = all[1].system;
  borrower.calibration = all[0].system.calibration;
  all[1].tables = {gemm_table(borrower, "bf16", {-0.1, -0.1, -0.1, -0.5})};
  const std::string text = borrowed_section(all);
  const std::vector<std::string> row{"GEMM", "h200-hgx",  "h100-hgx", "the same",
                                     "4",    "10.0/38.0", "-10.0",    "75"};
  EXPECT_EQ(rows_with(text, "GEMM").at(0), row);
  EXPECT_EQ(rows_with(text, "all").size(), 1u);  // nothing was measured on H100
  all.pop_back();
  EXPECT_EQ(borrowed_section(all), "");
}

// The longest caches of one sequence take a quarter longer than the form says, all else what it says.
TEST(AccuracyOfTables, TheLongestCachesAreJudgedByShorterOnes) {
  MeasuredTables m;
  m.system = load_system("gb200-nvl72", kCatalog);
  const Form& form = *find_form("mla_decode");
  FormContext context;
  ASSERT_TRUE(form.context(std::vector<std::string>{"kernel", "bf16", "fp8", "", ""}, m.system, context));
  std::vector<double> parameters;
  for (const FormParameter& p : form.parameters) parameters.push_back(p.start);
  std::string text = "scope,batch,kv_len,heads_local,dtype_compute,dtype_kv,dtype_gemm,latency_us\n";
  for (int batch = 1; batch <= 256; batch *= 2) {
    for (int keys = 32; keys <= 131072; keys *= 2) {
      for (const int heads : {1, 8, 16, 64}) {
        const double x[] = {double(batch), double(keys), double(heads)};
        const double slower = batch == 1 && keys == 131072 ? 1.25 : 1;
        text += std::to_string(batch) + "," + std::to_string(keys) + "," + std::to_string(heads) +
                ",bf16,fp8,," +
                std::to_string(1e6 * slower * form.seconds(std::span(x), context, parameters)) + "\n";
      }
    }
  }
  std::string::size_type at = 0;  // the scope comes first in each row
  while ((at = text.find('\n', at)) != std::string::npos && at + 1 < text.size())
    text.insert(++at, "kernel,");
  m.tables = {parse_measurements("mla.csv", text)};
  const std::string found = longest_section(std::vector<MeasuredTables>{m}, 2);
  const auto row = rows_with(found, "gb200-nvl72").at(0);
  EXPECT_EQ(row[1], "mla_decode");
  EXPECT_EQ(row[4], "1/4");
  EXPECT_THAT(row[5], ::testing::StartsWith("-20 [-20, -20] 4"));
  EXPECT_THAT(row[6], HasSubstr("0 ["));
  EXPECT_EQ(longest_section({}), "");
  EXPECT_EQ(found, longest_section(std::vector<MeasuredTables>{m}, 1));
}

// One row in four is 2 % slower than the others of its tile, and of 1 to 4 rows one takes twice their time.
TEST(AccuracyOfTables, GoalsBelowTheScatterOfTheTableAreSaid) {
  std::vector<MeasuredTables> all(2);
  // Whose fit of this kernel misses its goal.
  for (MeasuredTables& m : all) m.system = load_system("gb200-nvl72", kCatalog);
  all[0].system.name = "h100-hgx";
  all[1].system.name = "h100-hgx.other";
  const auto table = [](double factor, double outlier) {
    std::string text = "m,n,k,dtype,kernel,latency_us\n";
    for (int n = 512; n <= 4096; n *= 2) {
      for (int m = 1; m <= 4; ++m)
        text += fmt::format("{},{},4096,bf16,torch_flow,{}\n", m, n, factor * (m == 3 ? outlier : 1) * 10);
      for (int m = 33; m <= 48; m += 5)
        text += fmt::format("{},{},4096,bf16,torch_flow,{}\n", m, n, factor * (m == 33 ? 10.2 : 10));
    }
    return parse_measurements("t.csv", text);
  };
  all[0].tables = {table(1, 2)};
  all[1].tables = {table(1.5, 1)};
  const std::string text = scatter_section(all);
  // Of 32 rows four are 50 % and four 1.96 % off, 24 not at all: 1.96 + 0.9 (50 - 1.96) = 45.2.
  const auto first = rows_with(text, "h100-hgx");
  ASSERT_EQ(first.size(), 2u) << text;
  EXPECT_EQ(first[0][1], "bf16 torch_flow");
  EXPECT_EQ(first[0][2], "32");
  EXPECT_EQ(first[0][3], "0.0/45.2");
  EXPECT_EQ(first[0][7], "below the scatter");
  EXPECT_EQ(first[0].back(), "missed: these rows cannot meet it");
  const auto other = rows_with(text, "h100-hgx.other");
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0][3], "0.0/1.8");
  EXPECT_EQ(other[0][7], "above");
  EXPECT_EQ(other[0].back(), "missed: could be better");
  // The same shapes in both tables, apart from the factor of 1.5: four of 32 are off.
  EXPECT_THAT(first[1], ElementsAre("h100-hgx", "h100-hgx.other", "32", "0.667", "0.0/45.0"));
  EXPECT_EQ(scatter_section({}), "");
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(AccuracyOfTables, FoldersAreMatchedWithSystemsByTheirHash) {
  const std::filesystem::path folder = std::filesystem::path(SHARDLINE_BINARY_DIR) / "accuracy";
  std::filesystem::remove_all(folder);
  const std::string table = "m,n,k,dtype,kernel,latency_us\n64,64,64,bf16,torch_flow,5\n";
  for (const char* sub : {"known", "strange"}) {
    std::filesystem::create_directories(folder / sub);
    std::ofstream(folder / sub / "gemm.csv") << table << (*sub == 's' ? "1,1,1,bf16,torch_flow,5\n" : "");
  }
  std::vector<System> own{load_system("h100-hgx", kCatalog), load_system("h200-hgx", kCatalog)};
  const auto read = [&](std::vector<std::string> arguments) {
    std::vector<std::string> notes;
    const auto out = measured_tables(arguments, kCatalog, own, notes);
    return std::pair{out, notes};
  };
  EXPECT_THAT(error_of([&] { read({folder.string()}); }),
              HasSubstr("holds tables that a shipped calibration was fitted to\nname other tables by their "
                        "system: --measurements SYSTEM=FOLDER\n"));
  own[1].calibration.hash = hash_of(std::vector<std::string>{table});
  const auto [found, notes] = read({folder.string()});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].system.name, "h200-hgx");
  EXPECT_TRUE(found[0].fitted());
  EXPECT_EQ(found[0].tables.size(), 1u);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("strange: left out"));

  const std::string strange = "h100-hgx=" + (folder / "strange").string();
  const auto [both, none] = read({folder.string(), strange});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].system.name, "h100-hgx");  // by name
  EXPECT_FALSE(both[0].fitted());
  EXPECT_EQ(both[0].tables[0].size(), 2u);
  EXPECT_EQ(error_of([&] { read({strange, strange}); }), "measurements of h100-hgx are given twice\n");
  EXPECT_THAT(error_of([&] { read({"h100-hgy=" + folder.string()}); }), HasSubstr("did you mean h100-hgx?"));
  EXPECT_THAT(error_of([&] { read({"h100-hgx=" + folder.string()}); }), HasSubstr("no .csv files in "));
  EXPECT_THAT(error_of([&] { read({(folder / "nowhere").string()}); }), HasSubstr("cannot read the folder "));
}

TEST(AccuracyOfTables, BorrowedCalibrationsAreNamedAndCountAsNobodysOwn) {
  const std::filesystem::path folder = std::filesystem::path(SHARDLINE_BINARY_DIR) / "borrowed";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "calibrations");
  std::filesystem::create_directories(folder / "catalog");
  std::filesystem::copy(kCatalog.parent_path() / "calibrations/a100-sxm.yaml", folder / "calibrations");
  const std::string text = testing::read_file(kCatalog / "a100-sxm.yaml");
  const auto write = [&](const std::string& name, const std::string& calibration) {
    const std::string body = text.substr(text.find('\n'), text.find("\ncalibration:") - text.find('\n') + 1);
    std::ofstream(folder / "catalog" / (name + ".yaml")) << "name: " << name << body << calibration;
  };
  write("a100-sxm", "calibration: a100-sxm\n");
  write("b", "calibration: a100-sxm\n");
  write("c", "");
  const std::vector<System> own = calibrated_systems(folder / "catalog");
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own[0].name, "a100-sxm");
  const auto borrowed = borrowed_calibrations(folder / "catalog", own);
  ASSERT_EQ(borrowed.size(), 1u);
  EXPECT_THAT(accuracy_report(own, borrowed),
              HasSubstr("\nb borrows the calibration of a100-sxm: its own errors are not known.\n"));
  std::ofstream(folder / "gemm.csv") << "m,n,k,dtype,kernel,latency_us\n64,64,64,bf16,sglang,5\n";
  std::vector<std::string> notes;
  const std::vector<std::string> argument{"b=" + folder.string()};
  EXPECT_TRUE(measured_tables(argument, folder / "catalog", own, notes).at(0).borrowed);
  const std::vector<std::string> without{"c=" + folder.string()};
  EXPECT_EQ(error_of([&] { measured_tables(without, folder / "catalog", own, notes); }),
            "system c has no calibration: make one with shardline calibrate\n");
}

}  // namespace
}  // namespace shardline::cli
