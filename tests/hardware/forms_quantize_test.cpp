// hardware/cost/forms/README.md [H45]: limits, monotony, bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "hardware/cost/forms/forms.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using Shape = std::vector<double>;
enum : std::size_t { kT0, kSpread, kFew, kChain, kCache, kMemory, kL2 };

FormContext context_of(const char* op, const char* system = "h100-hgx", const char* dtype = "fp8") {
  FormContext c;
  EXPECT_TRUE(kQuantizeForm.context(std::vector<std::string>{"trtllm", op, dtype},
                                    testing::catalog_system(system), c));
  return c;
}
std::vector<double> start() {
  std::vector<double> out;
  for (const FormParameter& p : kQuantizeForm.parameters) out.push_back(p.start);
  return out;
}

TEST(FormsQuantize, H45CountsWhatEachOperationMoves) {
  const Shape x{100, 4096};
  EXPECT_EQ(kQuantizeForm.traffic(x, context_of("compute_scale")), 100 * 4096 * 2.0);
  EXPECT_EQ(kQuantizeForm.traffic(x, context_of("scale_matrix")), 100 * 4096 * 3.0);
  EXPECT_EQ(kQuantizeForm.traffic(x, context_of("scale_matrix", "gb200-nvl72", "nvfp4")),
            100 * 4096 * (2 + bytes_per_element(Dtype::fp4)));
  FormContext c;
  const System h100 = testing::catalog_system("h100-hgx");
  EXPECT_FALSE(kQuantizeForm.context(std::vector<std::string>{"trtllm", "round", "fp8"}, h100, c));
  EXPECT_FALSE(kQuantizeForm.context(std::vector<std::string>{"trtllm", "scale_matrix", "bf16"}, h100, c));
}

TEST(FormsQuantize, H45ASmallMatrixCostsALaunchAndALargeOneItsBytes) {
  const FormContext c = context_of("scale_matrix");
  const std::vector<double> p = start();
  EXPECT_NEAR(kQuantizeForm.seconds(Shape{1, 32}, c, p), p[kT0] * 1e-6, 1e-9);
  const Shape large{1 << 20, 1 << 20};
  const double bytes = kQuantizeForm.traffic(large, c) / c.bandwidth;
  EXPECT_NEAR(kQuantizeForm.seconds(large, c, p) / (bytes * (1 / p[kCache] + 1 / p[kMemory])), 1, 1e-5);
  // A third of L2 is read at the cache's rate.
  const Shape inside{1000, p[kL2] * 1e6 / 3 / 3000};
  const double us = kQuantizeForm.seconds(inside, c, p) * 1e6 - p[kT0] - p[kSpread];
  EXPECT_NEAR(us / (kQuantizeForm.traffic(inside, c) / (p[kCache] * c.bandwidth) * 1e6), 1, 0.03);
  // One row is one thread block's: it takes as long as its chain.
  std::vector<double> chained = p;
  chained[kChain] = 1;
  EXPECT_NEAR(kQuantizeForm.seconds(Shape{1, 1e6}, c, chained) * 1e3, 1, 0.01);
}

TEST(FormsQuantize, H45GrowsWithRowsAndColumnsFarBeyondTheData) {
  std::mt19937_64 rng(5);
  for (const char* op : {"compute_scale", "scale_matrix"}) {
    const FormContext c = context_of(op);
    for (int i = 0; i < 30; ++i) {
      std::vector<double> p;
      for (const FormParameter& f : kQuantizeForm.parameters)
        p.push_back(f.low * std::pow(f.high / f.low, static_cast<double>(rng() >> 11) * 0x1p-53));
      for (double other = 1; other < 1e7; other *= 7) {
        double rows = 0, columns = 0;
        for (double v = 1; v < 1e8; v *= 1.5) {
          const double r = kQuantizeForm.seconds(Shape{v, other}, c, p);
          const double k = kQuantizeForm.seconds(Shape{other, v}, c, p);
          EXPECT_GE(r, rows * (1 - 1e-12));
          EXPECT_GE(k, columns * (1 - 1e-12));
          rows = r;
          columns = k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace shardline
