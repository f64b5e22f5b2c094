// [P15] Narrow types that take longer than wider ones are said, and nothing else is.
#include "planner/search/narrow.hpp"

#include <gmock/gmock.h>

#include "planner/scenario/scenario.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

Case case_of(const std::string& precision, const std::string& system = "h100-hgx") {
  const std::string text = "name: t\nsystem: " + system +
                           "\nmodels: [llama-3.1-8b]\ncontext: 4Ki tokens\nprecision: {" + precision +
                           "}\nstrategies: [tensor]\ngpus: [1]\nbatch: [1]\n";
  return parse_scenario(
             "t.yaml", text,
             {source_path("models/catalog"), source_path("hardware/catalog"), source_path("scenarios")}, {})
      .studies.at(0)
      .study;
}

std::vector<Plan> plans() {
  return {parse_plan("tensor:tpa=1,tpf=1,batch=1"), parse_plan("tensor:tpa=1,tpf=1,batch=64")};
}

// The slow, obvious way: every op of every plan once as it is and once in BF16.
TEST(NarrowWarnings, P15NameTheOpThatLosesMost) {
  for (const char* precision : {"weights: fp8_dynamic, kv: bf16", "weights: fp8_block, kv: fp8",
                                "weights: int4, math: fp8, kv: bf16", "weights: mxfp4, kv: fp8"}) {
    const Case c = case_of(precision);
    double worst = 1;
    std::string name;
    CostModel cost(c.system);
    for (const Plan& plan : plans()) {
      Schedule s;
      lower(s, c, plan);
      for (const Op& op : s.ops) {
        if (!is_gemm(op.kind) && !is_attention(op.kind)) continue;
        for (const Dtype wide : {Dtype::fp8, Dtype::bf16}) {
          if (element_bits(wide) <= std::min(element_bits(op.dtype), element_bits(op.math)) ||
              element_bits(wide) < std::max(element_bits(op.dtype), element_bits(op.math)))
            continue;
          Op other = op;
          other.dtype = other.math = wide;
          const double ratio = cost.time(op) / cost.time(other);
          if (ratio > worst * (1 + 1e-12)) worst = ratio, name = op.name;
        }
      }
    }
    const auto said = narrow_warnings(c, plans());
    if (worst < 1.01) {
      EXPECT_TRUE(said.empty()) << precision << said[0].what;
      continue;
    }
    ASSERT_EQ(said.size(), 1u) << precision;
    EXPECT_THAT(said[0].what, testing::HasSubstr("a narrow type does not pay: " + name + " in "))
        << precision;
  }
}

TEST(NarrowWarnings, P15NothingIsSaidOfWideTypesAndOfParameters) {
  EXPECT_TRUE(narrow_warnings(case_of("weights: bf16, kv: bf16"), plans()).empty());
  // Without fits a byte less is always a byte less.
  Case c = case_of("weights: fp8_dynamic, kv: fp8");
  c.system.calibration.fits.edit().clear();
  EXPECT_TRUE(narrow_warnings(c, plans()).empty());
}

// An H100 finds the scale of a small activation for longer than the product takes: 12 us against 8.
TEST(NarrowWarnings, P15SmallProductsInDynamicFp8) {
  const Case c = case_of("weights: fp8_dynamic, kv: bf16");
  CostModel cost(c.system);
  Op op;
  op.kind = OpKind::gemm;
  op.name = "product";
  op.dtype = Dtype::fp8_dynamic;
  op.math = Dtype::fp8;
  op.shape = GemmShape{1, 1024, 1024};
  const auto loss = narrow_loss(cost, op);
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->wide, Dtype::bf16);
  EXPECT_EQ(loss->time, cost.time(op));
  EXPECT_GT(loss->ratio(), 1.2);
  op.shape = GemmShape{8192, 8192, 8192};
  EXPECT_FALSE(narrow_loss(cost, op));
  op.kind = OpKind::elementwise;
  op.shape = ElementwiseShape{};
  EXPECT_FALSE(narrow_loss(cost, op));
}

}  // namespace
}  // namespace shardline
