// [F4] Which grid calibrate() takes where folds of shapes ask for a fine one: decode attention, with waves
// along the cache's length that a fine grid follows and a coarse one does not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "hardware/machine/system.hpp"

namespace shardline {
namespace {

// Query heads of a key/value head, as far apart as the knots of a fine grid: each has one of its own.
constexpr double kGroups[] = {2, 6, 16};

System machine() { return load_system("h100-hgx", SHARDLINE_SOURCE_DIR "/hardware/catalog"); }

// Up and down within four doublings of the cache, too soon for knots that are 2.5 apart.
double wave(double doublings) { return 0.2 * std::sin(std::acos(0.0) * doublings); }

// exp(factor(doublings, group)) times what the form says.
template <class F>
MeasurementTable decode(F factor) {
  const Form& form = *find_form("attention_decode");
  FormContext context;
  EXPECT_TRUE(form.context(std::vector<std::string>{"bf16", "bf16", "mine"}, machine(), context));
  std::vector<double> parameters;
  for (const FormParameter& p : form.parameters) parameters.push_back(p.start);
  std::string text =
      "batch,kv_len,heads_q,heads_kv,head_dim,window,dtype_compute,dtype_kv,kernel,latency_us\n";
  for (const double group : kGroups) {
    for (double batch = 1; batch <= 64; batch *= 2) {
      for (double doublings = 6; doublings <= 16; doublings += 0.25) {
        const std::vector<double> x{batch, std::round(std::exp2(doublings)), 8 * group, 8, 128, 0};
        const double seconds = std::exp(factor(doublings, group)) * form.seconds(x, context, parameters);
        text += fmt::format("{},{},{},{},{},0,bf16,bf16,mine,{:.6g}\n", x[0], x[1], x[2], x[3], x[4],
                            seconds * 1e6);
      }
    }
  }
  return parse_measurements("attention_decode.csv", text);
}

// Doublings of the cache from one knot of the correction to the next.
double tokens_step(const MeasurementTable& table) {
  const Calibration c = calibrate(machine(), std::vector<MeasurementTable>{table}).calibration;
  EXPECT_EQ(c.fits.size(), 1u);
  const KernelFit& f = c.fits.at(0);
  EXPECT_STREQ(f.form->axes[1].name, "tokens");
  EXPECT_EQ(f.correction.step.size(), f.form->axes.size());
  return f.correction.step.at(1);
}

TEST(CalibrateGrid, F4IsFineWhereAllHeadsShareTheSteps) {
  EXPECT_NEAR(tokens_step(decode([](double at, double) { return wave(at); })), 1, 1e-9);
}

// Those next to heads that are withheld go down where these go up. Folds of shapes know all heads, and would
// take the fine grid here too.
TEST(CalibrateGrid, F4IsCoarseWhereFineOnesLearnHeadsByHeart) {
  const auto apart = [](double at, double group) { return group == 6 ? -wave(at) : wave(at); };
  EXPECT_NEAR(tokens_step(decode(apart)), 2.5, 1e-9);
}

}  // namespace
}  // namespace shardline
