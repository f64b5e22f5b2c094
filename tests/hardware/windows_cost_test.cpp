// What windows leave of attention, in calibrated prices: blocks of a prefill [H30], rows of a cache [H23].
#include <gtest/gtest.h>

#include <cmath>

#include "hardware/cost/forms/prefill.hpp"
#include "models/ir/tokens.hpp"
#include "tests/hardware/ops.hpp"

namespace shardline {
namespace {

using testing::calibrated_systems, testing::decode_op;

/// `batch` whole sequences under a window (0: none), as a schedule counts them.
AttendPrefillShape windowed(int batch, Count rows, Count heads_q, Count heads_kv, Count window) {
  const Reach reach{window > 0 ? ReachKind::window : ReachKind::full, window};
  Tokens tokens;
  for (int i = 0; i < batch; ++i) tokens.push_back({i, 0, rows});
  AttendPrefillShape a = testing::whole_sequences(batch, rows, heads_q, heads_kv, 128, 128);
  a.pairs = causal_pairs(tokens, tokens, reach);
  a.kv_rows = rows_in_reach(tokens, tokens, reach);
  a.edges = edge_tiles(tokens, reach);
  a.whole = window == 0;
  return a;
}

PrefillShape exact(int batch, Count rows, Count heads_q, Count heads_kv, Count window) {
  PrefillShape s;
  s.batch = batch;
  s.rows = static_cast<double>(rows);
  s.heads_q = static_cast<double>(heads_q);
  s.heads_kv = static_cast<double>(heads_kv);
  s.qk_dim = s.v_dim = 128;
  s.window = static_cast<double>(window);
  return s;
}

// Windows of whole blocks: the form counts a block more at each edge than pairs do, but of packed kernels,
// and one for both halves at the diagonal. What is left is half a block where the window first moves, and the
// diagonal's own pairs, 1/256 of a block per tile. The longest tile is a guess between a triangle's and the
// mean.
TEST(WindowsCost, H30BlocksOfWholeSequences) {
  const FormContext c;
  for (const PrefillKernel kernel : {PrefillKernel::with_rope, PrefillKernel::plain, PrefillKernel::packed}) {
    for (const Count window : {128, 256, 512, 1024, 4096}) {
      for (const Count rows : {128, 1024, 2048, 8192, 65'536}) {
        for (const int batch : {1, 3}) {
          SCOPED_TRACE(::testing::Message() << window << " of " << rows);
          const PrefillWork a = prefill_work(windowed(batch, rows, 8, 2, window), kernel, c);
          const PrefillWork b = prefill_work(exact(batch, rows, 8, 2, window), kernel, c);
          EXPECT_NEAR(a.blocks, b.blocks, batch * 8 * (0.5 + static_cast<double>(rows) / 128 / 256));
          EXPECT_EQ(a.tiles, b.tiles);
          EXPECT_NEAR(a.longest / b.longest, 1, 0.15);
          if (rows >= 16 * window) {
            EXPECT_NEAR(a.blocks / b.blocks, 1, 0.03);
          }
        }
      }
    }
  }
}

// Windows of other lengths end within a block: never further than that from the count of blocks, per tile.
TEST(WindowsCost, H30OtherWindowsAreWithinABlockPerTile) {
  const FormContext c;
  for (const Count window : {1, 100, 511, 1000, 1023, 4000}) {
    for (const Count rows : {2048, 8192, 65'536}) {
      const PrefillWork a = prefill_work(windowed(1, rows, 8, 2, window), PrefillKernel::plain, c);
      const PrefillWork b = prefill_work(exact(1, rows, 8, 2, window), PrefillKernel::plain, c);
      EXPECT_NEAR(a.blocks / a.tiles, b.blocks / b.tiles, 1) << window << " of " << rows;
    }
  }
}

TEST(WindowsCost, H30AWindowThatHidesNothingCostsNothing) {
  const FormContext c;
  for (const Count rows : {100, 1000, 5000}) {
    const PrefillWork none = prefill_work(windowed(2, rows, 8, 2, 0), PrefillKernel::plain, c);
    for (const Count window : {rows, rows + 1, Count{100'000}}) {
      const PrefillWork w = prefill_work(windowed(2, rows, 8, 2, window), PrefillKernel::plain, c);
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

}  // namespace
}  // namespace shardline
