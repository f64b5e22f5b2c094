// Which fitted kernel a type is priced by: scales that are known or found, formats of weights alone. [H51],
// [H55]
#include <gtest/gtest.h>

#include <algorithm>

#include "hardware/cost/calibrated_cost.hpp"
#include "hardware/cost/forms/forms.hpp"
#include "hardware/cost/forms/moe.hpp"
#include "tests/hardware/ops.hpp"

namespace shardline {
namespace {

using testing::catalog_system, testing::experts_op, testing::gemm_op;

constexpr GemmShape kShape{64, 4096, 7168};
constexpr testing::Experts kExperts{32, 256, 4096, 2048};

Op gemm_of(Dtype stored, Dtype math) { return gemm_op(kShape, stored, math); }
Op experts_of(Dtype stored, Dtype math) { return experts_op(true, kExperts, 64, 28, stored, math); }

// Fits point to the forms of the table, which are copies.
bool is(const KernelFit& f, const Form& form) { return f.form->family == std::string_view(form.family); }

const KernelFit* find(const System& s, const Form& form, const std::vector<std::string>& words) {
  const auto at = std::find_if(s.calibration.fits.begin(), s.calibration.fits.end(),
                               [&](const KernelFit& f) { return is(f, form) && f.words == words; });
  return at == s.calibration.fits.end() ? nullptr : &*at;
}

// A system whose FP8 products were measured with dynamic scales alone.
System dynamic_only(const char* name = "h100-hgx") {
  System s = catalog_system(name);
  std::erase_if(s.calibration.fits.edit(),
                [](const KernelFit& f) { return is(f, kGemmForm) && f.words[0] == "fp8_static"; });
  std::erase_if(s.calibration.fits.edit(), [](const KernelFit& f) {
    return is(f, kGemmForm) && f.words[1] != "torch_flow" && f.words[1] != "deepgemm";
  });
  return s;
}

KernelFit faster(const System& s, const std::string& kernel, const std::string& derived) {
  KernelFit f = *find(s, kGemmForm, {"fp8", "torch_flow"});
  f.words = {"fp8_static", kernel};
  f.derived = derived;
  f.parameters[0] /= 2;
  return f;
}

TEST(CalibratedTypes, H51FoundScalesAreWhatWasMeasured) {
  const System s = dynamic_only();
  CostModel m(s);
  const OpCost found = m.price(gemm_of(Dtype::fp8_dynamic, Dtype::fp8));
  EXPECT_EQ(found.basis, Basis::measured);
  EXPECT_EQ(found.fit, find(s, kGemmForm, {"fp8", "torch_flow"}));
  // Without a fit of its own a product with a known scale costs what one that finds it does, and says so.
  const OpCost known = m.price(gemm_of(Dtype::fp8, Dtype::fp8));
  EXPECT_EQ(known.basis, Basis::extrapolated);
  EXPECT_EQ(m.alone(known), m.alone(found));
  // Blocks have kernels of their own.
  EXPECT_EQ(m.price(gemm_of(Dtype::fp8_block, Dtype::fp8)).fit,
            find(s, kGemmForm, {"fp8_block", "torch_flow"}));
}

TEST(CalibratedTypes, H51KnownScalesHaveAFitThatIsNeverCalledMeasured) {
  System s = dynamic_only();
  s.calibration.fits.edit().push_back(faster(s, "torch_flow", "gemm fp8 torch_flow less quantize"));
  CostModel m(s);
  const OpCost known = m.price(gemm_of(Dtype::fp8, Dtype::fp8));
  EXPECT_EQ(known.fit, find(s, kGemmForm, {"fp8_static", "torch_flow"}));
  EXPECT_EQ(known.basis, Basis::fitted);
  EXPECT_LT(m.time(gemm_of(Dtype::fp8, Dtype::fp8)), m.time(gemm_of(Dtype::fp8_dynamic, Dtype::fp8)));
  EXPECT_EQ(m.price(gemm_of(Dtype::fp8_dynamic, Dtype::fp8)).basis, Basis::measured);
  // Rows that were measured so are.
  s.calibration.fits.edit().back().derived.clear();
  EXPECT_EQ(CostModel(s).price(gemm_of(Dtype::fp8, Dtype::fp8)).basis, Basis::measured);
}

TEST(CalibratedTypes, H51KnownScalesOfAnotherKernelAreNotTaken) {
  System s = dynamic_only();
  s.calibration.fits.edit().push_back(faster(s, "CutlassFP8", "of another engine"));
  const OpCost known = CostModel(s).price(gemm_of(Dtype::fp8, Dtype::fp8));
  EXPECT_EQ(known.fit, find(s, kGemmForm, {"fp8", "torch_flow"}));
  EXPECT_EQ(known.basis, Basis::extrapolated);
}

TEST(CalibratedTypes, H44TypesOfExpertsByTheirMeasuredNames) {
  struct Row {
    const char* name;
    Dtype stored, math;
    double weight, activation;  // bytes
  };
  const System gb200 = catalog_system("gb200-nvl72");
  for (const Row& row :
       {Row{"bf16", Dtype::bf16, Dtype::bf16, 2, 2}, Row{"fp8", Dtype::fp8, Dtype::fp8, 1, 1},
        Row{"fp8_block", Dtype::fp8_block, Dtype::fp8, 1, 1},
        Row{"nvfp4", Dtype::fp4, Dtype::fp4, 0.5625, 0.5625},
        Row{"w4a16_mxfp4", Dtype::mxfp4, Dtype::bf16, 0.53125, 2},
        Row{"w4a8_mxfp4_mxfp8", Dtype::mxfp4, Dtype::fp8, 0.53125, 1},
        Row{"int4_wo", Dtype::int4, Dtype::bf16, 0.515625, 2}}) {
    const ExpertTypes* types = expert_types(row.name);
    ASSERT_NE(types, nullptr) << row.name;
    EXPECT_EQ(types->stored, row.stored);
    EXPECT_EQ(types->math, row.math);
    FormContext c;
    ASSERT_TRUE(kMoeForm.context(std::vector<std::string>{"k", row.name, "balanced"}, gb200, c));
    EXPECT_EQ(c.b_bytes, row.weight) << row.name;
    EXPECT_EQ(c.a_bytes, row.activation) << row.name;
    EXPECT_EQ(c.flops, gb200.device.peak[static_cast<std::size_t>(row.math)].value) << row.name;
  }
  EXPECT_EQ(expert_types("deepepmoe"), nullptr);
  FormContext c;
  EXPECT_FALSE(kMoeForm.context(std::vector<std::string>{"k", "deepepmoe", "balanced"}, gb200, c));
}

// A kernel is taken for what it stores and computes in; other formats never stand in for one that was
// measured.
TEST(CalibratedTypes, H55ExpertsByWhatTheyStoreAndComputeIn) {
  for (const char* name : {"h100-hgx", "gb200-nvl72"}) {
    const System s = catalog_system(name);
    CostModel m(s);
    const auto words = [&](Dtype stored, Dtype math) {
      const OpCost cost = m.price(experts_of(stored, math));
      return cost.fit == nullptr ? std::string() : cost.fit->words[1];
    };
    EXPECT_EQ(words(Dtype::bf16, Dtype::bf16), "bf16") << name;
    EXPECT_EQ(words(Dtype::fp8, Dtype::fp8), "fp8") << name;
    EXPECT_EQ(words(Dtype::fp8_block, Dtype::fp8), "fp8_block") << name;
    EXPECT_EQ(words(Dtype::mxfp4, Dtype::bf16), "w4a16_mxfp4") << name;
    // The nearest one: as many bits, else the same arithmetic. Never a measured price.
    const OpCost nvfp4 = m.price(experts_of(Dtype::fp4, Dtype::bf16));
    EXPECT_EQ(element_bits(expert_types(nvfp4.fit->words[1])->stored), 4) << name;
    EXPECT_EQ(nvfp4.basis, Basis::extrapolated) << name;
    const OpCost dynamic = m.price(experts_of(Dtype::fp8_dynamic, Dtype::fp8));
    EXPECT_EQ(dynamic.fit->words[1], "fp8") << name;
    EXPECT_EQ(dynamic.basis, Basis::extrapolated) << name;
  }
  const System gb200 = catalog_system("gb200-nvl72");
  EXPECT_EQ(CostModel(gb200).price(experts_of(Dtype::mxfp4, Dtype::fp8)).fit->words[1], "w4a8_mxfp4_mxfp8");
}

// Every stored type has a price under every arithmetic of the device, and narrower weights are never read
// slower by the same kernel.
TEST(CalibratedTypes, EveryTypeHasAPrice) {
  for (const char* name : {"a100-sxm", "h100-hgx", "gb200-nvl72"}) {
    const System s = catalog_system(name);
    CostModel m(s);
    for (std::size_t t = 0; t < kDtypes; ++t) {
      const auto stored = static_cast<Dtype>(t);
      if (stored == Dtype::fp32) continue;
      for (const Dtype math : {Dtype::fp8, Dtype::bf16}) {
        if (!(s.device.achieved(math) > FlopsPerSecond(0))) continue;
        const OpCost cost = m.price(gemm_of(stored, math));
        EXPECT_NE(cost.fit, nullptr) << name << ' ' << to_string(stored) << " in " << to_string(math);
        EXPECT_NE(m.price(experts_of(stored, math)).fit, nullptr) << name << ' ' << to_string(stored);
        // At least its bytes at the HBM's peak.
        EXPECT_GE(m.alone(cost).value,
                  4096.0 * 7168 * bytes_per_element(stored) / s.device.memory_bandwidth.value * (1 - 1e-12));
      }
    }
    EXPECT_LE(m.time(gemm_of(Dtype::int4, Dtype::bf16)), m.time(gemm_of(Dtype::mxfp4, Dtype::bf16))) << name;
    EXPECT_LE(m.time(gemm_of(Dtype::mxfp4, Dtype::bf16)), m.time(gemm_of(Dtype::bf16, Dtype::bf16))) << name;
  }
}

}  // namespace
}  // namespace shardline
