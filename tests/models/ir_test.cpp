// Ops and their shapes: fields that tell them apart, and what follows from them.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>

#include "models/ir/schedule.hpp"
#include "tests/support/fields.hpp"

namespace shardline {
namespace {

using testing::for_every_change;

/// A shape of each type, no field of it at its initial value.
const std::tuple kShapes{
    GemmShape{3, 5, 7},
    BatchedGemmShape{LatentProduct::expand_values, 3, 5, 7, 11, 2},
    GroupedGemmShape{12.5, 3.5, 5, 7, 4, 9, 5, 6, true, 36, 4, true, true},
    AttendPrefillShape{AttentionFamily::mla, CacheRows::latent, 8, 2, 12, 10, 300, 40, 20, 3, true, true, 64,
                       2},
    AttendDecodeShape{CacheRows::latent, 8, 2, 12, 10, 300, 40, 20, 30, 60, 3, 0, 1, true},
    ElementwiseShape{3, 5, Bytes(7)},
    ExchangeShape{Bytes(1000), Carrier::engine, 2.5},
    RoutedShape{Bytes(1000), 2.5, 7, 2, 16, Dtype::fp8, true, true},
    IndexLogitsShape{16, 3, 5, 300, 40, 132, 20, 2, 30, Dtype::fp8, true, 3},
    TopKShape{16, 3, 8, 20, 12, 250, 2, 30, true, Dtype::fp8, true, 4},
    AttendSparseShape{8, 12, 10, 150, 40, 656, 20, 2, 8, 300, true, 3, true, Dtype::fp8, true, 4},
    ModuleRestShape{8, 3, 20, 2, 300, 64, 24, 10, 2, 6, 7, 5, 656, true, Dtype::fp8, true, 4},
    RecurrentShape{StateDecay::per_channel, 2, 4, 3, 5, 4, 4, 20, 2, 11, true, 3},
    MixShape{3, 10, 4, true}};

/// f(shape) for a shape of each type.
template <class F>
void for_every_shape(F f) {
  std::apply([&](const auto&... shapes) { (f(shapes), ...); }, kShapes);
}

constexpr OpKind kind_of(int k) { return static_cast<OpKind>(k); }
constexpr int kKinds = static_cast<int>(kOpKinds);

PricedOp op_of(const Shape& shape) {
  PricedOp op;
  for (int k = kKinds; k-- > 0;) {
    if (shape_of(kind_of(k)) == shape.index()) op.kind = kind_of(k);
  }
  op.shape = shape;
  return op;
}

TEST(Shapes, WordsDifferWhereverAFieldDoes) {
  for_every_shape([](const auto& shape) {
    const auto words = words_of(shape);
    std::size_t changes = 0;
    for_every_change(shape, [&](const char* field, const auto& other) {
      SCOPED_TRACE(field);
      EXPECT_NE(words_of(other), words);
      EXPECT_FALSE(same_fields(other, shape));
      EXPECT_FALSE(equal(other, shape));
      EXPECT_EQ(words_of(other), words_of(std::decay_t<decltype(other)>(other)));
      ++changes;
    });
    EXPECT_EQ(changes, kFieldsOf<std::decay_t<decltype(shape)>>);
    EXPECT_TRUE(same_fields(shape, shape));
    EXPECT_TRUE(equal(shape, shape));
  });
}

// A visit that forgets a field, or counts right by naming one twice, is not complete.
struct Forgetful {
  Count rows = 0, width = 0;
  static constexpr void visit(auto& s, auto&& f) { f("rows", s.rows); }
};
struct Twice {
  Count rows = 0, width = 0;
  static constexpr void visit(auto& s, auto&& f) {
    f("rows", s.rows);
    f("width", s.rows);
  }
};
static_assert(complete<ElementwiseShape>() && !complete<Forgetful>() && !complete<Twice>());

// The count that ties PricedOp to its key sees a member beside the shape.
struct Longer : PricedFields {
  Shape shape;
  bool more = false;
};
static_assert(kMembers<Longer> == kMembers<PricedOp> + 1);

TEST(Shapes, WordsOfPricedFieldsDiffer) {
  PricedFields fields;
  fields.group = {4, 2};
  std::size_t changes = 0;
  for_every_change(fields, [&](const char* field, const PricedFields& other) {
    EXPECT_NE(words_of(other), words_of(fields)) << field;
    ++changes;
  });
  EXPECT_EQ(changes, kFieldsOf<PricedFields>);
  PricedFields strided = fields;
  strided.group.stride = 1;
  EXPECT_NE(words_of(strided), words_of(fields));
}

// Bytes of one word: each value of each field has bits of its own.
TEST(Shapes, WordsOfPricedFieldsTellAllTheirValuesApart) {
  std::set<std::array<std::uint64_t, kWordsOf<PricedFields>>> seen;
  std::size_t made = 0;
  for (int kind = 0; kind < kKinds; ++kind) {
    for (int drive = 0; drive <= static_cast<int>(Drive::host_kernel); ++drive) {
      for (int within = 0; within <= static_cast<int>(Within::experts); ++within) {
        for (int types = 0; types < 16; ++types) {
          PricedFields f;
          f.kind = kind_of(kind);
          f.drive = static_cast<Drive>(drive);
          f.within = static_cast<Within>(within);
          f.dtype = static_cast<Dtype>(types / 4);
          f.math = static_cast<Dtype>(types % 4);
          seen.insert(words_of(f));
          ++made;
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), made);
}

TEST(Shapes, OfOtherTypesAreUnequal) {
  for_every_shape([](const auto& a) {
    for_every_shape([&](const auto& b) {
      using A = std::decay_t<decltype(a)>;
      using B = std::decay_t<decltype(b)>;
      EXPECT_EQ(equal(a, b), (std::is_same_v<A, B>));
      EXPECT_FALSE((equal(A{}, b)));
    });
  });
  EXPECT_FALSE(equal(ExchangeShape{}, ElementwiseShape{}));
}

TEST(Shapes, DescriptionsNameEveryFieldAndItsValue) {
  for_every_shape([](const auto& shape) {
    PricedOp op = op_of(shape);
    op.group = {4, 2};
    const std::string text = " " + describe(op) + " ";
    using S = std::decay_t<decltype(shape)>;
    const auto named = [&](const char* name, const auto& field) {
      const bool flag = std::is_same_v<std::decay_t<decltype(field)>, bool>;
      EXPECT_NE(text.find(std::string(" ") + name + (flag ? " " : "=")), std::string::npos) << name << text;
    };
    S::visit(shape, named);
    PricedFields::visit(op, named);
    for_every_change(shape, [&](const char* field, const S& other) {
      PricedOp changed = op;
      changed.shape = other;
      EXPECT_NE(describe(changed), describe(op)) << field;
    });
  });
  PricedOp op = op_of(std::get<AttendDecodeShape>(kShapes));
  op.dtype = Dtype::fp8;
  EXPECT_EQ(describe(op),
            "kind=attend_decode drive=graph within=own dtype=fp8 math=bf16 launches=1 sms=1 cache=latent "
            "q_heads=8 kv_heads=2 qk_dim=12 v_dim=10 pairs=300 kv_rows=40 q_rows=20 longest=30 "
            "kernel_rows=60 kernel_parts=3 skipped=0 fresh=1 partial");
}

TEST(Ops, NamesOfKindsDiffer) {
  std::set<std::string_view> names;
  for (int k = 0; k < kKinds; ++k) names.insert(to_string(kind_of(k)));
  EXPECT_EQ(names.size(), kOpKinds);
  EXPECT_FALSE(names.contains(""));
}

TEST(Ops, KindsHaveTheShapesThatTheirNamesSay) {
  const auto index = [](const Shape& shape) { return shape.index(); };
  std::set<std::size_t> used;
  for (int k = 0; k < kKinds; ++k) {
    const OpKind kind = kind_of(k);
    const std::size_t shape = shape_of(kind);
    used.insert(shape);
    EXPECT_LT(shape, std::variant_size_v<Shape>) << to_string(kind);
    const bool product = shape == index(GemmShape{}) || shape == index(BatchedGemmShape{}) ||
                         shape == index(GroupedGemmShape{});
    const bool attention = shape == index(AttendPrefillShape{}) || shape == index(AttendDecodeShape{});
    const bool message = shape == index(ExchangeShape{}) || shape == index(RoutedShape{});
    EXPECT_EQ(is_gemm(kind), product) << to_string(kind);
    EXPECT_EQ(is_attention(kind), attention) << to_string(kind);
    EXPECT_EQ(is_communication(kind), message) << to_string(kind);
    const bool of_index = shape == index(IndexLogitsShape{}) || shape == index(TopKShape{}) ||
                          shape == index(AttendSparseShape{}) || shape == index(ModuleRestShape{});
    EXPECT_EQ(is_of_index(kind), of_index) << to_string(kind);
    const bool recurrent = shape == index(RecurrentShape{});
    EXPECT_EQ(is_recurrent(kind), recurrent) << to_string(kind);
    EXPECT_EQ(!product && !attention && !message && !of_index && !recurrent && kind != OpKind::mix_streams,
              shape == index(ElementwiseShape{}))
        << to_string(kind);
  }
  EXPECT_EQ(used.size(), std::variant_size_v<Shape>);
  EXPECT_EQ(shape_of(OpKind::gemm), index(GemmShape{}));
  EXPECT_EQ(shape_of(OpKind::batched_gemm), index(BatchedGemmShape{}));
  EXPECT_EQ(shape_of(OpKind::grouped_gemm), index(GroupedGemmShape{}));
  EXPECT_EQ(shape_of(OpKind::attend_prefill), index(AttendPrefillShape{}));
  EXPECT_EQ(shape_of(OpKind::attend_decode), index(AttendDecodeShape{}));
  EXPECT_EQ(shape_of(OpKind::index_logits), index(IndexLogitsShape{}));
  EXPECT_EQ(shape_of(OpKind::top_k), index(TopKShape{}));
  EXPECT_EQ(shape_of(OpKind::attend_sparse), index(AttendSparseShape{}));
  EXPECT_EQ(shape_of(OpKind::module_rest), index(ModuleRestShape{}));
  EXPECT_EQ(shape_of(OpKind::mix_streams), index(MixShape{}));
  for (const OpKind kind : {OpKind::merge, OpKind::elementwise, OpKind::compress, OpKind::launch})
    EXPECT_EQ(shape_of(kind), index(ElementwiseShape{}));
  for (const OpKind kind : {OpKind::send_recv, OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter,
                            OpKind::all_to_all})
    EXPECT_EQ(shape_of(kind), index(ExchangeShape{}));
  for (const OpKind kind : {OpKind::dispatch, OpKind::combine})
    EXPECT_EQ(shape_of(kind), index(RoutedShape{}));
}

TEST(Ops, TheBuilderGivesEveryKindItsShapeAndTakesNoOther) {
  const Group group{4, 1};
  for (int k = 0; k < kKinds; ++k) {
    const OpKind kind = kind_of(k);
    SCOPED_TRACE(to_string(kind));
    Schedule s;
    ScheduleBuilder b(s);
    b.set_classes(2, 1);
    b.begin_block("block");
    const auto elementwise = [&] { b.elementwise("op", Part::ffn, kind, {}); };
    const auto exchange = [&] { b.exchange("op", Part::ffn, kind, group, Bytes(1)); };
    const auto route = [&] { b.route("op", kind, group, {}, Dtype::bf16); };
    const auto takes = [&](std::size_t shape, auto add) {
      if (shape_of(kind) == shape) {
        EXPECT_NO_THROW(add());
        ASSERT_EQ(s.ops.back().kind, kind);
        EXPECT_EQ(s.ops.back().shape.index(), shape);
      } else {
        EXPECT_THROW(add(), std::logic_error);
      }
    };
    takes(Shape(ElementwiseShape{}).index(), elementwise);
    takes(Shape(ExchangeShape{}).index(), exchange);
    takes(Shape(RoutedShape{}).index(), route);
  }
  Schedule s;
  ScheduleBuilder b(s);
  b.set_classes(2, 1);
  b.begin_block("block");
  const Dtype type = Dtype::bf16;
  b.gemm("op", Part::ffn, type, type, GemmShape{1, 2, 3});
  EXPECT_EQ(s.ops.back().kind, OpKind::gemm);
  EXPECT_EQ(shape<GemmShape>(s.ops.back()).n, 3);
  EXPECT_THROW(shape<BatchedGemmShape>(s.ops.back()), std::bad_variant_access);
  b.gemm("op", Part::ffn, type, type, BatchedGemmShape{LatentProduct::absorb_query, 1, 2, 3, 4, 1});
  EXPECT_EQ(s.ops.back().kind, OpKind::batched_gemm);
  b.gemm("op", Part::ffn, type, type, GroupedGemmShape{1, 1, 2, 3});
  EXPECT_EQ(s.ops.back().kind, OpKind::grouped_gemm);
  b.attend("op", type, type, AttendPrefillShape{});
  EXPECT_EQ(s.ops.back().kind, OpKind::attend_prefill);
  b.attend("op", type, type, AttendDecodeShape{});
  EXPECT_EQ(s.ops.back().kind, OpKind::attend_decode);
  b.indexed("op", Part::attention, type, type, IndexLogitsShape{});
  EXPECT_EQ(s.ops.back().kind, OpKind::index_logits);
  b.indexed("op", Part::attention, type, type, TopKShape{});
  EXPECT_EQ(s.ops.back().kind, OpKind::top_k);
  b.indexed("op", Part::attention, type, type, AttendSparseShape{});
  EXPECT_EQ(s.ops.back().kind, OpKind::attend_sparse);
  b.indexed("op", Part::qkv, type, type, ModuleRestShape{}, 3);
  EXPECT_EQ(s.ops.back().kind, OpKind::module_rest);
  b.mix("op", Part::qkv, type, MixShape{});
  EXPECT_EQ(s.ops.back().kind, OpKind::mix_streams);
  EXPECT_EQ(s.ops.back().dtype, Dtype::fp32);
  b.launch("op", 0.5);
  EXPECT_EQ(s.ops.back().kind, OpKind::launch);
  b.hop("op", Part::hop, group, 0);
  EXPECT_EQ(s.ops.back().kind, OpKind::send_recv);
  for (const Op& op : s.ops) EXPECT_EQ(op.shape.index(), shape_of(op.kind)) << describe(op);
}

TEST(Ops, ClassesHaveShapesOfOneKind) {
  Schedule s;
  ScheduleBuilder b(s);
  b.set_classes(2, 1);
  b.begin_block("block");
  b.gemm("op", Part::ffn, Dtype::bf16, Dtype::bf16, GemmShape{1, 2, 3});
  const Shape mixed[] = {GemmShape{1, 2, 3}, BatchedGemmShape{LatentProduct::absorb_query, 1, 2, 3, 1, 1}};
  EXPECT_THROW(b.vary(mixed), std::logic_error);
  const Shape unequal[] = {GemmShape{1, 2, 3}, GemmShape{2, 2, 3}};
  b.vary(unequal);
  EXPECT_EQ(shape<GemmShape>(s.op_of_class(0, 0)).rows, 1);
  EXPECT_EQ(shape<GemmShape>(s.op_of_class(0, 1)).rows, 2);
  const Shape alike[] = {GemmShape{4, 2, 3}, GemmShape{4, 2, 3}};
  b.gemm("op", Part::ffn, Dtype::bf16, Dtype::bf16, GemmShape{1, 2, 3});
  b.vary(alike);
  EXPECT_EQ(s.ops.back().variants, kAlike);
  EXPECT_EQ(shape<GemmShape>(s.ops.back()).rows, 4);
}

// An index writes 300 scores, a choice reads the 250 of the rows that have one.
TEST(Ops, G8ScoresAreFourBytes) {
  EXPECT_EQ(score_bytes(op_of(std::get<IndexLogitsShape>(kShapes))).value, 1200);
  EXPECT_EQ(score_bytes(op_of(std::get<TopKShape>(kShapes))).value, 1000);
  EXPECT_EQ(score_bytes(op_of(std::get<AttendSparseShape>(kShapes))).value, 0);
}

// By hand: 32 channels, of which two requests keep three rows; states of 60 numbers.
TEST(Ops, G9StatesAreReadAndWrittenOnce) {
  PricedOp op = op_of(std::get<RecurrentShape>(kShapes));
  std::get<RecurrentShape>(op.shape).states = 1;
  ASSERT_EQ(op.kind, OpKind::convolve);
  EXPECT_EQ(flops(op).value, 0);
  EXPECT_EQ(kv_bytes(op).value, 2 * 2 * (2 * 3 * 32));
  EXPECT_EQ(token_bytes(op).value, 2 * 20 * (32 + 32));
  op.kind = OpKind::recur;
  EXPECT_EQ(flops(op).value, 20 * (8 * 60 + 2 * 64 * 4 * (3 + 5)));
  EXPECT_EQ(kv_bytes(op).value, 2 * 4 * (2 * 60));
  EXPECT_EQ(token_bytes(op).value, 2 * 20 * (32 + 20));
  std::get<RecurrentShape>(op.shape).prompts = false;
  EXPECT_EQ(flops(op).value, 20 * 8 * 60);
  // Behind each of three tokens a state, and the three rows before each: five in all.
  std::get<RecurrentShape>(op.shape).states = 3;
  EXPECT_EQ(kv_bytes(op).value, (1 + 3) * 4 * (2 * 60));
  op.kind = OpKind::convolve;
  EXPECT_EQ(kv_bytes(op).value, 2 * 2 * ((3 + 5) * 32));
  EXPECT_EQ(token_bytes(op_of(std::get<ElementwiseShape>(kShapes))).value, 0);
}

// By hand: 3 rows of 4 streams of 10 numbers. Before a sublayer 24 numbers of the mixture follow from all 40,
// by a matrix in float32, and one stream is written; behind it all are read and written beside its output.
TEST(Ops, G10StreamsAreReadAndMixed) {
  PricedOp op = op_of(MixShape{3, 10, 4, true});
  op.dtype = Dtype::fp32;
  EXPECT_EQ(flops(op).value, 2 * 3 * 40 * (24 + 1));
  EXPECT_EQ(weight_bytes(op).value, 4 * 24 * 40);
  EXPECT_EQ(token_bytes(op).value, 2 * 3 * 10 * 5);
  std::get<MixShape>(op.shape).before = false;
  EXPECT_EQ(flops(op).value, 2 * 3 * 40 * (4 + 1));
  EXPECT_EQ(weight_bytes(op).value, 0);
  EXPECT_EQ(token_bytes(op).value, 2 * 3 * 10 * 9);
  EXPECT_EQ(kv_bytes(op).value, 0);
}

// Numbers computed by hand from the shapes above.
TEST(Ops, G1ToG5WorkFollowsFromShapes) {
  struct Row {
    double flops, exponentials, weight_bytes, kv_bytes, message_bytes;
  };
  const auto expect = [](const Shape& shape, Dtype type, const Row& row) {
    PricedOp op = op_of(shape);
    op.dtype = type;
    SCOPED_TRACE(describe(op));
    EXPECT_EQ(flops(op).value, row.flops);
    EXPECT_EQ(exponentials(op).value, row.exponentials);
    EXPECT_EQ(weight_bytes(op).value, row.weight_bytes);
    EXPECT_EQ(kv_bytes(op).value, row.kv_bytes);
    EXPECT_EQ(message_bytes(op).value, row.message_bytes);
  };
  // 2 x 3 x 5 x 7 operations, 35 weights of two bytes.
  expect(std::get<GemmShape>(kShapes), Dtype::bf16, {210, 0, 70, 0, 0});
  // The same for 11 matrices; of 385 weights of one byte this part of two reads half.
  expect(std::get<BatchedGemmShape>(kShapes), Dtype::fp8, {2310, 0, 192.5, 0, 0});
  // 12.5 pairs, 3.5 matrices of 35 weights of half a byte.
  expect(std::get<GroupedGemmShape>(kShapes), Dtype::fp4, {875, 0, 68.90625, 0, 0});
  // 300 pairs of 8 heads, 12 + 10 wide; of 40 latent rows 12 elements are read, whatever the heads, ...
  expect(std::get<AttendPrefillShape>(kShapes), Dtype::bf16, {105'600, 2400, 0, 960, 0});
  // ... else 2 KV heads of 22.
  AttendPrefillShape prompt = std::get<AttendPrefillShape>(kShapes);
  prompt.cache = CacheRows::heads;
  expect(prompt, Dtype::bf16, {105'600, 2400, 0, 3520, 0});
  expect(std::get<AttendDecodeShape>(kShapes), Dtype::fp8, {105'600, 2400, 0, 480, 0});
  AttendDecodeShape heads = std::get<AttendDecodeShape>(kShapes);
  heads.cache = CacheRows::heads;
  expect(heads, Dtype::fp8, {105'600, 2400, 0, 1760, 0});
  // 300 pairs of 3 heads, 5 wide; 40 keys of 132 bytes.
  expect(std::get<IndexLogitsShape>(kShapes), Dtype::fp8, {9000, 0, 0, 5280, 0});
  expect(std::get<TopKShape>(kShapes), Dtype::fp8, {0, 0, 0, 0, 0});
  // 150 pairs of 8 heads, 12 + 10 wide; 40 rows of 656 bytes.
  expect(std::get<AttendSparseShape>(kShapes), Dtype::fp8, {52'800, 1200, 0, 26'240, 0});
  expect(std::get<ModuleRestShape>(kShapes), Dtype::fp8, {0, 0, 0, 0, 0});
  expect(std::get<ElementwiseShape>(kShapes), Dtype::bf16, {0, 0, 0, 0, 0});
  expect(std::get<ExchangeShape>(kShapes), Dtype::bf16, {0, 0, 0, 0, 1000});
  expect(std::get<RoutedShape>(kShapes), Dtype::bf16, {0, 0, 0, 0, 1000});
}

// Products of counts that a 64-bit integer does not hold.
TEST(Ops, G1WorkOfTheLargestShapesIsExactToADouble) {
  AttendPrefillShape a;
  a.q_heads = 128;
  a.kv_heads = 8;
  a.qk_dim = a.v_dim = 128;
  a.pairs = Count{1} << 52;
  a.kv_rows = Count{1} << 40;
  EXPECT_EQ(flops(op_of(a)).value, 0x1p52 * 2 * 128 * 256);
  EXPECT_EQ(kv_bytes(op_of(a)).value, 0x1p40 * 8 * 256 * 2);
  EXPECT_EQ(flops(op_of(GemmShape{Count{1} << 30, Count{1} << 20, Count{1} << 20})).value, 0x1p71);
}

}  // namespace
}  // namespace shardline
