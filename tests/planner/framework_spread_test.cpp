// A plan by every framework's kernels [P16].
#include "planner/studies/framework_spread.hpp"

#include <gtest/gtest.h>

#include "hardware/machine/frameworks.hpp"
#include "planner/plan/plan.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

std::vector<FrameworkTime> spread(const Case& c, const char* plan) {
  return framework_spread(c, AllReduceRule::fastest, parse_plan(plan), source_path("hardware/catalog"));
}

// Each is what the question would get that names it.
TEST(FrameworkSpread, P16IsTheTimeByEveryFrameworksKernels) {
  Case c = decode_case("llama-3.1-8b", "h200-hgx", 32'768);
  c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16};
  const auto all = spread(c, "tensor:tpa=2,tpf=2,batch=4");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].framework, "trtllm");
  EXPECT_EQ(all[1].framework, "sglang");
  EXPECT_EQ(all[2].framework, "vllm");
  for (const FrameworkTime& f : all) {
    Case named = c;
    use_framework(named.system, f.framework, source_path("hardware/catalog"));
    Evaluator e(named);
    EXPECT_EQ(e.simulate(parse_plan("tensor:tpa=2,tpf=2,batch=4")), f.time) << f.framework;
    EXPECT_TRUE(spread(named, "tensor:tpa=2,tpf=2,batch=4").empty());
  }
  EXPECT_NE(all[0].time, all[1].time);
  EXPECT_NE(all[1].time, all[2].time);
}

TEST(FrameworkSpread, P16NothingWithoutACalibration) {
  EXPECT_TRUE(spread(decode_case("llama-3.1-8b", "h100-gti", 32'768), "tensor:tpa=2,tpf=2,batch=4").empty());
}

}  // namespace
}  // namespace shardline
