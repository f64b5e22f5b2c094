// How far prices may be off [H63].
#include "hardware/cost/price_interval.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

#include "hardware/cost/forms/forms.hpp"
#include "tests/hardware/ops.hpp"

namespace shardline {
namespace {

using testing::batched_op, testing::catalog_system, testing::decode_op, testing::elementwise_op,
    testing::exchange_op, testing::experts_op, testing::gemm_op, testing::mla_decode_op, testing::prefill_op,
    testing::whole_sequences;

/// One fit whose bands are known: 10 % inside, 40 % for models, 20 % a distance of 2 beyond.
KernelFit known_fit(const char* family = "attention_decode") {
  KernelFit f;
  f.form = find_form(family);
  f.intervals.inside.band = {-0.1, 0.1};
  f.intervals.family.emplace().band = {-0.2, 0.4};
  BeyondBand& b = f.intervals.beyond.emplace();
  b.band = {-0.05, 0.2};
  b.from = 15;
  b.to = 17;
  return f;
}

void expect_band(const ErrorBand& band, double low, double high) {
  EXPECT_NEAR(band.low, low, 1e-9);
  EXPECT_NEAR(band.high, high, 1e-9);
}

TEST(PriceInterval, H63IsTheBandOfItsFitAmongMeasuredRows) {
  expect_band(band_of_price(known_fit(), {}), -0.1, 0.1);
}

TEST(PriceInterval, H63ModelsThatWereNotMeasuredHaveTheirOwnBand) {
  FitDistance d;
  d.other_model = true;
  expect_band(band_of_price(known_fit(), d), -0.2, 0.4);
  KernelFit narrow = known_fit();
  narrow.intervals.family->band = {-0.01, 0.02};
  expect_band(band_of_price(narrow, d), -0.1, 0.1);  // never narrower than inside
  narrow.intervals.family.reset();
  expect_band(band_of_price(narrow, d), -0.1, 0.1);
}

TEST(PriceInterval, H63ReachesUpToSlowTacticsThatAreNotRare) {
  KernelFit f = known_fit("moe");
  f.intervals.slow = SlowTactics{6, 100, 2, 40, 3, 4.5};
  expect_band(band_of_price(f, {}), -0.1, std::log(3));
  f.intervals.slow->rows = 5;  // the band leaves as many out
  expect_band(band_of_price(f, {}), -0.1, 0.1);
  f.intervals.slow->rows = 6;
  f.intervals.inside.band.high = 2;
  expect_band(band_of_price(f, {}), -0.1, 2);
}

TEST(PriceInterval, H63GrowsWithTheDistanceBeyondTheData) {
  FitDistance d;
  d.outside = true;
  d.beyond = 1;
  expect_band(band_of_price(known_fit(), d), -0.1, 0.2);  // nearer than what was withheld: its band
  d.beyond = 2;
  expect_band(band_of_price(known_fit(), d), -0.1, 0.2);
  d.beyond = 4;
  expect_band(band_of_price(known_fit(), d), -0.1, 0.3);
  KernelFit without = known_fit();
  without.intervals.beyond.reset();
  expect_band(band_of_price(without, d), -0.6, 0.6);  // nothing was withheld: each doubling as the first
  d.beyond = 1;
  expect_band(band_of_price(without, d), -0.15, 0.15);
  d.beyond = -3;  // another axis, or a corner without rows
  expect_band(band_of_price(known_fit(), d), -0.15, 0.15);
}

TEST(PriceInterval, H63WidensAroundTheMiddle) {
  KernelFit f = known_fit();
  f.intervals.inside.band = {0, 0.2};
  FitDistance d;
  d.altered = true;
  expect_band(band_of_price(f, d), -0.1, 0.3);
  d = {};
  d.indirect = true;
  expect_band(band_of_price(f, d), -0.05, 0.25);
}

// Among measured rows another data type adds 10 % on each side; so it does far from them, whatever the band
// there.
TEST(PriceInterval, H63AnotherKernelWidensByWhatIsKnownNearTheRows) {
  FitDistance d;
  d.outside = true;
  d.beyond = 2;
  d.altered = true;
  expect_band(band_of_price(known_fit(), d), -0.2, 0.3);
  d.indirect = true;
  expect_band(band_of_price(known_fit(), d), -0.3, 0.4);
  KernelFit wild = known_fit();
  wild.intervals.beyond->band = {-0.1, 2};
  expect_band(band_of_price(wild, d), -0.3, 2.2);
  d.beyond = 0;
  expect_band(band_of_price(wild, d), -0.45, 0.45);
}

TEST(PriceInterval, H63BorrowedFitsAreWider) {
  for (const Form& form : forms()) {
    FitDistance d;
    d.machine = MachineKin::processor;
    const ErrorBand band = band_of_price(known_fit(form.family), d);
    EXPECT_LT(band.low, -0.104) << form.family;
    EXPECT_GT(band.high, 0.104) << form.family;
    // The same processor's launches take as long; another's need not, and another architecture's rates are no
    // better known.
    d.fixed = 0.5;
    expect_band(band_of_price(known_fit(form.family), d), band.low, band.high);
    d.machine = MachineKin::architecture;
    expect_band(band_of_price(known_fit(form.family), d), band.low - 0.2, band.high + 0.2);
    d.fixed = 0;
    expect_band(band_of_price(known_fit(form.family), d), band.low, band.high);
    d.machine = MachineKin::stranger;
    expect_band(band_of_price(known_fit(form.family), d), band.low - 0.2, band.high + 0.2);
    d.fixed = 0.5;
    expect_band(band_of_price(known_fit(form.family), d), band.low - 0.3, band.high + 0.3);
  }
}

TEST(PriceInterval, H63FixedTimesAreWhatFasterRatesLeave) {
  const auto time = [](double rates) { return 3 + 2 / rates; };
  EXPECT_NEAR(of_fixed_times(time(1), time(kFaster)), 0.6, 1e-12);
  EXPECT_NEAR(of_fixed_times(5, 5), 1, 1e-12);
  EXPECT_NEAR(of_fixed_times(5, 5 / kFaster), 0, 1e-12);
  EXPECT_EQ(of_fixed_times(0, 0), 0);
}

TEST(PriceInterval, H63MachinesAreKinByTheirProcessors) {
  System s = catalog_system("h200-hgx");
  EXPECT_EQ(s.calibration.kin(s, kGemmForm), MachineKin::own);
  s.device.name = "another";
  EXPECT_EQ(s.calibration.kin(s, kGemmForm), MachineKin::processor);
  s.calibration = catalog_system("h100-hgx").calibration;
  s.device.name = "H200 SXM";
  EXPECT_EQ(s.calibration.kin(s, kGemmForm), MachineKin::processor);
  s.device.multiprocessors = 114;
  EXPECT_EQ(s.calibration.kin(s, kGemmForm), MachineKin::architecture);
  s = catalog_system("h100-hgx");
  s.calibration.machine = {};  // it does not say what was measured
  EXPECT_EQ(s.calibration.kin(s, kGemmForm), MachineKin::architecture);
  s.calibration = catalog_system("gb200-nvl72").calibration;
  EXPECT_EQ(s.calibration.kin(s, kGemmForm), MachineKin::stranger);
  EXPECT_EQ(catalog_system("a800-hgx").calibration.kin(catalog_system("a800-hgx"), kGemmForm),
            MachineKin::processor);
  for (const char* name : {"b200-hgx", "gb300-nvl72"}) {
    const System borrower = catalog_system(name);
    EXPECT_EQ(borrower.calibration.kin(borrower, kGemmForm), MachineKin::architecture) << name;
  }
}

// Of GB200's fits, whose own band is the same for both shapes.
TEST(PriceInterval, H63OfABorrowedOpGrowsWithItsFixedTimes) {
  const System b200 = catalog_system("b200-hgx");
  System same = b200;  // as if it were GB200's processor
  for (std::size_t i = 0; i < machine_figures().size(); ++i)
    same.calibration.machine.figures.at(i) = machine_figures()[i].of(same);
  CostModel m(b200), known(same);
  const auto added = [&](const Op& op) {
    const PriceInterval i = m.interval(op), k = known.interval(op);
    EXPECT_NEAR(i.band.high - k.band.high, k.band.low - i.band.low, 1e-6);
    return (i.band.high - k.band.high) / 0.4;
  };
  EXPECT_GT(added(gemm_op({1, 512, 512}, Dtype::bf16, Dtype::bf16)), 0.9);
  EXPECT_LT(added(gemm_op({16384, 16384, 16384}, Dtype::bf16, Dtype::bf16)), 0.1);
  EXPECT_GT(added(exchange_op(OpKind::all_gather, {4, 1}, 1e3)), 0.9);
  EXPECT_LT(added(exchange_op(OpKind::all_gather, {4, 1}, 1e9)), 0.3);
  EXPECT_GT(added(elementwise_op({1, 4096, Bytes(1e3)})), 0.9);
  EXPECT_LT(added(elementwise_op({1, 4096, Bytes(1e10)})), 0.1);
}

/// H100 with the bands of known_fit() in every fit; `families` of experts and heads.
System known_system() {
  System s = catalog_system("h100-hgx");
  for (KernelFit& f : s.calibration.fits.edit()) {
    f.intervals = known_fit().intervals;
    f.intervals.beyond.reset();
    f.intervals.family->families = {{4096, 1536, 8, 128}, {128, 4}, {32}};
    const std::string_view family = f.form->family;
    if (family != "moe" && !family.starts_with("attention_") && !family.starts_with("mla_"))
      f.intervals.family.reset();  // as [F6]: no model stands in its shapes
    if (const auto far = far_axis(*f.form)) {
      BeyondBand& b = f.intervals.beyond.emplace();
      b.axis = far->axis;
      b.band = {-0.05, 0.2};
      b.from = f.range_high[far->axis] - 2;
      b.to = f.range_high[far->axis];
    }
  }
  return s;
}

double width(CostModel& m, const Op& op) {
  const ErrorBand b = m.interval(op).band;
  return b.high - b.low;
}

TEST(PriceInterval, H63OfAnOpIsThatOfTheFitThatPricesIt) {
  const System s = known_system();
  CostModel m(s);
  const Op gemm = gemm_op({64, 4096, 4096}, Dtype::bf16, Dtype::bf16);
  const Seconds before = m.time(gemm);
  const PriceInterval i = m.interval(gemm);
  expect_band(i.band, -0.1, 0.1);
  EXPECT_EQ(i.source, ErrorSource::fit);
  EXPECT_EQ(i.fit, m.price(gemm).fit);
  EXPECT_EQ(m.time(gemm), before);
  // Weights of a type that was not measured; too many rows.
  expect_band(m.interval(gemm_op({64, 4096, 4096}, Dtype::fp4, Dtype::fp8)).band, -0.2, 0.2);
  expect_band(m.interval(gemm_op({33000, 4096, 4096}, Dtype::bf16, Dtype::bf16)).band, -0.15, 0.15);
  // Part of another kernel.
  expect_band(m.interval(gemm_op({64, 4096, 4096}, Dtype::bf16, Dtype::bf16, 0)).band, -0.15, 0.15);
}

TEST(PriceInterval, H63KnowsTheModelsThatWereMeasured) {
  const System s = known_system();
  CostModel m(s);
  const auto experts = [](Count held, Count hidden, Count inner) {
    return experts_op(true, {held, 64, hidden, inner}, 64, static_cast<double>(std::min<Count>(held, 64)),
                      Dtype::bf16, Dtype::bf16);
  };
  expect_band(m.interval(experts(32, 4096, 768)).band, -0.1, 0.1);  // a rank's part of a measured model
  EXPECT_NEAR(m.interval(experts(32, 5120, 768)).band.high, 0.4, 0.11);
  EXPECT_GE(m.interval(experts(32, 5120, 768)).band.high, 0.4);
  EXPECT_GE(m.interval(experts(48, 4096, 768)).band.high, 0.4);
  expect_band(m.interval(decode_op(8, 4096, 32, 8, 128, Dtype::fp8)).band, -0.1, 0.1);
  expect_band(m.interval(decode_op(8, 4096, 64, 8, 128, Dtype::fp8)).band, -0.2, 0.4);
  expect_band(m.interval(mla_decode_op(8, 4096, 32, Dtype::fp8)).band, -0.1, 0.1);
  expect_band(m.interval(mla_decode_op(8, 4096, 16, Dtype::fp8)).band, -0.2, 0.4);
  expect_band(
      m.interval(prefill_op(whole_sequences(1, 4096, 32, 8, 128, 128), Dtype::bf16, Dtype::bf16)).band, -0.1,
      0.1);
  expect_band(
      m.interval(prefill_op(whole_sequences(1, 4096, 40, 8, 128, 128), Dtype::bf16, Dtype::bf16)).band, -0.2,
      0.4);
  expect_band(
      m.interval(batched_op({LatentProduct::absorb_query, 64, 128, 512, 32, 1}, Dtype::bf16, Dtype::bf16))
          .band,
      -0.1, 0.1);
  expect_band(
      m.interval(batched_op({LatentProduct::absorb_query, 64, 128, 512, 16, 1}, Dtype::bf16, Dtype::bf16))
          .band,
      -0.2, 0.4);
}

TEST(PriceInterval, H63LongerCachesAreLessCertain) {
  const System s = known_system();
  CostModel m(s);
  double last = 0;
  for (const Count length : {131'072, 524'288, 2'097'152, 8'388'608}) {
    const double now = width(m, decode_op(1, length, 32, 8, 128, Dtype::fp8));
    EXPECT_GT(now, last - 1e-9) << length;
    last = now;
  }
  expect_band(m.interval(decode_op(1, 524'288, 32, 8, 128, Dtype::fp8)).band, -0.1, 0.2);
  expect_band(m.interval(decode_op(1, 2'097'152, 32, 8, 128, Dtype::fp8)).band, -0.1, 0.3);
  // An FP4 cache is no measured one.
  expect_band(m.interval(decode_op(8, 4096, 32, 8, 128, Dtype::fp4)).band, -0.2, 0.2);
}

TEST(PriceInterval, H63PartsAndOtherMachinesAreLessCertain) {
  const System s = known_system();
  CostModel m(s);
  AttendPrefillShape part = whole_sequences(1, 4096, 32, 8, 128, 128);
  part.whole = false;
  expect_band(m.interval(prefill_op(part, Dtype::bf16, Dtype::bf16)).band, -0.15, 0.15);
  System other = s;
  other.device.memory_bandwidth *= 0.8;
  CostModel o(other);
  for (const Op& op : {gemm_op({64, 4096, 4096}, Dtype::bf16, Dtype::bf16),
                       decode_op(8, 4096, 32, 8, 128, Dtype::fp8), elementwise_op({64, 4096, Bytes(1e6)})}) {
    EXPECT_GT(width(o, op), width(m, op));
  }
}

TEST(PriceInterval, H63WithoutAFitIsAssumed) {
  System s = known_system();
  {
    CostModel m(s);
    const PriceInterval e = m.interval(elementwise_op({64, 4096, Bytes(1e6)}));
    EXPECT_EQ(e.source, ErrorSource::elementwise);
    expect_band(e.band, kElementwiseBand.low, kElementwiseBand.high);
    const PriceInterval none = m.interval(decode_op(8, 10'000, 40, 1, 128, Dtype::bf16));
    EXPECT_EQ(none.source, ErrorSource::assumed);
    EXPECT_EQ(none.fit, nullptr);
  }
  s.calibration = {};
  CostModel m(s);
  const PriceInterval i = m.interval(exchange_op(OpKind::all_reduce, {8, 1}, 1e6));
  EXPECT_EQ(i.source, ErrorSource::assumed);
  expect_band(i.band, kAssumedBand.low, kAssumedBand.high);
}

}  // namespace
}  // namespace shardline
