// Which measured kernel is taken [H64].
#include "hardware/cost/kernel_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "hardware/cost/calibrated_cost.hpp"
#include "hardware/cost/kernel_cost.hpp"
#include "hardware/machine/frameworks.hpp"
#include "tests/hardware/ops.hpp"

namespace shardline {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

Calibration with(const char* family,
                 const std::vector<std::pair<std::string, std::vector<std::string>>>& fits) {
  Calibration c;
  for (const auto& [framework, words] : fits) {
    KernelFit f;
    f.form = find_form(family);
    f.framework = framework;
    f.words = words;
    c.fits.edit().push_back(f);
  }
  return c;
}

KernelList list_of(const std::string& rules) {
  return parse_kernel_list("list.yaml", "name: own\nversion: '1'\nkernels:\n" + rules);
}

std::vector<std::string> chosen(const Calibration& c, const KernelList& list, const char* family,
                                std::vector<std::string_view> words,
                                Architecture architecture = Architecture::hopper) {
  std::vector<std::string> out;
  for (const ChosenKernel& k : choose_kernels(c, list, architecture, *find_form(family), words))
    out.push_back((k.borrowed ? "borrowed " : "") + std::string(k.instead ? "instead " : "") +
                  k.fit->framework + "/" + k.fit->words[*kernel_column(*k.fit->form)]);
  return out;
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(KernelList, H64TheFirstMeasuredKernelOfTheFirstRuleThatHolds) {
  const Calibration c = with("gemm", {{"own", {"bf16", "a"}}, {"own", {"bf16", "b"}}, {"own", {"fp8", "b"}}});
  const KernelList list = list_of(
      "  gemm:\n"
      "    - {use: [z, b], when: {architecture: hopper}, why: read}\n"
      "    - {use: [a], why: read}\n");
  EXPECT_THAT(chosen(c, list, "gemm", {"bf16", "*"}), ElementsAre("own/b"));
  EXPECT_THAT(chosen(c, list, "gemm", {"bf16", "*"}, Architecture::blackwell), ElementsAre("own/a"));
  EXPECT_THAT(chosen(c, list, "gemm", {"fp8", "*"}), ElementsAre("own/b"));
  EXPECT_THAT(chosen(c, list, "gemm", {"nvfp4", "*"}), ElementsAre());
}

TEST(KernelList, H64RulesHoldForTypesAndSizes) {
  const Calibration c = with("moe", {{"own", {"few", "nvfp4", "balanced"}},
                                     {"own", {"many", "bf16", "balanced"}},
                                     {"own", {"many", "nvfp4", "balanced"}}});
  const KernelList list = list_of(
      "  moe:\n"
      "    - {use: [few], when: {dtype: nvfp4, most_tokens: 128}, why: read}\n"
      "    - {use: [many], why: read}\n"
      "    - {use: [few], why: never reached}\n");
  EXPECT_THAT(chosen(c, list, "moe", {"*", "nvfp4", "*"}), ElementsAre("own/few", "own/many"));
  EXPECT_THAT(chosen(c, list, "moe", {"*", "bf16", "*"}), ElementsAre("own/many"));
  const std::string_view words[] = {"*", "nvfp4", "*"};
  const auto all = choose_kernels(c, list, Architecture::blackwell, *find_form("moe"), words);
  EXPECT_TRUE(all[0].sizes.hold({.size = 128}));
  EXPECT_FALSE(all[0].sizes.hold({.size = 129}));
  EXPECT_TRUE(all[1].sizes.any());
}

TEST(KernelList, H64RulesHoldForRanksOfExpertsAndForNodes) {
  const Calibration c =
      with("moe", {{"own", {"alone", "fp8", "balanced"}}, {"own", {"spread", "fp8", "balanced"}}});
  const KernelList list = list_of(
      "  moe:\n"
      "    - {use: [alone], when: {most_ep: 1}, why: read}\n"
      "    - {use: [spread], why: read}\n"
      "  allreduce:\n"
      "    - {use: [small], when: {gpus: [8], most_gpus_per_node: 8}, why: read}\n");
  const std::string_view words[] = {"*", "fp8", "*"};
  const auto all = choose_kernels(c, list, Architecture::hopper, *find_form("moe"), words);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all[0].sizes.hold({.size = 9, .expert_ranks = 1}));
  EXPECT_FALSE(all[0].sizes.hold({.size = 9, .expert_ranks = 2}));
  EXPECT_FALSE(all[0].sizes.any());
  const KernelSizes& small = list.rules.back().sizes;
  EXPECT_TRUE(small.hold({.size = 9, .group = 8, .node = 8}));
  EXPECT_FALSE(small.hold({.size = 9, .group = 8, .node = 72}));
  EXPECT_FALSE(small.hold({.size = 9, .group = 4, .node = 8}));
  EXPECT_FALSE(small.any());
}

// The kernel that an op's price is from.
std::string kernel_of(CostModel& cost, const Op& op) {
  const KernelFit* fit = cost.price(op).fit;
  return fit == nullptr ? "none" : fit->framework + " " + fit->name();
}

// vLLM's oracle/fp8.py takes Triton for experts that lie whole on each rank, CUTLASS for those that are
// spread.
TEST(KernelList, H64VllmsExpertsOnHopperGoByExpertParallelism) {
  for (const char* name : {"h100-hgx", "h200-hgx"}) {
    System s = testing::catalog_system(name);
    use_framework(s, "vllm", testing::system_catalog());
    CostModel cost(s);
    for (const Count ranks : {1, 2, 8, 64}) {
      for (const Count tokens : {1, 64, 4096}) {
        Op op = testing::experts_op(true, {256 / ranks, tokens, 7168, 2048, true, 8},
                                    8.0 * static_cast<double>(tokens) / static_cast<double>(ranks), 1,
                                    Dtype::fp8_block, Dtype::fp8);
        std::get<GroupedGemmShape>(op.shape).ranks = ranks;
        EXPECT_THAT(kernel_of(cost, op), HasSubstr(ranks == 1 ? "fp8moe_triton_triton" : "fp8moe_cutlass_fi"))
            << name << " " << ranks << " " << tokens;
      }
    }
  }
}

// SGLang's auto goes by the step, vLLM has servers of one kind: DeepEP's low-latency kernels are for steps
// that decode, of any number of tokens that they have room for, its normal ones for steps with prompts.
TEST(KernelList, H64ExchangesGoByTheKindOfStep) {
  const auto takes = [](const char* framework, bool prompts, double rows) {
    System s = testing::catalog_system("h100-hgx");
    use_framework(s, framework, testing::system_catalog());
    Op op = testing::routed_op({8, 1}, rows, 7168, 8, 256, false, Dtype::fp8);
    std::get<RoutedShape>(op.shape).prompts = prompts;
    CostModel cost(s);
    return kernel_of(cost, op);
  };
  for (const char* framework : {"sglang", "vllm"}) {
    for (const double rows : {1, 128, 129, 512, 1024}) {
      EXPECT_THAT(takes(framework, false, rows), HasSubstr("deepep_ll")) << framework << " " << rows;
      EXPECT_THAT(takes(framework, true, rows), HasSubstr("deepep_normal")) << framework << " " << rows;
    }
  }
  // SGLang has room for 1024 tokens at most; vLLM makes room for its largest step.
  EXPECT_THAT(takes("sglang", false, 1025), HasSubstr("deepep_normal"));
  EXPECT_THAT(takes("vllm", false, 1025), HasSubstr("deepep_ll"));
}

// Absorbed products whose weights an engine has widened cost what they do of BF16 weights.
TEST(KernelList, H64AbsorbedProductsOfWidenedWeightsRunInBf16) {
  const auto priced = [](const char* framework, Dtype weights, Dtype math) {
    System s = testing::catalog_system("h200-hgx");
    use_framework(s, framework, testing::system_catalog());
    CostModel cost(s);
    const Op op = testing::batched_op({LatentProduct::absorb_query, 64, 512, 128, 16, 1}, weights, math);
    const OpCost price = cost.price(op);
    return std::pair(price.fit->words[1], cost.time(op).value);
  };
  for (const char* framework : {"sglang", "vllm"}) {
    const auto wide = priced(framework, Dtype::bf16, Dtype::bf16);
    EXPECT_EQ(priced(framework, Dtype::fp8_block, Dtype::fp8), wide) << framework;
    EXPECT_EQ(wide.first, "bf16");
  }
  // SGLang multiplies weights with one scale as they are, TensorRT-LLM all of them.
  EXPECT_EQ(priced("sglang", Dtype::fp8, Dtype::fp8).first, "fp8");
  EXPECT_EQ(priced("trtllm", Dtype::fp8_block, Dtype::fp8).first, "fp8");
}

// vLLM's dispatcher has a kernel of its own for 8 GPUs of Blackwell up to 128 MB, hosts or not, and SGLang's
// stays within a host: hosts of an HGX hold 8 GPUs, those of an NVL72 four. Measured on 2 and 4.
TEST(KernelList, H64AllReducesOfEightGpusOnBlackwell) {
  const auto takes = [](const char* framework, const char* name, int gpus, double bytes) {
    System s = testing::catalog_system(name);
    use_framework(s, framework, testing::system_catalog());
    CostModel cost(s);
    const Op op = testing::exchange_op(OpKind::all_reduce, {gpus, 1}, {Bytes(bytes)});
    EXPECT_EQ(cost.price(op).basis == Basis::extrapolated, gpus == 8) << framework << " " << bytes;
    return kernel_of(cost, op);
  };
  constexpr double kMiB = 1048576;
  for (const char* name : {"gb200-nvl72", "b200-hgx"}) {
    EXPECT_THAT(takes("vllm", name, 8, kMiB / 16), HasSubstr("custom_graph"));
    EXPECT_THAT(takes("vllm", name, 8, 128 * kMiB), HasSubstr("custom_graph"));
    EXPECT_THAT(takes("vllm", name, 8, 129 * kMiB), HasSubstr("nccl"));
  }
  EXPECT_THAT(takes("sglang", "b200-hgx", 8, kMiB), HasSubstr("customallreduce_graph"));
  EXPECT_THAT(takes("sglang", "b200-hgx", 8, 17 * kMiB), HasSubstr("nccl"));
  EXPECT_THAT(takes("sglang", "gb200-nvl72", 8, kMiB), HasSubstr("nccl"));
  EXPECT_THAT(takes("sglang", "gb200-nvl72", 4, kMiB), HasSubstr("customallreduce_graph"));
}

TEST(KernelList, H64OwnKernelsComeBeforeThoseOfOthers) {
  const Calibration c = with("gemm", {{"", {"bf16", "a"}}, {"other", {"bf16", "a"}}, {"own", {"bf16", "a"}}});
  EXPECT_THAT(chosen(c, list_of("  gemm: [{use: [a], why: read}]\n"), "gemm", {"bf16", "*"}),
              ElementsAre("own/a"));
  EXPECT_THAT(chosen(c, list_of("  gemm: [{use: [other/a], why: read}]\n"), "gemm", {"bf16", "*"}),
              ElementsAre("borrowed other/a"));
  // A calibration that does not say whose its kernels are has those of any list.
  const Calibration nameless = with("gemm", {{"", {"bf16", "a"}}, {"", {"bf16", "b"}}});
  EXPECT_THAT(chosen(nameless, list_of("  gemm: [{use: [other/b], why: read}]\n"), "gemm", {"bf16", "*"}),
              ElementsAre("/b"));
}

TEST(KernelList, H64WhatWasAskedForAndNotMeasuredIsSaid) {
  const Calibration c = with("gemm", {{"own", {"bf16", "a"}}, {"own", {"bf16", "b"}}, {"own", {"fp8", "a"}}});
  KernelList list = list_of("  gemm: [{use: [a], why: read}]\n");
  KernelRule asked;
  asked.family = "gemm";
  asked.use = {{"", "b"}};
  asked.asked = true;
  list.rules.insert(list.rules.begin(), asked);
  EXPECT_THAT(chosen(c, list, "gemm", {"bf16", "*"}), ElementsAre("own/b"));
  EXPECT_THAT(chosen(c, list, "gemm", {"fp8", "*"}), ElementsAre("instead own/a"));
}

TEST(KernelList, H64TheOnlyKernelNeedsNoRuleAndSeveralDo) {
  const KernelList none = list_of("  moe: [{use: [a], why: read}]\n");
  EXPECT_THAT(chosen(with("gemm", {{"own", {"bf16", "a"}}}), none, "gemm", {"bf16", "*"}),
              ElementsAre("own/a"));
  const Calibration two = with("gemm", {{"own", {"bf16", "a"}}, {"own", {"bf16", "b"}}});
  const std::string said = refusal([&] { chosen(two, none, "gemm", {"bf16", "*"}); });
  EXPECT_THAT(said,
              HasSubstr("gemm bf16 *: 2 kernels were measured, and the list of own names none of them"));
  EXPECT_THAT(said, HasSubstr("own/a, own/b"));
  EXPECT_THAT(said, HasSubstr("kernels: {gemm: own/a}"));
}

TEST(KernelList, FaultsNameTheirPlace) {
  const auto fault = [](const std::string& rules) { return refusal([&] { list_of(rules); }); };
  EXPECT_THAT(fault("  gemms: []\n"), HasSubstr("list.yaml:4:3"));
  EXPECT_THAT(fault("  gemm: [{use: [a], when: {architecture: hoper}, why: x}]\n"), HasSubstr("hopper"));
  EXPECT_THAT(fault("  gemm: [{use: [a], when: {most_tokens: 3}, why: x}]\n"), HasSubstr("most_tokens"));
  EXPECT_THAT(fault("  moe: [{use: [a], when: {least_tokens: 4, most_tokens: 3}, why: x}]\n"),
              HasSubstr("no size is from 4 to 3"));
  EXPECT_THAT(fault("  moe: [{use: [a], when: {least_ep: 4, most_ep: 3}, why: x}]\n"),
              HasSubstr("no size is from 4 to 3"));
  // Conditions that nothing asks of a family's ops.
  EXPECT_THAT(fault("  gemm: [{use: [a], when: {most_ep: 1}, why: x}]\n"), HasSubstr("most_ep"));
  EXPECT_THAT(fault("  moe: [{use: [a], when: {gpus: [8]}, why: x}]\n"), HasSubstr("gpus"));
  EXPECT_THAT(fault("  alltoall: [{use: [a], when: {most_gpus_per_node: 8}, why: x}]\n"),
              HasSubstr("most_gpus_per_node"));
  EXPECT_THAT(fault("  gemm: [{use: [a], when: {step: decode}, why: x}]\n"), HasSubstr("step"));
  EXPECT_THAT(fault("  alltoall: [{use: [a], when: {tokens: here}, why: x}]\n"), HasSubstr("tokens"));
  EXPECT_THAT(fault("  moe: [{use: [a], when: {tokens: sent}, why: x}]\n"), HasSubstr("dispatched"));
  EXPECT_THAT(fault("  alltoall: [{use: [a], when: {step: decodes}, why: x}]\n"), HasSubstr("decode"));
  EXPECT_THAT(fault("mla_absorbed_in_bf16: {weights: [fp8_blok], why: x}\n"), HasSubstr("fp8_block"));
  EXPECT_THAT(fault("index_rows_together: [{architecture: hoper, why: x}]\n"), HasSubstr("hopper"));
  EXPECT_THAT(fault("index_rows_together: [{architecture: hopper, rows: [1], why: x}]\n"), HasSubstr("2"));
  EXPECT_THAT(fault("index_rows_together: [{architecture: hopper}]\n"), HasSubstr("why"));
  EXPECT_THAT(fault("  gemm: [{use: [a]}]\n"), HasSubstr("why"));
  EXPECT_THAT(fault("  gemm: [{use: [], why: x}]\n"), HasSubstr("use is empty"));
  EXPECT_THAT(refusal([] { load_kernel_list("sgland", testing::system_catalog()); }), HasSubstr("sglang"));
}

TEST(KernelList, H73RowsOfAnIndexShareAPassWhereTheListSaysSo) {
  KernelList list;
  list.index_rows = {{{Architecture::hopper}, {2}}, {{Architecture::blackwell}, {}}};
  const auto passes = [&](long long rows, Architecture a) { return list.index_passes(rows, a); };
  EXPECT_EQ(passes(1, Architecture::hopper), 1);
  EXPECT_EQ(passes(2, Architecture::hopper), 1);
  EXPECT_EQ(passes(3, Architecture::hopper), 3);
  EXPECT_EQ(passes(1, Architecture::blackwell), 1);
  EXPECT_EQ(passes(5, Architecture::blackwell), 3);
  EXPECT_EQ(passes(2, Architecture::ampere), 2);
}

TEST(KernelList, ArchitecturesFollowFromTheNarrowestUnit) {
  EXPECT_EQ(architecture_of(testing::catalog_system("a100-sxm").device), Architecture::ampere);
  EXPECT_EQ(architecture_of(testing::catalog_system("h200-hgx").device), Architecture::hopper);
  EXPECT_EQ(architecture_of(testing::catalog_system("b200-hgx").device), Architecture::blackwell);
}

// Every list chooses for every system that ships.
TEST(KernelList, H64EveryShippedListChoosesOnEverySystem) {
  for (const std::string& framework : kernel_list_names(testing::system_catalog())) {
    for (const std::string& name : system_names(testing::system_catalog())) {
      SCOPED_TRACE(framework + " on " + name);
      System s = testing::catalog_system(name);
      if (s.calibration.empty()) continue;
      use_framework(s, framework, testing::system_catalog());
      EXPECT_NO_THROW(CalibratedCost{s});
      EXPECT_EQ(s.kernels.framework, framework);
    }
  }
}

// A name that no calibration has is a rule that never holds.
TEST(KernelList, H64EveryKernelThatAListNamesWasMeasured) {
  std::set<std::string> known{"allreduce nccl"};
  for (const char* name : {"a100-sxm", "h100-hgx", "h200-hgx", "gb200-nvl72"}) {
    for (const std::string& framework : kernel_list_names(testing::system_catalog())) {
      System s = testing::catalog_system(name);
      use_framework(s, framework, testing::system_catalog());
      for (const KernelFit& f : s.calibration.fits) {
        const auto column = kernel_column(*f.form);
        if (column) known.insert(std::string(f.form->family) + " " + f.words[*column]);
      }
    }
  }
  for (const std::string& framework : kernel_list_names(testing::system_catalog())) {
    for (const KernelRule& rule : load_kernel_list(framework, testing::system_catalog()).rules) {
      for (const KernelName& n : rule.use)
        EXPECT_TRUE(known.contains(rule.family + " " + n.kernel))
            << framework << ": " << rule.family << " " << n.kernel;
    }
  }
}

}  // namespace
}  // namespace shardline
