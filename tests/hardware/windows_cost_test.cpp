// What windows leave of attention, in calibrated prices: blocks of a prefill [H30], rows of a cache [H23].
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "hardware/cost/forms/prefill.hpp"
#include "hardware/machine/frameworks.hpp"
#include "models/ir/tokens.hpp"
#include "tests/hardware/fitted.hpp"
#include "tests/hardware/ops.hpp"

namespace shardline {
namespace {

using testing::calibrated_systems, testing::decode_op;

/// `batch` sequences of `rows` new tokens after `cached` ones under a window (0: none), as a schedule counts
/// them.
AttendPrefillShape counted(int batch, Count rows, Count cached, Count heads_q, Count heads_kv, Count window) {
  const Reach reach{window > 0 ? ReachKind::window : ReachKind::full, window};
  Tokens queries, keys;
  for (int i = 0; i < batch; ++i) {
    queries.push_back({i, cached, cached + rows});
    keys.push_back({i, 0, cached + rows});
  }
  AttendPrefillShape a = testing::whole_sequences(batch, rows, heads_q, heads_kv, 128, 128);
  a.pairs = causal_pairs(queries, keys, reach);
  a.kv_rows = rows_in_reach(queries, keys, reach);
  a.window = window;
  a.whole = window == 0 && cached == 0;
  return a;
}

PrefillShape exact(int batch, Count rows, Count cached, Count heads_q, Count heads_kv, Count window) {
  PrefillShape s;
  s.batch = batch;
  s.rows = static_cast<double>(rows);
  s.cached = static_cast<double>(cached);
  s.heads_q = static_cast<double>(heads_q);
  s.heads_kv = static_cast<double>(heads_kv);
  s.qk_dim = s.v_dim = 128;
  s.window = static_cast<double>(window);
  return s;
}

constexpr PrefillKernel kKernels[] = {PrefillKernel::with_rope, PrefillKernel::plain, PrefillKernel::packed};

// What `evaluate` predicts of a measured row and what a plan pays for the same batch are one number: the sums
// of equal sequences say how many there are, and of what lengths. The one thing that they do not say is where
// in a block a window begins, far behind the first token. (One row that a window cuts is like one that has no
// more before it.)
TEST(WindowsCost, H30SumsOfEqualSequencesSayWhichTheyAre) {
  const FormContext c;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](double most) {  // evenly in the logarithm
      return static_cast<Count>(std::exp2(std::uniform_real_distribution(0., std::log2(most + 1))(random)));
    };
    const int batch = static_cast<int>(draw(64));
    const Count rows = draw(4095) + (seed % 3 == 0 ? 1 : 0), cached = draw(1 << 20) - 1, kv = draw(8),
                q = kv * draw(16);
    const Count window = seed % 3 == 0 ? 1 + draw(1 << 16) : 0;
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ": " << batch << " of " << rows << " after "
                                      << cached << ", heads " << q << "/" << kv << ", window " << window);
    for (const PrefillKernel kernel : kKernels) {
      const PrefillWork a = prefill_work(counted(batch, rows, cached, q, kv, window), kernel, c);
      const PrefillWork b = prefill_work(exact(batch, rows, cached, q, kv, window), kernel, c);
      EXPECT_NEAR(a.tiles, b.tiles, 1e-9 * b.tiles);
      EXPECT_NEAR(a.query_bytes, b.query_bytes, 1e-9 * b.query_bytes);
      EXPECT_NEAR(a.prefix_bytes, b.prefix_bytes, 1e-9 * b.prefix_bytes);
      EXPECT_NEAR(a.cache_bytes, b.cache_bytes, 1e-9 * b.cache_bytes);
      // Behind a block and more an edge costs a block at most, near the first token 2.5.
      const double edge = window == 0 || cached < window - 1 ? 0 : cached < window + 128 ? 2.5 : 1;
      EXPECT_NEAR(a.blocks, b.blocks, edge * b.tiles + 1e-9 * b.blocks);
      EXPECT_NEAR(a.longest, b.longest, edge + 1e-9 * b.longest);
    }
  }
}

TEST(WindowsCost, H30AWindowThatHidesNothingCostsNothing) {
  const FormContext c;
  for (const Count rows : {100, 1000, 5000}) {
    const PrefillWork none = prefill_work(counted(2, rows, 0, 8, 2, 0), PrefillKernel::plain, c);
    for (const Count window : {rows, rows + 1, Count{100'000}}) {
      const PrefillWork w = prefill_work(counted(2, rows, 0, 8, 2, window), PrefillKernel::plain, c);
      EXPECT_EQ(w.blocks, none.blocks) << rows;
      EXPECT_EQ(w.longest, none.longest) << rows;
    }
  }
}

// `seen` of `seen + skipped` cached tokens of each sequence.
Op behind(Count batch, Count seen, Count skipped, Count heads_q, Count heads_kv, Dtype kv) {
  Op op = decode_op(batch, seen, heads_q, heads_kv, 128, kv);
  auto& a = std::get<AttendDecodeShape>(op.shape);
  a.skipped = batch * skipped;
  a.longest = seen;
  return op;
}

// Rows before a window are looked for [H23]: the more, the longer it takes, and less where to read them takes
// a kernel of many sequences and heads any time. With one of each the fits' corrections go up and down as the
// rows that are read do, by up to 7 % (H200, one KV head, 4,096 of 23,779 tokens).
TEST(WindowsCost, H23SkippedRowsCostNoMoreThanReadOnes) {
  for (const System& s : calibrated_systems()) {
    CostModel cost(s);
    for (const Dtype kv : {Dtype::bf16, Dtype::fp8}) {
      for (const auto& [q, k] : {std::pair<Count, Count>{8, 1}, {64, 8}, {16, 16}}) {
        for (const Count batch : {1, 16, 256}) {
          for (const Count window : {128, 1024, 4096}) {
            Seconds last = cost.time(decode_op(batch, window, q, k, 128, kv));
            for (Count skipped = 1; skipped < 2'000'000; skipped *= 3) {
              SCOPED_TRACE(::testing::Message()
                           << s.name << " " << to_string(kv) << " heads " << q << "/" << k << " batch "
                           << batch << " window " << window << " skipped " << skipped);
              const Seconds t = cost.time(behind(batch, window, skipped, q, k, kv));
              EXPECT_GE(t * (1 + 1e-12), last);
              const Seconds all = cost.time(decode_op(batch, window + skipped, q, k, 128, kv));
              EXPECT_LE(t, all * 1.08);
              if (batch * k >= 128 && skipped >= window) {
                EXPECT_LT(t, all);
              }
              last = t;
            }
          }
        }
      }
    }
  }
}

// Layers with windows may have keys wider than their values (MiMo-V2: 192 and 128). Their kernel was
// measured, at the width of its keys: what it takes is known, and no less than what their bytes do.
TEST(WindowsCost, H23KeysWiderThanValuesAreTheKernelsOfTheirWidth) {
  for (const char* name : {"gb200-nvl72", "h200-hgx", "h100-hgx"}) {
    for (const char* framework : {"sglang", "vllm", "trtllm"}) {
      System s = testing::system_named(name);
      use_framework(s, framework, testing::system_catalog());
      for (const Dtype kv : {Dtype::bf16, Dtype::fp8}) {
        for (const Count length : {128, 8192, 131'072}) {
          SCOPED_TRACE(::testing::Message()
                       << name << " " << framework << " " << to_string(kv) << " " << length);
          CostModel cost(s);
          const Op wide = decode_op(1, length, 8, 1, 192, kv);
          Op narrow = wide;
          std::get<AttendDecodeShape>(narrow.shape).v_dim = 128;
          const Seconds time = cost.time(narrow);
          EXPECT_EQ(cost.price(narrow).basis, Basis::extrapolated);
          // Where bytes bound it, those of the values are fewer.
          EXPECT_LE(time, cost.time(wide));
          EXPECT_GE(time, cost.time(wide) * (320. / 384));
        }
      }
    }
  }
}

}  // namespace
}  // namespace shardline
