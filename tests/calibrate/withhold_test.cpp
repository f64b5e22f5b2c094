// What is withheld beyond folds of shapes, with truths that only some of the rows follow.
#include "calibrate/withhold.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "calibrate/calibrate.hpp"
#include "hardware/machine/system.hpp"

namespace shardline {
namespace {

struct Truth {
  const Form* form;
  FormContext context;
  std::vector<double> parameters;
};

Truth truth(const char* family, const std::vector<std::string>& words) {
  Truth out;
  out.form = find_form(family);
  const System system = load_system("h100-hgx", SHARDLINE_SOURCE_DIR "/hardware/catalog");
  EXPECT_TRUE(out.form->context(words, system, out.context));
  for (const FormParameter& p : out.form->parameters) out.parameters.push_back(p.start);
  return out;
}

void add(FitRows& rows, const Truth& t, const std::vector<double>& x, double factor) {
  rows.width = x.size();
  rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
  rows.seconds.push_back(factor * t.form->seconds(x, t.context, t.parameters));
}

// By groups of 2 to `most` GPUs; the largest of them `factor` slower than the form says.
FitRows messages(const Truth& t, int most, double factor) {
  FitRows rows;
  for (int gpus = 2; gpus <= most; gpus *= 2) {
    for (double bytes = 256; bytes <= 1 << 30; bytes *= 2)
      add(rows, t, {static_cast<double>(gpus), bytes}, gpus == most ? factor : 1);
  }
  return rows;
}

TEST(ModelFamily, IsNamedByWhatAModelFixes) {
  using Family = std::vector<double>;
  const std::vector<double> moe{64, 4096, 1536, 8, 128, 2, 4}, decode{8, 4096, 32, 8, 128, 0};
  EXPECT_EQ(model_family(*find_form("moe"), moe), (Family{4096, 1536, 8, 128}));
  EXPECT_EQ(model_family(*find_form("attention_decode"), decode), (Family{128, 4}));
  EXPECT_EQ(model_family(*find_form("mla_decode"), std::vector<double>{8, 4096, 16}), (Family{16}));
  EXPECT_TRUE(model_family(*find_form("gemm"), std::vector<double>{1, 2, 3}).empty());
}

TEST(WithholdFamilies, SaysHowFarAFamilyMayBeFromTheOthers) {
  const Truth t = truth("mla_bmm", {"mla_gen_pre", "bf16"});
  FitRows rows;
  for (double heads = 8; heads <= 128; heads *= 2) {
    for (double tokens = 1; tokens <= 4096; tokens *= 1.2)
      add(rows, t, {tokens, heads}, heads == 8 ? 1.25 : heads == 128 ? 0.8 : 1);
  }
  const Refit how{CorrectionGrid{3}, {}, 4};
  const auto band = withhold_families(*t.form, t.context, rows, how);
  ASSERT_TRUE(band);
  EXPECT_EQ(band->families.size(), 5u);
  EXPECT_EQ(band->rows, rows.size());
  EXPECT_GT(band->band.high, 0.1);
  EXPECT_LT(band->band.low, -0.1);
  // Folds of shapes know every family, and see less.
  const CrossValidation folds = cross_validate(*t.form, t.context, rows);
  EXPECT_LT(held_out_band(folds.by_correction).band.high, band->band.high / 2);
}

// A band of two models is no better known than that: half as wide again; one of a hundred hardly.
TEST(WithholdFamilies, FewModelsTellLittleOfTheNext) {
  HeldOut two, many;
  for (int i = 0; i < 1000; ++i) {
    two.add(0.001 * (i % 201 - 100), i % 2);
    many.add(0.001 * (i % 201 - 100), i % 100);
  }
  const double rows = held_out_band(two).band.high;
  EXPECT_NEAR(held_out_band(two, 1).band.high / rows, 1.5, 1e-2);
  EXPECT_NEAR(held_out_band(many, 1).band.high / rows, 1.01, 1e-2);
}

TEST(WithholdFamilies, NeedsTwo) {
  const Truth t = truth("mla_bmm", {"mla_gen_pre", "bf16"});
  FitRows rows;
  for (double tokens = 1; tokens <= 1 << 20; tokens *= 2) add(rows, t, {tokens, 16}, 1);
  EXPECT_FALSE(withhold_families(*t.form, t.context, rows, {}));
  const Truth nccl = truth("nccl", {"all_reduce"});
  EXPECT_FALSE(withhold_families(*nccl.form, nccl.context, messages(nccl, 8, 1), {}));
}

TEST(WithholdBeyond, FindsWhatTheLargestGroupsDoOtherwise) {
  const Truth t = truth("nccl", {"all_reduce"});
  const auto same = withhold_beyond(*t.form, t.context, messages(t, 8, 1), {});
  const auto other = withhold_beyond(*t.form, t.context, messages(t, 8, 1.3), {});
  ASSERT_TRUE(same && other);
  EXPECT_DOUBLE_EQ(other->from, 2);
  EXPECT_DOUBLE_EQ(other->to, 3);
  EXPECT_EQ(other->rows, 46u);  // of 8 by those up to 4, and of 4 by those of 2
  EXPECT_NEAR(same->band.low, 0, 0.05);
  EXPECT_NEAR(same->band.high, 0, 0.05);
  // Two steps: half of a half wider on both sides of the middle of 0 and ln 1.3.
  EXPECT_NEAR(other->band.high, 1.125 * std::log(1.3), 0.05);
  EXPECT_NEAR(other->band.low, -0.125 * std::log(1.3), 0.05);
  // A table that ends at four GPUs foresees eight that are like them, but not eight that are not.
  EXPECT_GT(same->covered, 0.5);
  EXPECT_LT(other->covered, 0.1);
}

// A fit that is too fast at each length so far may be too slow at the next: no band leaves zero out.
TEST(WithholdBeyond, HoldsZeroAndIsWiderOfFewSteps) {
  const Truth t = truth("nccl", {"all_reduce"});
  const auto slower = [&](int most) {  // each size 30 % slower than the one before
    FitRows rows;
    double factor = 1;
    for (int gpus = 2; gpus <= most; gpus *= 2, factor *= 1.3) {
      for (double bytes = 256; bytes <= 1 << 30; bytes *= 2)
        add(rows, t, {static_cast<double>(gpus), bytes}, factor);
    }
    return withhold_beyond(*t.form, t.context, rows, {});
  };
  const auto one = slower(4), three = slower(16), eight = slower(512);
  ASSERT_TRUE(one && three && eight);
  for (const auto& band : {one, three, eight}) {
    EXPECT_LE(band->band.low, 0);
    EXPECT_GT(band->band.high, 0.1);
  }
  EXPECT_EQ(one->rows, 23u);
  EXPECT_LT(one->covered, 0);  // no step before
  EXPECT_EQ(three->rows, 3 * 23u);
  EXPECT_EQ(eight->rows, 4 * 23u);  // the last ones
}

TEST(WithholdBeyond, NeedsRowsBelow) {
  const Truth t = truth("nccl", {"all_reduce"});
  EXPECT_FALSE(withhold_beyond(*t.form, t.context, messages(t, 2, 1), {}));
  // One row tells nothing of the others, but those of the step before do.
  FitRows one = messages(t, 2, 1);
  add(one, t, {4, 1 << 20}, 1.3);
  EXPECT_FALSE(withhold_beyond(*t.form, t.context, one, {}));
  FitRows more = messages(t, 4, 1);
  add(more, t, {8, 1 << 20}, 1);
  const auto band = withhold_beyond(*t.form, t.context, more, {});
  ASSERT_TRUE(band);
  EXPECT_EQ(band->rows, 24u);
  const Truth gemm = truth("gemm", {"bf16", "mine"});
  FitRows rows;
  for (double m = 1; m <= 4096; m *= 2) add(rows, gemm, {m, 1024, 1024}, 1);
  EXPECT_FALSE(withhold_beyond(*gemm.form, gemm.context, rows, {}));
}

// Switches sum for more than four GPUs only [H46]: no row of two says anything of them, and none is asked
// for.
TEST(WithholdBeyond, CountsParametersThatRowsMove) {
  const Truth t = truth("nccl", {"all_reduce"});
  ASSERT_EQ(t.form->parameters.size(), 6u);
  FitRows rows;
  for (const double gpus : {2.0, 4.0}) {
    for (int i = 0; i < 21; ++i) add(rows, t, {gpus, std::exp2(9 + i)}, 1 + 0.01 * (i % 3));
  }
  EXPECT_TRUE(withhold_beyond(*t.form, t.context, rows, {}));  // 21 rows, not the 24 of all six
  EXPECT_FALSE(withhold_beyond(*t.form, t.context, rows, {{}, {}, 22}));
}

// Band by band: what calibrate keeps of a table with both.
TEST(WithholdBeyond, IsKeptWithTheFit) {
  const Truth t = truth("nccl", {"all_reduce"});
  const FitRows rows = messages(t, 8, 1.3);
  std::string text = "op,dtype,gpus,message_bytes,latency_us\n";
  for (std::size_t i = 0; i < rows.size(); ++i)
    text += fmt::format("all_reduce,fp16,{},{},{:.6g}\n", rows.x(i)[0], rows.x(i)[1], rows.seconds[i] * 1e6);
  const System system = load_system("h100-hgx", SHARDLINE_SOURCE_DIR "/hardware/catalog");
  Calibration c =
      calibrate(system, std::vector<MeasurementTable>{parse_measurements("n.csv", text)}).calibration;
  c.source = c.hash = c.date = c.version = "1";
  Document document = Document::parse("c.yaml", calibration_yaml(c));
  const Calibration back = read_calibration(document.root().at("calibration"));
  document.finish();
  ASSERT_TRUE(back.fits.at(0).intervals.beyond);
  const BeyondBand &own = *c.fits[0].intervals.beyond, &kept = *back.fits[0].intervals.beyond;
  EXPECT_EQ(kept.axis, own.axis);
  EXPECT_DOUBLE_EQ(kept.from, own.from);
  EXPECT_EQ(kept.rows, own.rows);
  EXPECT_NEAR(kept.band.high, own.band.high, 1e-4);
  EXPECT_FALSE(back.fits[0].intervals.family);
}

}  // namespace
}  // namespace shardline
