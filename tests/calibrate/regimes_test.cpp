// [F7] Slow tactics: whole curves that lie far above the rest.
#include "calibrate/regimes.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "calibrate/calibrate.hpp"
#include "calibrate/withhold.hpp"
#include "hardware/machine/system.hpp"

namespace shardline {
namespace {

const System& h100() {
  static const System system = load_system("h100-hgx", SHARDLINE_SOURCE_DIR "/hardware/catalog");
  return system;
}

struct Experts {
  const Form* form = find_form("moe");
  FormContext context;
  std::vector<double> truth{18, 0.7, 0.85, 0.5, 0.3, 100, 60, 0.5, 0.6};
  FitRows rows;

  Experts() {
    EXPECT_TRUE(
        form->context(std::vector<std::string>{"torch_flow_cutlass", "bf16", "balanced"}, h100(), context));
    rows.width = form->numbers.size();
  }
  /// Curves of three models over tokens; `factor` says how much slower one with these numbers is.
  template <class Factor>
  void fill(Factor factor) {
    const double models[][4] = {{4096, 1536, 8, 128}, {7168, 2048, 8, 256}, {2048, 768, 8, 64}};
    for (const auto& m : models) {
      for (const double tp : {1., 2., 4.}) {
        for (const double ep : {1., 8.}) {
          for (double tokens = 1; tokens <= 16384; tokens *= 4) {
            const std::vector<double> x{tokens, m[0], m[1], m[2], m[3], tp, ep};
            rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
            rows.seconds.push_back(form->seconds(x, context, truth) * factor(x));
          }
        }
      }
    }
  }
};

// Two curves of eighteen: one as slow as tactics are, one only as far off as fast rows are.
double two_curves(const std::vector<double>& x) {
  if (x[1] == 7168 && x[5] == 2 && x[6] == 8) return 3;
  return x[1] == 4096 && x[5] == 4 && x[6] == 1 ? 1.3 : 1;
}

TEST(FitRegimes, F7SlowCurvesDoNotMoveTheFit) {
  Experts fast, mixed;
  fast.fill([](const auto&) { return 1.; });
  mixed.fill(two_curves);
  const Regimes all = fit_regimes(*fast.form, fast.context, fast.rows);
  EXPECT_TRUE(all.slow.empty());
  EXPECT_EQ(all.fast.size(), fast.rows.size());
  const Regimes r = fit_regimes(*mixed.form, mixed.context, mixed.rows);
  ASSERT_EQ(r.slow.size(), 8u);  // of one curve, all of them
  for (const std::size_t i : r.slow)
    EXPECT_DOUBLE_EQ(two_curves({mixed.rows.x(i).begin(), mixed.rows.x(i).end()}), 3);
  EXPECT_EQ(r.fast.size() + r.slow.size(), mixed.rows.size());
  // As if the slow rows were not there: the same fit, to the bit.
  EXPECT_EQ(r.fit.parameters, fit(*mixed.form, mixed.context, mixed.rows.only(r.fast)).parameters);
  const FitResult together = fit(*mixed.form, mixed.context, mixed.rows);
  const auto off = [&](const std::vector<double>& p) {
    double sum = 0;
    for (std::size_t i = 0; i < fast.rows.size(); ++i)
      sum += std::abs(std::log(fast.form->seconds(fast.rows.x(i), fast.context, p) / fast.rows.seconds[i]));
    return sum;
  };
  EXPECT_LT(off(r.fit.parameters), 0.7 * off(together.parameters));
}

TEST(FitRegimes, F7SaysHowOftenAndByHowMuch) {
  Experts e;
  e.fill(two_curves);
  const Regimes r = fit_regimes(*e.form, e.context, e.rows);
  const auto slow = slow_tactics(*e.form, e.context, e.rows, r, {});
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rows, 8u);
  EXPECT_EQ(slow->of_rows, 144u);
  EXPECT_EQ(slow->curves, 1u);
  EXPECT_EQ(slow->of_curves, 18u);
  EXPECT_NEAR(slow->median, 3, 0.2);
  EXPECT_GE(slow->p90, slow->median);
  EXPECT_FALSE(slow_tactics(*e.form, e.context, e.rows, {}, {}));
}

// What all rows have in common is the machine's, not a tactic's.
TEST(FitRegimes, F7AFactorOfAllRowsIsNoTactic) {
  Experts e;
  e.fill([](const auto&) { return 3.; });
  const Regimes r = fit_regimes(*e.form, e.context, e.rows);
  EXPECT_TRUE(r.slow.empty());
  EXPECT_EQ(r.fit.parameters, fit(*e.form, e.context, e.rows).parameters);
}

// No other form's kernels come in curves that are tuned one by one.
TEST(FitRegimes, F7OtherFormsHaveOneRegime) {
  const Form& nccl = *find_form("nccl");
  EXPECT_TRUE(tuned_curve(nccl, std::vector<double>{8, 1024}).empty());
  EXPECT_EQ(tuned_curve(*find_form("moe"), std::vector<double>{64, 4096, 1536, 8, 128, 2, 4}),
            (std::vector<double>{4096, 1536, 8, 128, 2, 4}));
  FormContext context;
  ASSERT_TRUE(nccl.context(std::vector<std::string>{"all_reduce"}, h100(), context));
  FitRows rows;
  rows.width = 2;
  std::vector<double> p;
  for (const FormParameter& one : nccl.parameters) p.push_back(one.start);
  for (double gpus = 2; gpus <= 8; gpus *= 2) {
    for (double bytes = 256; bytes <= 1 << 28; bytes *= 2) {
      const std::vector<double> x{gpus, bytes};
      rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
      rows.seconds.push_back(nccl.seconds(x, context, p) * (gpus == 2 ? 3 : 1));
    }
  }
  EXPECT_TRUE(fit_regimes(nccl, context, rows).slow.empty());
}

// Errors of withheld models, all and fast, are kept with the slow tactics and read back.
TEST(FitRegimes, F7IsKeptWithTheFit) {
  Experts e;
  e.fill(two_curves);
  std::string text = "kernel,dtype,tokens,hidden,inter,topk,experts,tp,ep,routing,latency_us\n";
  for (std::size_t i = 0; i < e.rows.size(); ++i) {
    const auto x = e.rows.x(i);
    text += fmt::format("torch_flow_cutlass,bf16,{},{},{},{},{},{},{},balanced,{:.8g}\n", x[0], x[1], x[2],
                        x[3], x[4], x[5], x[6], e.rows.seconds[i] * 1e6);
  }
  Calibrated made = calibrate(h100(), std::vector<MeasurementTable>{parse_measurements("m.csv", text)});
  Calibration& c = made.calibration;
  c.source = c.hash = c.date = c.version = "1";
  Document document = Document::parse("c.yaml", calibration_yaml(c));
  const Calibration back = read_calibration(document.root().at("calibration"));
  document.finish();
  const FitIntervals &own = c.fits.at(0).intervals, &kept = back.fits.at(0).intervals;
  ASSERT_TRUE(own.slow && kept.slow && own.family && kept.family);
  EXPECT_EQ(kept.slow->curves, 1u);
  EXPECT_EQ(kept.slow->of_rows, own.slow->of_rows);
  EXPECT_NEAR(kept.slow->median, own.slow->median, 1e-3);
  EXPECT_EQ(kept.family->error.rows, 144u);
  EXPECT_EQ(kept.family->fast.rows, 136u);
  EXPECT_NEAR(kept.family->error.p90, own.family->error.p90, 1e-4);
  EXPECT_LT(kept.family->fast.worst, kept.family->error.worst);
  const auto says = [](const std::string& note) {
    return note.find("of a slow tactic") != std::string::npos;
  };
  EXPECT_EQ(std::count_if(made.notes.begin(), made.notes.end(), says), 1);
}

// A smoothing that folds like may be wrong for models: here each model has its own factor, which a stiff
// correction extrapolates less.
TEST(ChooseByFamilies, F6IsTheBestOverModels) {
  Experts e;
  e.fill([](const std::vector<double>& x) { return 1 + 0.2 * std::sin(x[1]); });
  const auto choice = choose_by_families(*e.form, e.context, e.rows, {});
  ASSERT_TRUE(choice);
  const auto sum = [&](std::optional<CorrectionGrid> grid) {
    const auto band = withhold_families(*e.form, e.context, e.rows, {grid, {}, 4});
    return band ? band->error.median + band->error.p90 : HUGE_VAL;
  };
  const double best = choice->band.error.median + choice->band.error.p90;
  EXPECT_DOUBLE_EQ(best, sum(choice->grid));
  EXPECT_LE(best, sum(std::nullopt));
  for (const CorrectionGrid& grid : kCoarseGrids) EXPECT_LE(best, sum(grid));
}

}  // namespace
}  // namespace shardline
