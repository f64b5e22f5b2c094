// Every field of an op that its price depends on tells it apart from others.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/hardware/ops.hpp"
#include "tests/support/fields.hpp"

namespace shardline {
namespace {

void expect_same(const OpCost& a, const OpCost& b) {
  EXPECT_EQ(a.latency, b.latency);
  EXPECT_EQ(a.tensor, b.tensor);
  EXPECT_EQ(a.memory, b.memory);
  EXPECT_EQ(a.exponentials, b.exponentials);
  EXPECT_EQ(a.port, b.port);
  EXPECT_EQ(a.basis, b.basis);
}

Op indexed_op(OpKind kind, const Shape& shape) {
  Op op;
  op.kind = kind;
  op.dtype = op.math = Dtype::fp8;
  op.shape = shape;
  return op;
}

/// An op of each kind of shape, and fields without which its price, or its floor, would be another's.
struct Subject {
  const char* what;
  Op op;
  std::set<std::string> decisive;
};

std::vector<Subject> subjects() {
  constexpr Dtype kFp8 = Dtype::fp8, kBf16 = Dtype::bf16;
  Op part = testing::decode_op(4, 30'000, 32, 8, 128, kBf16);
  auto& of_kernel = std::get<AttendDecodeShape>(part.shape);
  of_kernel.kernel_rows = 16;
  of_kernel.kernel_parts = 4;
  Op uneven = testing::decode_op(8, 5000, 32, 4, 128, kBf16);
  std::get<AttendDecodeShape>(uneven.shape).longest = 33'000;
  return {
      {"gemm", testing::gemm_op({64, 128, 512}, kFp8, kFp8), {"rows", "k", "n", "launches", "math", "dtype"}},
      {"batched gemm",
       testing::batched_op({LatentProduct::absorb_query, 64, 128, 512, 32, 1}, kFp8, kFp8),
       {"product", "rows", "k", "n", "matrices", "launches", "math", "dtype"}},
      {"experts",
       testing::experts_op(true, {8, 64, 4096, 2048, true}, 64, 8, kFp8, kFp8),
       {"k", "n", "held", "tokens", "hidden", "inner", "gated"}},
      {"decode",
       testing::decode_op(8, 5000, 32, 4, 128, kBf16),
       {"cache", "q_heads", "kv_heads", "qk_dim", "v_dim", "pairs", "q_rows", "fresh"}},
      {"decode of unequal requests", uneven, {"longest", "q_heads", "kv_heads", "qk_dim"}},
      {"a part of a decode kernel", part, {"kernel_rows", "kernel_parts"}},
      {"latent decode", testing::mla_decode_op(8, 5000, 32, kBf16), {"cache", "q_heads", "qk_dim", "v_dim"}},
      {"prefill",
       testing::prefill_op(testing::whole_sequences(1, 4096, 32, 4, 128, 128), kBf16, kBf16),
       {"family", "q_heads", "qk_dim", "pairs", "q_rows", "tiles", "whole", "all_pairs"}},
      {"latent prefill",
       testing::prefill_op(testing::mla_sequences(1, 4096, 16), kBf16, kBf16),
       {"family", "q_heads", "qk_dim", "v_dim", "pairs", "tiles", "whole", "all_pairs"}},
      {"elementwise", testing::elementwise_op({64, 4096, Bytes(1e6)}), {"bytes", "launches"}},
      {"scores of an index",
       indexed_op(OpKind::index_logits,
                  IndexLogitsShape{16, 64, 128, 400'000, 400'000, 132, 4, 4, 100'000, kFp8, false}),
       {"pairs", "q_rows", "heads"}},
      {"choice of an index",
       indexed_op(OpKind::top_k, TopKShape{16, 64, 2048, 4, 4, 400'000, 4, 100'000, false, kFp8, false}),
       {"scores", "choosing", "index_heads", "longest"}},
      {"attention to chosen keys",
       indexed_op(OpKind::attend_sparse, AttendSparseShape{16, 576, 512, 8192, 8192, 656, 4, 4, 2048, 400'000,
                                                           false, 64, false, kFp8, false}),
       {"pairs", "q_rows", "index_heads"}},
      {"small kernels of sparse attention",
       indexed_op(OpKind::module_rest, ModuleRestShape{16, 64, 4, 4, 400'000, 7168, 1536, 512, 64, 128, 128,
                                                       128, 656, false, kFp8, false}),
       {}},
      {"hyper-connections",
       indexed_op(OpKind::mix_streams, MixShape{64, 7168, 4, true}),
       {"rows", "hidden", "before"}},
      {"states of linear attention",
       indexed_op(OpKind::convolve,
                  RecurrentShape{StateDecay::per_head, 4, 16, 128, 128, 4, 4, 64, 64, 1, false}),
       {"kind", "value_heads", "rows", "requests", "prompts", "decay"}},
      {"all-gather",
       testing::exchange_op(OpKind::all_gather, {4, 1}, {Bytes(1e4), Carrier::engine, 4}),
       {"kind", "bytes", "carrier", "rows", "group"}},
      {"dispatch",
       testing::routed_op({16, 1}, 64, 7168, 8, 256, false, kFp8),
       {"kind", "rows", "width", "topk", "experts", "dispatched", "group"}},
  };
}

// Memory of prices: an op that differs from the one before it in a single field, whichever, is priced as by a
// model that has seen neither.
TEST(CalibratedCost, H50EveryFieldTellsOpsApart) {
  const System s = testing::catalog_system("gb200-nvl72");
  std::set<std::size_t> shapes;
  for (const Subject& subject : subjects()) {
    shapes.insert(subject.op.shape.index());
    std::set<std::string> decisive = subject.decisive;
    const auto check = [&](const char* field, const PricedOp& other) {
      SCOPED_TRACE(std::string(subject.what) + ": " + field);
      CostModel one(s), fresh(s);
      const OpCost before = one.price(subject.op), after = one.price(other);
      expect_same(after, fresh.price(other));
      const Seconds first = one.floor(subject.op), second = one.floor(other);
      EXPECT_EQ(second, fresh.floor(other));
      EXPECT_GT(first, Seconds(0));
      if (decisive.erase(field) > 0) {
        EXPECT_TRUE(before.basis != after.basis || one.alone(before) != one.alone(after) || first != second);
      }
    };
    testing::for_every_change<PricedFields>(subject.op, [&](const char* field, const PricedFields& other) {
      if (shape_of(other.kind) == subject.op.shape.index()) check(field, {other, subject.op.shape});
    });
    const auto same = [&](const char* field, const auto& other) { check(field, {subject.op, other}); };
    std::visit([&](const auto& shape) { testing::for_every_change(shape, same); }, subject.op.shape);
    EXPECT_TRUE(decisive.empty()) << subject.what << " has no field " << *decisive.begin();
  }
  EXPECT_EQ(shapes.size(), std::variant_size_v<Shape>);
}

}  // namespace
}  // namespace shardline
