// Prices by fitted cost forms [H50]-[H56]: equal to the forms themselves, with what they rest on.
#include "hardware/cost/calibrated_cost.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hardware/machine/frameworks.hpp"
#include "sim/base/error.hpp"
#include "tests/hardware/fitted.hpp"

namespace shardline {
namespace {

using testing::batched_op, testing::catalog_system, testing::decode_op, testing::elementwise_op,
    testing::expect_price, testing::experts_op, testing::fitted, testing::gemm_op, testing::mla_decode_op,
    testing::mla_sequences, testing::parameter, testing::prefill_op, testing::system_named,
    testing::whole_sequences;

TEST(CalibratedCost, H51GemmsCostWhatTheirFitSays) {
  const System& h100 = system_named("h100-hgx");
  const System& gb200 = system_named("gb200-nvl72");
  for (const Count m : {1, 48, 500, 8192}) {
    SCOPED_TRACE(m);
    const GemmShape s{m, 4096, 7168};
    const std::vector<double> x{static_cast<double>(m), 7168, 4096};
    expect_price(h100, gemm_op(s, Dtype::bf16, Dtype::bf16), fitted(h100, "gemm", {"bf16", "torch_flow"}, x),
                 Basis::measured);
    expect_price(h100, gemm_op(s, Dtype::fp8_dynamic, Dtype::fp8),
                 fitted(h100, "gemm", {"fp8", "torch_flow"}, x), Basis::measured);
    expect_price(gb200, gemm_op(s, Dtype::fp4, Dtype::fp4),
                 fitted(gb200, "gemm", {"nvfp4", "flashinfer_cutedsl_nvfp4"}, x),
                 Basis::fitted);  // SGLang's: tuned or not
    expect_price(gb200, gemm_op(s, Dtype::fp8_dynamic, Dtype::fp8),
                 fitted(gb200, "gemm", {"fp8", "torch_flow"}, x), Basis::measured);
  }
  // Where no kernel of several matrices was measured, 16 side by side are one as wide as all of them.
  System bare = h100;
  std::erase_if(bare.calibration.fits.edit(),
                [](const KernelFit& f) { return f.form->family == std::string_view("mla_bmm"); });
  expect_price(bare, batched_op({LatentProduct::absorb_query, 32, 256, 192, 16, 1}, Dtype::bf16, Dtype::bf16),
               fitted(h100, "gemm", {"bf16", "torch_flow"}, {32, 16 * 192.0, 256}), Basis::measured);
}

// Tokens of a request that are verified together read its cache once: as many more heads share its keys.
TEST(CalibratedCost, H74VerifiedTokensAreHeadsThatShareKeys) {
  const System& h100 = system_named("h100-hgx");
  const auto seconds = [&](const Op& op) {
    CostModel model(h100);
    return model.alone(model.price(op)).value;
  };
  const auto verified = [](Op op, Count fresh) {
    auto& a = std::get<AttendDecodeShape>(op.shape);
    a.fresh = fresh;
    a.q_rows *= fresh;
    a.pairs *= fresh;
    return op;
  };
  for (const Count fresh : {2, 4}) {
    for (const Count batch : {1, 16}) {
      const Op gqa = decode_op(batch, 30'000, 32, 8, 128, Dtype::bf16);
      const Op wide = decode_op(batch, 30'000, 32 * fresh, 8, 128, Dtype::bf16);
      EXPECT_EQ(seconds(verified(gqa, fresh)), std::max(seconds(wide), seconds(gqa)));
      EXPECT_LT(seconds(verified(gqa, fresh)), static_cast<double>(fresh) * seconds(gqa));
      CostModel model(h100);
      EXPECT_EQ(model.price(verified(gqa, fresh)).basis, Basis::extrapolated);
      const Op latent = mla_decode_op(batch, 30'000, 16, Dtype::bf16);
      const Op more = mla_decode_op(batch, 30'000, 16 * fresh, Dtype::bf16);
      EXPECT_EQ(seconds(verified(latent, fresh)), seconds(more));
    }
  }
}

// More rows are never faster than one, nor by more than measured kernels than fewer, however many heads share
// a key with them and whatever lies before a window.
TEST(CalibratedCost, H74MoreVerifiedTokensTakeNoLess) {
  constexpr Count kLength = 250'000;
  for (const char* const name : {"h100-hgx", "h200-hgx", "gb200-nvl72"}) {
    CostModel model(system_named(name));
    const auto expect_rising = [&](Count batch, Count heads, Count window, Dtype stored) {
      double one = 0, most = 0;
      for (Count fresh = 1; fresh <= 9; ++fresh) {
        const Count keys = window > 0 ? std::min(kLength, window) : kLength;
        Op op = decode_op(batch, keys, 2 * heads, 2, 256, stored);
        auto& a = std::get<AttendDecodeShape>(op.shape);
        a.skipped = batch * (kLength - keys);
        a.fresh = fresh;
        a.q_rows *= fresh;
        a.pairs *= fresh;
        const OpCost priced = model.price(op);
        const double time = model.alone(priced).value;
        SCOPED_TRACE(
            fmt::format("{}: {} heads, {} requests, window {}, {} rows", name, heads, batch, window, fresh));
        if (fresh == 1) one = time;
        // Kernels of many heads were measured up to 4 % faster than those of few.
        EXPECT_GE(time, std::max(one, .96 * most));
        EXPECT_NE(priced.basis, Basis::assumed);
        most = std::max(most, time);
      }
    };
    for (const Dtype stored : {Dtype::bf16, Dtype::fp8}) {
      for (const Count heads : {1, 2, 4, 8, 16, 32}) {  // that share a key
        for (const Count batch : {1, 16}) {
          for (const Count window : {0, 128, 1024}) expect_rising(batch, heads, window, stored);
        }
      }
    }
  }
}

TEST(CalibratedCost, H51LaunchesCountAsT0) {
  const System& h100 = system_named("h100-hgx");
  const double one = fitted(h100, "gemm", {"bf16", "torch_flow"}, {8, 7168, 4096});
  const double t0 = parameter(h100, "gemm", {"bf16", "torch_flow"}, "t0") * 1e-6;
  for (const double launches : {0.25, 1.0, 3.0})
    expect_price(h100, gemm_op({8, 4096, 7168}, Dtype::bf16, Dtype::bf16, launches),
                 one + (launches - 1) * t0, Basis::measured);
  // Without a launch it is part of another kernel: its work and bytes at the fit's rates.
  const double rate = parameter(h100, "gemm", {"bf16", "torch_flow"}, "e_memory");
  expect_price(h100, gemm_op({8, 4096, 7168}, Dtype::bf16, Dtype::bf16, 0),
               2.0 * 4096 * 7168 / (rate * h100.device.memory_bandwidth.value), Basis::fitted);
  // A part of a kernel that signals each of its parts costs its share of it.
  Op part = decode_op(4, 30'000, 32, 8, 128, Dtype::bf16, 0);
  auto& of_kernel = std::get<AttendDecodeShape>(part.shape);
  of_kernel.kernel_rows = 16;
  of_kernel.kernel_parts = 4;
  const double kernel =
      fitted(h100, "attention_decode", {"bf16", "bf16", "torch_flow"}, {16, 30'000, 32, 8, 128, 0});
  const double launch = parameter(h100, "attention_decode", {"bf16", "bf16", "torch_flow"}, "t0") * 1e-6;
  expect_price(h100, part, (kernel - launch) / 4, Basis::measured);
  // It is the number of parts that makes an op one of them.
  of_kernel.kernel_parts = 1;
  EXPECT_EQ(CostModel(h100).time(part),
            CostModel(h100).time(decode_op(4, 30'000, 32, 8, 128, Dtype::bf16, 0)));
  // Attention of one query head per KV head is another kernel, with a launch of its own.
  for (const Count heads_kv : {8, 32}) {
    const double whole = fitted(h100, "attention_decode", {"bf16", "bf16", "torch_flow"},
                                {4, 30'000, 32, static_cast<double>(heads_kv), 128, 0});
    const char* name = heads_kv == 32 ? "t0_mha" : "t0";
    const double own = parameter(h100, "attention_decode", {"bf16", "bf16", "torch_flow"}, name) * 1e-6;
    expect_price(h100, decode_op(4, 30'000, 32, heads_kv, 128, Dtype::bf16, 0), whole - own, Basis::measured);
    expect_price(h100, decode_op(4, 30'000, 32, heads_kv, 128, Dtype::bf16, 2), whole, Basis::measured);
  }
}

TEST(CalibratedCost, H51AbsorbProductsHaveAForm) {
  const System& h200 = system_named("h200-hgx");
  for (const Count tokens : {1, 64, 1000}) {
    const std::vector<double> x{static_cast<double>(tokens), 32};
    expect_price(h200,
                 batched_op({LatentProduct::absorb_query, tokens, 128, 512, 32, 1}, Dtype::bf16, Dtype::bf16),
                 fitted(h200, "mla_bmm", {"mla_gen_pre", "bf16", ""}, x), Basis::measured);
    expect_price(h200,
                 batched_op({LatentProduct::expand_values, tokens, 512, 128, 32, 1}, Dtype::fp8, Dtype::fp8),
                 fitted(h200, "mla_bmm", {"mla_gen_post", "fp8", ""}, x), Basis::measured);
  }
  // Weights of a type that was not measured with this arithmetic.
  CostModel m(h200);
  for (const auto& [weights, math] : {std::pair(Dtype::fp8, Dtype::bf16), std::pair(Dtype::fp4, Dtype::bf16),
                                      std::pair(Dtype::bf16, Dtype::fp8)}) {
    const Op op = batched_op({LatentProduct::absorb_query, 64, 128, 512, 32, 1}, weights, math);
    EXPECT_EQ(m.price(op).basis, Basis::extrapolated);
  }
}

// Which of the two products an op is does not follow from its widths: here the latent is narrower than a
// head.
TEST(CalibratedCost, H51AbsorbProductsOfANarrowLatentHaveTheirOwnForms) {
  const System& h200 = system_named("h200-hgx");
  CostModel m(h200);
  for (const Count rank : {96, 128}) {
    const Count head = rank == 96 ? 128 : 512;
    const double widths = static_cast<double>(rank * head) / (512 * 128);
    const auto expect = [&](const char* word, BatchedGemmShape shape) {
      SCOPED_TRACE(word);
      const Op op = batched_op(shape, Dtype::bf16, Dtype::bf16);
      const OpCost c = m.price(op);
      ASSERT_NE(c.fit, nullptr);
      EXPECT_EQ(c.fit->words.front(), word);
      EXPECT_EQ(c.basis, Basis::extrapolated);
      const double t0 = parameter(h200, "mla_bmm", {word, "bf16", ""}, "t0") * 1e-6;
      const double measured = fitted(h200, "mla_bmm", {word, "bf16", ""}, {1000, 32});
      EXPECT_NEAR(m.time(op).value / (t0 + (measured - t0) * widths), 1, 1e-12);
    };
    expect("mla_gen_pre", {LatentProduct::absorb_query, 1000, head, rank, 32, 1});
    expect("mla_gen_post", {LatentProduct::expand_values, 1000, rank, head, 32, 1});
  }
}

TEST(CalibratedCost, H52DecodeAttentionCostsWhatItsFitSays) {
  for (const char* name : {"h100-hgx", "h200-hgx", "gb200-nvl72"}) {
    const System& s = system_named(name);
    for (const Count batch : {1, 16, 256}) {
      const auto b = static_cast<double>(batch);
      expect_price(s, decode_op(batch, 8000, 32, 4, 128, Dtype::bf16),
                   fitted(s, "attention_decode", {"bf16", "bf16", "torch_flow"}, {b, 8000, 32, 4, 128, 0}),
                   Basis::measured);
      expect_price(s, decode_op(batch, 8000, 32, 4, 128, Dtype::fp8),
                   fitted(s, "attention_decode", {"bf16", "fp8", "torch_flow"}, {b, 8000, 32, 4, 128, 0}),
                   Basis::measured);
      expect_price(s, mla_decode_op(batch, 30'000, 16, Dtype::fp8),
                   fitted(s, "mla_decode", {"kernel", "bf16", "fp8", "", ""}, {b, 30'000, 16}),
                   Basis::measured);
    }
  }
}

TEST(CalibratedCost, H52QueriesOfSomeRequestsSeeTheirOwnKeys) {
  // Ring decode: the queries of 2 of 8 requests visit a rank that holds 1000 tokens of each.
  const System& s = system_named("h100-hgx");
  Op op = decode_op(2, 1000, 32, 4, 128, Dtype::bf16);
  std::get<AttendDecodeShape>(op.shape).kv_rows = 8 * 1000;
  expect_price(s, op, fitted(s, "attention_decode", {"bf16", "bf16", "torch_flow"}, {2, 1000, 32, 4, 128, 0}),
               Basis::measured);
}

TEST(CalibratedCost, H53PrefillCostsWhatItsFitSays) {
  // A schedule counts pairs, the form blocks: of equal sequences both say the same [H30].
  constexpr double kCounting = 1e-9;
  for (const char* name : {"h100-hgx", "gb200-nvl72"}) {
    const System& s = system_named(name);
    for (const Count rows : {65, 100, 129, 512, 2048, 16384}) {
      SCOPED_TRACE(rows);
      const auto n = static_cast<double>(rows);
      expect_price(s, prefill_op(whole_sequences(2, rows, 32, 8, 128, 128), Dtype::bf16, Dtype::bf16),
                   fitted(s, "attention_prefill", {"bf16", "bf16", "torch_flow"}, {2, n, 0, 32, 8, 128, 0}),
                   Basis::measured, kCounting);
      expect_price(s, prefill_op(mla_sequences(2, rows, 16), Dtype::bf16, Dtype::bf16),
                   fitted(s, "mla_prefill", {"kernel", "bf16", "bf16", "", ""}, {2, n, 16}), Basis::measured,
                   kCounting);
    }
  }
}

// Absorbed prompts are priced by the kernel that was measured so, and by no other.
TEST(CalibratedCost, H53AbsorbedPromptsCostWhatTheirFitSays) {
  constexpr double kCounting = 1e-9;
  for (const char* name : {"h100-hgx", "h200-hgx"}) {
    System s = system_named(name);
    use_framework(s, "sglang", testing::system_catalog());
    for (const Dtype kv : {Dtype::bf16, Dtype::fp8}) {
      for (const Count rows : {65, 512, 2048, 16384}) {
        SCOPED_TRACE(rows);
        AttendPrefillShape a = mla_sequences(2, rows, 16, 576, 512);
        a.cache = CacheRows::latent;
        a.kv_heads = 1;
        expect_price(s, prefill_op(a, kv, Dtype::bf16),
                     fitted(s, "mla_prefill",
                            {"absorbed", "bf16", kv == Dtype::fp8 ? "fp8" : "bf16", "", "flash_attention"},
                            {2, static_cast<double>(rows), 16}),
                     Basis::measured, kCounting);
      }
    }
  }
}

// One row is what a decode step is, of a kernel that shares its keys among thread blocks: the two fits, one
// of whole prompts without a cache, one of decode steps, meet there within what they say of themselves.
TEST(CalibratedCost, H48OneTokenOfASharingKernelCostsWhatADecodeStepDoes) {
  for (const char* framework : {"sglang", "vllm"}) {
    for (const char* name : {"h100-hgx", "h200-hgx"}) {
      System s = catalog_system(name);
      use_framework(s, framework, testing::system_catalog());
      CostModel cost(s);
      for (const Count cached : {32'768, 131'072}) {
        AttendPrefillShape a = whole_sequences(1, 1, 8, 1, 128, 128);
        a.pairs = a.kv_rows = cached + 1;
        a.whole = false;
        const Op prefill = prefill_op(a, Dtype::bf16, Dtype::bf16);
        const Op decode = decode_op(1, cached + 1, 8, 1, 128, Dtype::bf16);
        const ErrorBand one = cost.interval(prefill).band, other = cost.interval(decode).band;
        const double ratio = std::log(cost.time(prefill) / cost.time(decode));
        SCOPED_TRACE(::testing::Message()
                     << framework << " on " << name << " after " << cached << ": " << std::exp(ratio));
        EXPECT_GE(ratio, other.low - one.high);
        EXPECT_LE(ratio, other.high - one.low);
      }
    }
  }
}

// Nor is there a step in the price of a short turn of a long conversation but where a tile is added, every 16
// tokens of 8 heads, by its part of the tiles at most (2 % more where shares are rounded up to blocks). Where
// tiles stay whole one is, when it gets a second half.
TEST(CalibratedCost, H48ShortTurnsOfSharingKernelsStepByTheirTiles) {
  for (const char* framework : {"sglang", "vllm", "trtllm"}) {
    System s = catalog_system("h100-hgx");
    use_framework(s, framework, testing::system_catalog());
    CostModel cost(s);
    double before = 0, most = 1;
    for (Count rows = 1; rows <= 600; ++rows) {
      AttendPrefillShape a = whole_sequences(1, rows, 8, 1, 128, 128);
      a.pairs += rows * 131'072;
      a.kv_rows += 131'072;
      a.whole = false;
      const double t = cost.time(prefill_op(a, Dtype::bf16, Dtype::bf16)).value;
      SCOPED_TRACE(::testing::Message() << framework << " " << rows);
      EXPECT_GE(t, before * 0.97);
      const auto tiles = [](Count n) { return static_cast<double>((n + 15) / 16); };
      if (rows > 1) most = std::max(most, t / before);
      if (rows > 1 && framework != std::string_view("trtllm")) {
        EXPECT_LE(t, before * std::clamp(1.02 * tiles(rows) / tiles(rows - 1), 1.03, 1.3));
      }
      before = t;
    }
    EXPECT_EQ(most > 1.5, framework == std::string_view("trtllm")) << framework << " " << most;
  }
}

// Balanced routing: `tokens` x `topk` pairs over `ep` ranks.
Op balanced(bool up, Count tokens, Count topk, Count experts, Count ep, Count hidden, Count inner,
            Dtype type) {
  const double held = double(experts) / double(ep), pairs = double(tokens * topk) / double(ep);
  Op op =
      experts_op(up, {experts / ep, tokens, hidden, inner, true}, pairs, std::min(held, pairs), type, type);
  std::get<GroupedGemmShape>(op.shape).passed = double(tokens * topk);  // of all ranks, as in the tables
  return op;
}

TEST(CalibratedCost, H54ExpertsShareTheTimeOfTheirWholeLayer) {
  struct Row {
    const char* system;
    Dtype type;
    const char *kernel, *name;  // that the list of TensorRT-LLM takes
  };
  const Row rows[] = {
      {"h100-hgx", Dtype::bf16, "torch_flow_cutlass", "bf16"},
      {"h200-hgx", Dtype::fp8, "torch_flow_cutlass", "fp8"},  // fp8_block is stored otherwise
      {"gb200-nvl72", Dtype::fp4, "torch_flow_cutlass", "nvfp4"},
  };
  for (const Row& row : rows) {
    const System& s = system_named(row.system);
    CostModel m(s);
    for (const Count tokens : {8, 256, 4096}) {
      SCOPED_TRACE(tokens);
      const double whole =
          fitted(s, "moe", {row.kernel, row.name, "balanced"}, {double(tokens), 7168, 2048, 8, 256, 1, 8});
      const Op up = balanced(true, tokens, 8, 256, 8, 7168, 2048, row.type),
               down = balanced(false, tokens, 8, 256, 8, 7168, 2048, row.type);
      EXPECT_NEAR((m.time(up) + m.time(down)).value / whole, 1, 1e-12);
      EXPECT_NEAR(m.time(up) / m.time(down), 2, 1e-12);
      EXPECT_EQ(m.price(up).basis, Basis::measured);
    }
  }
}

TEST(CalibratedCost, H56ElementwiseKernelsCostALaunchAndTheirBytes) {
  const System& s = system_named("h100-hgx");
  const double kernel = fitted(s, "gemm", {"bf16", "torch_flow"}, {1, 64, 64});
  const double rate = 3.35e12 * parameter(s, "gemm", {"bf16", "torch_flow"}, "e_memory");
  for (const OpKind kind : {OpKind::elementwise, OpKind::merge, OpKind::compress}) {
    expect_price(s, elementwise_op({64, 8192, Bytes(0)}, 1, Within::own, kind), kernel, Basis::fitted);
    expect_price(s, elementwise_op({64, 8192, Bytes(3e6)}, 2, Within::own, kind), 2 * kernel + 3e6 / rate,
                 Basis::fitted);
  }
  CostModel m(s);
  EXPECT_EQ(m.price(elementwise_op({64, 8192, Bytes(0)}, 0)).basis, Basis::none);
}

TEST(CalibratedCost, H56KernelsThatHoldAnElementwiseOpPayForIt) {
  struct Row {
    const char* system;
    std::vector<Within> held, own;
  };
  const Row rows[] = {
      {"gb200-nvl72",
       {Within::gemm, Within::prefill_attention, Within::decode_attention, Within::decode_merge,
        Within::experts},
       {Within::own}},
      // Kernels of an attention library do not rotate; without narrow types nothing is quantised.
      {"a100-sxm",
       {Within::decode_merge, Within::experts},
       {Within::own, Within::gemm, Within::prefill_attention, Within::decode_attention}},
  };
  for (const Row& row : rows) {
    CostModel m(system_named(row.system));
    const auto op = [](Within w) { return elementwise_op({64, 8192, Bytes(1e6)}, 1, w); };
    for (const Within w : row.held) {
      EXPECT_EQ(m.time(op(w)), Seconds(0)) << row.system << " " << static_cast<int>(w);
      EXPECT_EQ(m.price(op(w)).basis, Basis::none);
      EXPECT_EQ(m.floor(op(w)), Seconds(0));
    }
    for (const Within w : row.own) EXPECT_EQ(m.time(op(w)), m.time(op(Within::own))) << static_cast<int>(w);
    EXPECT_GT(m.time(op(Within::own)), microseconds(1));
  }
  // Without a calibration every one is a kernel.
  CostModel m(testing::by_parameters(system_named("gb200-nvl72")));
  for (int w = 0; w <= static_cast<int>(Within::experts); ++w)
    EXPECT_GE(m.time(elementwise_op({64, 8192, Bytes(0)}, 1, static_cast<Within>(w))), microseconds(2));
}

}  // namespace
}  // namespace shardline
