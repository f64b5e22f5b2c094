// [H41]-[H43], [H46] Forms of collectives, of dispatch and combine: closed values, limits, and shapes far
// beyond any measurement.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "hardware/cost/forms/forms.hpp"
#include "tests/hardware/support.hpp"

namespace shardline {
namespace {

using Words = std::vector<std::string>;
using Numbers = std::vector<double>;

FormContext context_of(const Form& form, const Words& words, const char* system = "h100-hgx") {
  FormContext c;
  EXPECT_TRUE(form.context(words, testing::catalog_system(system), c)) << form.family;
  return c;
}
Numbers starts(const Form& form) {
  Numbers p;
  for (const FormParameter& one : form.parameters) p.push_back(one.start);
  return p;
}

struct Case {
  const Form* form;
  Words words;
  Numbers low, high;  // of each coordinate of x, equal: fixed
  const char* system = "h100-hgx";
};

std::vector<Case> cases() {
  std::vector<Case> out;
  // A switch that sums gives less to each of more GPUs [H46]: there the message alone is followed.
  for (const char* op : {"all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"}) {
    out.push_back({&kNcclForm, {op}, {2, 1}, {512, 1e12}, "a100-sxm"});
    out.push_back({&kNcclForm, {op}, {72, 1}, {72, 1e12}, "gb200-nvl72"});
  }
  out.push_back({&kAllreduceForm, {"trtllm_auto", "bf16"}, {2, 1}, {512, 1e12}, "a100-sxm"});
  out.push_back({&kAllreduceForm, {"trtllm_auto", "bf16"}, {72, 1}, {72, 1e12}, "gb200-nvl72"});
  // gpus, nodes, tokens, hidden, topk, experts, sms
  for (const char* phase : {"dispatch", "combine"}) {
    out.push_back({&kAlltoallForm,
                   {"deepep_ll", phase, "fp8"},
                   {64, 8, 1, 512, 1, 64, 0},
                   {64, 8, 1e6, 16384, 32, 1024, 0}});
    out.push_back({&kAlltoallForm,
                   {"deepep_normal", phase, "fp8"},
                   {64, 8, 1, 512, 1, 64, 20},
                   {64, 8, 1e6, 16384, 32, 1024, 20}});
    out.push_back({&kAlltoallForm,
                   {"trtllm_nvlink_two_sided", phase, "nvfp4"},
                   {72, 18, 1, 512, 1, 72, 0},
                   {72, 18, 1e6, 16384, 32, 1152, 0},
                   "gb200-nvl72"});
  }
  out.push_back({&kAlltoallForm,
                 {"trtllm_nvlink_two_sided", "prepare", "bf16"},
                 {64, 16, 1, 512, 1, 64, 0},
                 {64, 16, 1e6, 16384, 32, 1024, 0},
                 "gb200-nvl72"});
  // tokens, hidden, inter, topk, experts, tp, ep
  for (const char* routing : {"balanced", "power_law_1.2"}) {
    for (const char* kernel : {"torch_flow_cutlass", "torch_flow_nongated"})
      out.push_back({&kMoeForm,
                     {kernel, "fp8", routing},
                     {1, 512, 256, 1, 64, 1, 1},
                     {1e6, 16384, 32768, 32, 64, 1, 1}});
    out.push_back({&kMoeForm,
                   {"deepgemm", "fp8_block", routing},
                   {1, 512, 256, 1, 512, 1, 64},
                   {1e6, 16384, 32768, 32, 512, 1, 64}});
    for (const char* kernel : {"deepepmoe", "deepepmoe_masked"})
      out.push_back({&kMoeForm,
                     {kernel, "fp8_block", routing},
                     {1, 512, 256, 1, 512, 1, 64},
                     {1e6, 16384, 32768, 32, 512, 1, 64}});
    out.push_back({&kMoeForm,
                   {"torch_flow_cutlass", "nvfp4", routing},
                   {1, 512, 256, 1, 256, 1, 256},
                   {1e6, 16384, 32768, 32, 256, 1, 256},
                   "gb200-nvl72"});
  }
  return out;
}

TEST(CollectiveForms, H41ToH44AreInTheTableAndConsistent) {
  for (const Form* f : {&kNcclForm, &kAllreduceForm, &kAlltoallForm, &kMoeForm}) {
    const Form* found = find_form(f->family);
    ASSERT_NE(found, nullptr) << f->family;
    EXPECT_EQ(found->seconds, f->seconds);
    EXPECT_LE(f->axes.size(), kMostAxes);
    for (const FormParameter& p : f->parameters) {
      EXPECT_GT(p.low, 0) << p.name;
      EXPECT_LT(p.low, p.start) << p.name;
      EXPECT_LT(p.start, p.high) << p.name;
    }
  }
}

// Every coordinate of x alone, in steps of a third of a doubling, with parameters at their starts and near
// both bounds.
TEST(CollectiveForms, H41ToH44PositiveFiniteAndNeverFasterForMore) {
  for (const Case& one : cases()) {
    const FormContext c = context_of(*one.form, one.words, one.system);
    for (const double part : {0.0, 0.3, 0.5, 0.7, 1.0}) {
      Numbers p = starts(*one.form);
      if (part != 0.5) {
        for (std::size_t i = 0; i < p.size(); ++i) {
          const FormParameter& b = one.form->parameters[i];
          p[i] = b.low * std::pow(b.high / b.low, part);
        }
      }
      for (std::size_t i = 0; i < one.low.size(); ++i) {
        if (one.low[i] == one.high[i]) continue;
        Numbers x = one.low;
        for (std::size_t k = 0; k < x.size(); ++k) x[k] = std::floor(std::sqrt(one.low[k] * one.high[k]));
        double before = 0;
        for (double v = one.low[i]; v <= one.high[i]; v *= std::cbrt(2.0)) {
          x[i] = v;
          // Of the experts themselves only the number in a rank's hands counts; see the tests below.
          if (std::string(one.form->numbers[i]) == "experts") continue;
          ASSERT_TRUE(one.form->covers(x));
          const double t = one.form->seconds(x, c, p);
          ASSERT_TRUE(std::isfinite(t) && t > 0);
          ASSERT_GE(t, before * (1 - 1e-12)) << one.form->family << ' ' << one.words[0] << ' '
                                             << one.form->numbers[i] << " = " << v << ", part " << part;
          before = t;
          double at[kMostAxes];
          one.form->coordinates(x, c, at);
          for (std::size_t a = 0; a < one.form->axes.size(); ++a) ASSERT_TRUE(std::isfinite(at[a]));
        }
      }
    }
  }
}

// t0, alpha, fill, e_link, own, nvls
TEST(NcclForm, H41ClosedValues) {
  const Numbers p{3, 0.5, 4, 0.8, 1e-12, 1};
  const FormContext c = context_of(kNcclForm, {"all_reduce"});
  EXPECT_EQ(c.link, 450e9);
  EXPECT_EQ(c.bandwidth, c.link);
  EXPECT_EQ(c.flops, 0);
  // 14 steps of 8 GPUs; 1.75 MB through a port, and the root of 1.75 MB x 4 MB.
  const Numbers x{8, 1e6};
  EXPECT_DOUBLE_EQ(kNcclForm.traffic(x, c), 1.75e6);
  EXPECT_NEAR(kNcclForm.seconds(x, c, p), 10e-6 + (1.75e6 + std::sqrt(7.0) * 1e6) / 360e9, 1e-15);
  // Seven steps and half of the bytes.
  for (const char* op : {"all_gather", "reduce_scatter", "alltoall"}) {
    const FormContext half = context_of(kNcclForm, {op});
    EXPECT_NEAR(kNcclForm.seconds(x, half, p), 6.5e-6 + (0.875e6 + std::sqrt(3.5) * 1e6) / 360e9, 1e-15)
        << op;
  }
  // What stays is copied, at half of what a byte through the port costs: of 1 MB 125 KB.
  const FormContext gather = context_of(kNcclForm, {"all_gather"});
  EXPECT_NEAR(kNcclForm.seconds(x, gather, {{3, 0.5, 1e-12, 0.8, 0.5, 1}}), 6.5e-6 + 0.9375e6 / 360e9, 1e-11);
  // To the next GPU: one step, the whole buffer, however many GPUs.
  const FormContext send = context_of(kNcclForm, {"sendrecv"});
  EXPECT_NEAR(kNcclForm.seconds(x, send, p), 3.5e-6 + 3e6 / 360e9, 1e-15);
  EXPECT_DOUBLE_EQ(kNcclForm.seconds(Numbers{2, 1e6}, send, p), kNcclForm.seconds(Numbers{64, 1e6}, send, p));
}

TEST(NcclForm, H41TinyIsLatencyAndHugeIsTheLink) {
  const Numbers p{3, 0.5, 1, 0.8, 1e-9, 1};
  for (const char* op : {"all_reduce", "all_gather", "reduce_scatter", "alltoall"}) {
    const FormContext c = context_of(kNcclForm, {op}, "a100-sxm");
    const double crossings = std::string(op) == "all_reduce" ? 2 : 1;
    EXPECT_NEAR(kNcclForm.seconds(Numbers{4, 1e-6}, c, p), 3e-6 + 0.5e-6 * 3 * crossings, 1e-11) << op;
    for (const double gpus : {2.0, 8.0, 72.0, 512.0}) {
      const Numbers x{gpus, 1e13};
      const double bus = kNcclForm.traffic(x, c) / kNcclForm.seconds(x, c, p);
      EXPECT_NEAR(bus / (0.8 * 300e9), 1, 1e-3) << op << ' ' << gpus;
    }
  }
}

TEST(NcclForm, H41EveryGpuAddsItsSteps) {
  const Numbers p{3, 1, 1e-3, 0.8, 1e-9, 1};
  const FormContext reduce = context_of(kNcclForm, {"all_reduce"}, "a100-sxm"),
                    gather = context_of(kNcclForm, {"all_gather"}, "a100-sxm");
  EXPECT_NEAR(kNcclForm.seconds(Numbers{8, 1}, reduce, p), 17e-6, 1e-9);
  EXPECT_NEAR(kNcclForm.seconds(Numbers{64, 1}, reduce, p), 129e-6, 1e-9);
  EXPECT_NEAR(kNcclForm.seconds(Numbers{64, 1}, gather, p), 66e-6, 1e-9);
  // Nor has NVLink SHARP anything to sum.
  const FormContext switched = context_of(kNcclForm, {"all_gather"});
  EXPECT_NEAR(kNcclForm.seconds(Numbers{64, 1}, switched, p), 66e-6, 1e-9);
}

// NCCL's own constants: 0.85 of 20.6 GB/s per link of 25 on Hopper, 0.74 of 40.1 of 50 on Blackwell.
TEST(NvlsForm, H46SwitchesSumWhereTheyCan) {
  const Numbers p{3, 1, 1e-3, 0.8, 1e-9, 1};
  const FormContext hopper = context_of(kNcclForm, {"all_reduce"}),
                    blackwell = context_of(kNcclForm, {"all_reduce"}, "gb200-nvl72"),
                    ampere = context_of(kNcclForm, {"all_reduce"}, "a100-sxm");
  // One latency for any number of GPUs.
  for (const double gpus : {16.0, 32.0, 72.0})
    EXPECT_NEAR(kNcclForm.seconds(Numbers{gpus, 1}, hopper, p), 25e-6, 1e-7) << gpus;
  // S + S / n through a port, and the root of that and 4 MB at 8 GPUs.
  const double wire = 1.125e9, rate = 18 * 20.6e9 * 0.85;
  EXPECT_NEAR(kNcclForm.seconds(Numbers{8, 1e9}, hopper, p), 25e-6 + (wire + std::sqrt(wire * 4e6)) / rate,
              1e-12);
  EXPECT_NEAR(kNcclForm.seconds(Numbers{8, 1e13}, blackwell, p) / (1.125e13 / (18 * 40.1e9 * 0.74)), 1, 1e-3);
  // Nine times the GPUs fill 81 times the pipeline.
  const double far = 1e10 * 73 / 72, blackwell_rate = 18 * 40.1e9 * 0.74;
  EXPECT_NEAR(kNcclForm.seconds(Numbers{72, 1e10}, blackwell, p),
              25e-6 + (far + std::sqrt(far * 324e6)) / blackwell_rate, 1e-12);
  // Four GPUs are no faster by it, and a fabric without multicast has none.
  EXPECT_NEAR(kNcclForm.seconds(Numbers{4, 1e13}, hopper, p) / (1.5e13 / (450e9 * 0.8)), 1, 1e-3);
  EXPECT_NEAR(kNcclForm.seconds(Numbers{8, 1e13}, ampere, p) / (1.75e13 / (300e9 * 0.8)), 1, 1e-3);
  Numbers slow = p;
  slow[5] = 0.5;  // slower than a ring: then it is a ring
  EXPECT_NEAR(kNcclForm.seconds(Numbers{8, 1e13}, hopper, slow) / (1.75e13 / (450e9 * 0.8)), 1, 1e-3);
}

TEST(AllreduceForm, H42OneShotThenTheLibrary) {
  const Numbers p{2, 0.5, 0.5, 256, 1e-4, 0.8, 1};
  const FormContext c = context_of(kAllreduceForm, {"trtllm_auto", "bf16"}),
                    ring = context_of(kAllreduceForm, {"trtllm_auto", "bf16"}, "a100-sxm");
  EXPECT_NEAR(kAllreduceForm.seconds(Numbers{8, 1}, c, p), 3.5e-6, 1e-9);
  // Two GPUs read as much either way; the faster way has the rate.
  EXPECT_NEAR(kAllreduceForm.seconds(Numbers{2, 450e3}, c, {{2.0, 0.5, 1.0, 256, 1e-4, 0.1, 1}}), 3.5e-6,
              1e-8);
  for (const double gpus : {4.0, 8.0, 72.0}) {
    const Numbers x{gpus, 1e13};
    EXPECT_NEAR(kAllreduceForm.traffic(x, ring) / kAllreduceForm.seconds(x, ring, p) / (0.8 * 300e9), 1,
                1e-3);
  }
  // Its library sums in the switch where it can.
  EXPECT_NEAR(kAllreduceForm.seconds(Numbers{8, 1e13}, c, p) / (1.125e13 / (18 * 20.6e9 * 0.85)), 1, 1e-3);
  // One-shot reads 7 buffers where two-shot moves 1.75.
  const double small = kAllreduceForm.seconds(Numbers{8, 1e5}, c, {{2.0, 0.5, 0.5, 256, 100, 0.8, 1}});
  EXPECT_NEAR(small, 3.5e-6 + 7e5 / 225e9, 2e-8);
}

// gpus, nodes, tokens, hidden, topk, experts, sms
TEST(AlltoallForm, H43BytesPerToken) {
  const FormContext rank = context_of(kAlltoallForm, {"deepep_normal", "combine", "bf16"});
  const FormContext expert = context_of(kAlltoallForm, {"deepep_ll", "dispatch", "fp8"});
  // One expert per token of 8 ranks: 7 of 8 tokens leave.
  EXPECT_NEAR(kAlltoallForm.traffic(Numbers{8, 1, 1, 1000, 1, 64, 20}, rank), 2000 * 7. / 8, 1e-9);
  EXPECT_NEAR(kAlltoallForm.traffic(Numbers{8, 1, 1, 1000, 1, 64, 0}, expert), 1031.25 * 7 / 8, 1e-9);
  // All experts: all other ranks, once; or as many times as they have experts.
  EXPECT_NEAR(kAlltoallForm.traffic(Numbers{8, 1, 1, 1000, 64, 64, 20}, rank), 2000 * 7, 1e-6);
  EXPECT_NEAR(kAlltoallForm.traffic(Numbers{8, 1, 1, 1000, 64, 64, 0}, expert), 1031.25 * 56, 1e-6);
  // Without replacement: two of eight experts on eight ranks touch two.
  EXPECT_NEAR(kAlltoallForm.traffic(Numbers{8, 1, 1, 1000, 2, 8, 20}, rank), 2000 * 2 * 7. / 8, 1e-9);
  EXPECT_EQ(rank.flops, 0);
}

TEST(AlltoallForm, H43NetworkAndNvlinkAreApart) {
  // t0, alpha, flag, row, token, sender, e_link, e_network, spread
  const Numbers p{10, 5, 0.01, 1e-3, 0.01, 500, 0.5, 0.8, 0.1};
  const FormContext c = context_of(kAlltoallForm, {"deepep_ll", "combine", "bf16"});
  const Numbers inside{8, 1, 1e6, 7168, 8, 256, 0}, across{64, 8, 1e6, 7168, 8, 256, 0};
  const double row = 2. * 7168 * 1e6 * 8;
  EXPECT_NEAR(kAlltoallForm.seconds(inside, c, p) / (row * 7 / 8 / (0.5 * 450e9)), 1, 0.15);
  EXPECT_NEAR(kAlltoallForm.seconds(across, c, p) / (row * 7 / 8 / (0.8 * 50e9)), 1, 0.01);
  Numbers faster = p;
  faster[7] = 0.4;
  EXPECT_DOUBLE_EQ(kAlltoallForm.seconds(inside, c, faster), kAlltoallForm.seconds(inside, c, p));
  EXPECT_NEAR(kAlltoallForm.seconds(across, c, faster) / kAlltoallForm.seconds(across, c, p), 2, 0.01);
  // Three doublings of nodes, one token.
  const Numbers one_in{8, 1, 1, 64, 1, 8, 0}, one_out{64, 8, 1, 64, 1, 8, 0};
  EXPECT_NEAR(kAlltoallForm.seconds(one_out, c, p) - kAlltoallForm.seconds(one_in, c, p), 15e-6, 1e-7);
}

TEST(AlltoallForm, H43NodesOfOneDomainAreNoBoundary) {
  const FormContext c = context_of(kAlltoallForm, {"trtllm_nvlink_two_sided", "dispatch", "bf16"});
  EXPECT_EQ(c.network, 0);
  const Numbers p = starts(kAlltoallForm);
  EXPECT_DOUBLE_EQ(kAlltoallForm.seconds(Numbers{64, 16, 1e4, 7168, 8, 256, 0}, c, p),
                   kAlltoallForm.seconds(Numbers{64, 1, 1e4, 7168, 8, 256, 0}, c, p));
}

// Tables of these kernels deal the experts of a token out to as many ranks as there are experts, or ranks.
TEST(AlltoallForm, H43CopiesOfDealtExpertsAndOfAny) {
  const FormContext dealt = context_of(kAlltoallForm, {"trtllm_nvlink_one_sided", "combine", "nvfp4"});
  FormContext any = dealt;
  deal_at_random(any);
  const auto traffic = [](double gpus, const FormContext& c) {
    return kAlltoallForm.traffic(Numbers{gpus, 1, 1, 1000, 8, 256, 0}, c) / 2000;
  };
  EXPECT_NEAR(traffic(4, dealt), 4 * 3. / 4, 1e-9);
  EXPECT_NEAR(traffic(8, dealt), 8 * 7. / 8, 1e-9);
  EXPECT_NEAR(traffic(64, dealt), 8 * 63. / 64, 1e-9);
  // Eight of 256 experts at random lie on 5.3 of eight ranks.
  EXPECT_NEAR(traffic(8, any), 4.63, 0.01);
  EXPECT_LT(traffic(64, any), traffic(64, dealt));
  const FormContext deepep = context_of(kAlltoallForm, {"deepep_normal", "combine", "bf16"});
  EXPECT_NEAR(traffic(8, deepep), traffic(8, any), 1e-12);
}

// t0, alpha, flag, row, token, sender, e_link, e_network, spread
TEST(AlltoallForm, H43ManyRanks) {
  const Numbers p{10, 2, 1, 1, 0.01, 1, 0.5, 0.05, 0.1};
  const auto tiny = [&](const char* implementation, double gpus) {
    const FormContext c = context_of(kAlltoallForm, {implementation, "dispatch", "nvfp4"}, "gb200-nvl72");
    return kAlltoallForm.seconds(Numbers{gpus, 1, 1e-6, 7168, 8, 256, 0}, c, p);
  };
  // Two-sided: a thread block waits for eight at most. One-sided: for all.
  EXPECT_NEAR(tiny("trtllm_nvlink_two_sided", 4), 14e-6, 1e-9);
  EXPECT_NEAR(tiny("trtllm_nvlink_two_sided", 8), 16e-6, 1e-9);
  EXPECT_NEAR(tiny("trtllm_nvlink_two_sided", 64), 16e-6, 1e-9);
  EXPECT_NEAR(tiny("trtllm_nvlink_one_sided", 64), 22e-6, 1e-9);
  // The link's time of 24 GPUs: two eights beyond eight.
  const FormContext c =
      context_of(kAlltoallForm, {"trtllm_nvlink_two_sided", "combine", "bf16"}, "gb200-nvl72");
  const Numbers x{24, 1, 1e9, 7168, 8, 256, 0};
  EXPECT_NEAR(kAlltoallForm.seconds(x, c, p) / (2. * 7168e9 * 8 * 23 / 24 * 1.2 / 450e9), 1, 1e-3);
}

TEST(AlltoallForm, H43FewSendersAreTheLimit) {
  const Numbers p{10, 5, 0.01, 1e-3, 0.01, 10, 1, 1, 0.1};
  const FormContext c = context_of(kAlltoallForm, {"deepep_normal", "combine", "bf16"});
  const double four = kAlltoallForm.seconds(Numbers{8, 1, 1e6, 7168, 8, 256, 4}, c, p);
  const double eight = kAlltoallForm.seconds(Numbers{8, 1, 1e6, 7168, 8, 256, 8}, c, p);
  EXPECT_NEAR(four / eight, 2, 0.01);
}

TEST(AlltoallForm, H43PrepareIsLatencyAndTokens) {
  const Numbers p{10, 2, 5, 1, 7, 1, 0.05, 0.05, 0.1};
  const FormContext c =
      context_of(kAlltoallForm, {"trtllm_nvlink_two_sided", "prepare", "bf16"}, "gb200-nvl72");
  EXPECT_NEAR(kAlltoallForm.seconds(Numbers{64, 16, 1000, 7168, 8, 256, 0}, c, p), 22e-6 + 7e-6, 1e-12);
}

// tokens, hidden, inter, topk, experts, tp, ep; t0, e_compute, e_memory, e_rows, e_tokens, step, expert,
// uneven, e_pairs

}  // namespace
}  // namespace shardline
