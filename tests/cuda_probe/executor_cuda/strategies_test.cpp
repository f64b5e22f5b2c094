// Every strategy on the stand-in device: right in every order that events leave open.
#include <gtest/gtest.h>

#include "tests/cuda_probe/executor_cuda/cases.hpp"

namespace shardline::testing {
namespace {

class DeviceStrategies : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceStrategies, EqualTheCpuExecutorWhicheverStreamGoesOnFirst) {
  for (const cli::VerifyCase& c : sampled(GetParam(), 16)) {
    SCOPED_TRACE(c.what);
    const Schedule schedule = cli::verify_schedule(c);
    ASSERT_EQ(unsupported(schedule).value_or(""), "");
    const Inputs inputs(c.kinds.front());
    const RunResult<float> want = inputs.on_cpu(schedule);
    DeviceResult first;
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      DeviceResult got = on_emulated(schedule, inputs, {seed});
      const DeviceCheck check = compare(schedule, got, want);
      EXPECT_TRUE(check.passed()) << describe(check);
      if (seed == 1) {
        first = std::move(got);
      } else {
        EXPECT_TRUE(same_bits(first, got));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, DeviceStrategies, ::testing::ValuesIn(strategy_names()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace shardline::testing
