// [F13] Rows of a kernel that is the same but for what is around it: they help, and a model that is withheld
// is withheld from them too.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "calibrate/withhold.hpp"
#include "hardware/machine/system.hpp"

namespace shardline {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const char* const kCatalog = SHARDLINE_SOURCE_DIR "/hardware/catalog";
const char *const kMod = "fp8moe_trtllm_trtllmfp8_mod", *const kMono = "fp8moe_trtllm_trtllmfp8_mono";

struct Model {
  double hidden, inter, topk, experts;
};
constexpr Model kFew{5120, 8192, 1, 16}, kMany{4096, 2048, 6, 256};
constexpr Model kOthers[] = {{7168, 2048, 8, 256}, {4096, 14336, 2, 8}, {2048, 768, 8, 128}};

struct Truth {
  const Form* form = find_form("moe");
  FormContext context;
  std::vector<double> parameters;
  Truth() {
    EXPECT_TRUE(form->context(std::vector<std::string>{kMod, "fp8_block", "balanced"},
                              load_system("gb200-nvl72", kCatalog), context));
    for (const FormParameter& p : form->parameters) parameters.push_back(p.start);
  }
  // 8 to 16384 tokens on up to 16 ranks.
  void add(const Model& m, double factor, std::vector<double>& numbers, std::vector<double>& seconds) const {
    for (double tokens = 8; tokens <= 16384; tokens *= 2) {
      for (const double ep : {1., 2., 4., 8., 16.}) {
        const std::vector<double> x{tokens, m.hidden, m.inter, m.topk, m.experts, 1, ep};
        if (!form->covers(x)) continue;
        numbers.insert(numbers.end(), x.begin(), x.end());
        seconds.push_back(factor * form->seconds(x, context, parameters));
      }
    }
  }
  void own(const Model& m, FitRows& rows) const {
    rows.width = 7;
    add(m, 1, rows.numbers, rows.seconds);
  }
};

TEST(FitKin, F13FollowsTheRowsAndThenEnds) {
  const FitRows rows{1, {1, 2, 3}, {10, 20, 30}, {4}, {40}};
  const FitRows two = rows.only(std::vector<std::size_t>{0, 2});
  EXPECT_EQ(two.size(), 2u);
  const FitRows all = two.with_kin();
  EXPECT_EQ(all.numbers, (std::vector<double>{1, 3, 4}));
  EXPECT_EQ(all.seconds, (std::vector<double>{10, 30, 40}));
  EXPECT_TRUE(all.kin_seconds.empty());
}

// Two models of a kernel whose rows are disturbed, each predicted by the other: other models of its kin tell
// what is common.
TEST(FitKin, F13TellsWhatFewModelsDoNot) {
  Truth t;
  t.parameters[0] = 40;  // launches
  t.parameters[1] = 0.3;
  t.parameters[2] = 0.95;
  t.parameters[5] = 60;  // a chain by the widths, which one model does not tell from launches
  FitRows rows;
  t.own(kFew, rows);
  t.own(kMany, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) rows.seconds[i] *= i % 2 == 0 ? 1.08 : 0.92;
  const auto alone = withhold_families(*t.form, t.context, rows, {});
  for (const Model& m : kOthers) t.add(m, 1, rows.kin_numbers, rows.kin_seconds);
  const auto kin = withhold_families(*t.form, t.context, rows, {});
  ASSERT_TRUE(alone && kin);
  EXPECT_EQ(kin->rows, alone->rows);          // kin are not among what is predicted
  EXPECT_EQ(kin->families, alone->families);  // nor do they name models
  EXPECT_LT(kin->error.p90, 0.12);            // the disturbance is 8 %
  EXPECT_LT(kin->error.p90, alone->error.p90 / 1.5);
}

// The truth is where a fit starts, so that rows without an error are predicted without one. Kin of a model
// three times as slow spoil the prediction of the other model, not that of their own.
TEST(FitKin, F13AreWithheldWithTheirModel) {
  const Truth t;
  FitRows rows;
  t.own(kFew, rows);
  t.own(kMany, rows);
  t.add(kMany, 3, rows.kin_numbers, rows.kin_seconds);
  FitRows one;
  t.own(kFew, one);
  const double few = static_cast<double>(one.size()) / static_cast<double>(rows.size());
  const auto band = withhold_families(*t.form, t.context, rows, {});
  ASSERT_TRUE(band);
  EXPECT_LT(few, 0.5);
  EXPECT_LT(band->error.median, 1e-6);  // kMany, most of the rows
  EXPECT_GT(band->error.p90, 0.2);      // kFew
}

TEST(FitKin, F13AreNamedAndTheRangeIsTheirOwn) {
  const Truth t;
  std::string text = "kernel,dtype,tokens,hidden,inter,topk,experts,tp,ep,routing,latency_us\n";
  const auto lines = [&](const char* kernel, const Model& m) {
    std::vector<double> numbers, seconds;
    t.add(m, 1, numbers, seconds);
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      text += fmt::format("{},fp8_block", kernel);
      for (std::size_t j = 0; j < 7; ++j) text += fmt::format(",{}", numbers[i * 7 + j]);
      text += fmt::format(",balanced,{:.6g}\n", seconds[i] * 1e6);
    }
  };
  lines(kMod, kFew);
  lines(kMod, kMany);
  for (const Model& m : kOthers) lines(kMono, m);
  const Calibrated made = calibrate(load_system("gb200-nvl72", kCatalog),
                                    std::vector<MeasurementTable>{parse_measurements("m.csv", text)});
  EXPECT_THAT(made.notes,
              Contains(HasSubstr(fmt::format("moe {} fp8_block balanced: fitted together", kMod))));
  ASSERT_EQ(made.calibration.fits.size(), 2u);
  const KernelFit &mod = made.calibration.fits[0], &mono = made.calibration.fits[1];
  ASSERT_EQ(mod.words[0], kMod);
  ASSERT_EQ(mono.words[0], kMono);
  EXPECT_NEAR(mod.range_high[1], 13, 1e-9);  // widths up to 8192
  EXPECT_NEAR(mono.range_high[1], std::log2(14336), 1e-9);
  EXPECT_EQ(mod.intervals.family->families.size(), 2u);
}

}  // namespace
}  // namespace shardline
