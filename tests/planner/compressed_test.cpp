// Compressed attention (CSA, HCA) and hyper-connections, lowered: [P34], [P33] against the model's own
// counts, against counting row by row, and against itself on other ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/cost/kernel_cost.hpp"
#include "hardware/cost/kernel_list.hpp"
#include "hardware/machine/frameworks.hpp"
#include "models/model/cache.hpp"
#include "models/model/catalog.hpp"
#include "planner/layers/compressed.hpp"
#include "planner/search/memory.hpp"
#include "planner/search/search.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/error.hpp"
#include "tests/planner/attention_ops.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using namespace testing;

constexpr long long kContext = 102'400;

Case case_of(const char* model = "deepseek-v4-pro", long long context = kContext,
             const char* system = "h200-hgx") {
  Precision precision;
  precision.weights = Dtype::fp8_block;
  precision.math = precision.dispatch = precision.kv = Dtype::fp8;
  System on = catalog_system(system);
  if (on.fabric.nodes < 8) on.fabric.nodes = 8;
  return make_case(load_model(model, source_path("models/catalog")), std::move(on), precision, context, 128,
                   Routing{});
}

struct Sums {
  double flops = 0, kv = 0, weights = 0, scored = 0, attended = 0, candidates = 0;
  int choices = 0;
};
Sums sums_of(const Case& c, const Plan& p) {
  Sums out;
  over_attention(c, p, [&](const Op& op, double n) {
    if (op.kind == OpKind::mix_streams) return;
    out.kv += n * kv_bytes(op).value;
    if (is_gemm(op.kind))
      out.weights += n * weight_bytes(op).value / bytes_per_element(op.dtype);
    else
      out.flops += n * flops(op).value;
    if (op.kind == OpKind::index_logits)
      out.scored += n * static_cast<double>(shape<IndexLogitsShape>(op).pairs);
    if (op.kind == OpKind::attend_sparse)
      out.attended += n * static_cast<double>(shape<AttendSparseShape>(op).pairs);
    if (std::string_view(op.name) == "gather candidates") out.candidates = message_bytes(op).value;
    out.choices += op.kind == OpKind::top_k;
  });
  return out;
}

// What rows to come are made of stands beside rows, on every rank.
double compressors_of(const Model& m) {
  double bytes = 0;
  for (const LayerRun& run : m.runs)
    bytes += run.count * compressor_bytes(m.attentions[static_cast<std::size_t>(run.attention)]).value;
  return bytes;
}

// The oracle: what the model says of itself, without a plan.
TEST(Compressed, P34OneRankReadsAndComputesWhatTheModelSays) {
  for (const char* model : {"deepseek-v4-pro", "deepseek-v4-flash"}) {
    for (const long long context : {1LL, 100LL, 128LL, 1000LL, 2048LL, 4097LL, kContext, 1'000'000LL}) {
      SCOPED_TRACE(std::string(model) + " " + std::to_string(context));
      const Case c = case_of(model, context);
      const Plan p = plan_of(c, "tensor:tpa=1,ep=1");
      const Sums s = sums_of(c, p);
      const auto [mixers, matrices] = mixers_of(c.model, context);
      EXPECT_PRED2(near, s.flops, mixers);
      EXPECT_PRED2(near, s.weights, matrices);
      EXPECT_PRED2(near, s.kv, decode_read_bytes(c.model, context, Dtype::fp8).value);
      EXPECT_PRED2(near, memory_use(c, p).kv.value,
                   cache_bytes(c.model, context, Dtype::fp8).value + compressors_of(c.model));
    }
  }
}

// vllm models/deepseek_v4/compressor.py: 8 tokens of values and gates twice 512 wide, and of the index 128;
// 128 tokens of 512; float32.
TEST(Compressed, M14CompressorsKeepWhatRowsToComeAreMadeOf) {
  const Model m = load_model("deepseek-v4-pro", source_path("models/catalog"));
  EXPECT_EQ(compressors_of(m), 30.0 * (8 * 2048 + 8 * 512) * 4 + 31.0 * 128 * 1024 * 4);
  EXPECT_EQ(compressors_of(load_model("deepseek-r1", source_path("models/catalog"))), 0);
}

// By looking at every token: rows of which the last token is not behind it, on each rank.
TEST(Compressed, P34RowPairsAreThoseOfEveryToken) {
  Attention a;
  a.compression = Compression{.ratio = 4};
  Attention sparse = a;
  sparse.index = SparseIndex{.heads = 2, .dim = 4, .top_k = 3};
  for (const Segment s : {Segment{0, 1}, Segment{0, 3}, Segment{0, 4}, Segment{0, 61}, Segment{7, 9},
                          Segment{10, 1}, Segment{11, 1}, Segment{12, 1}, Segment{63, 1}, Segment{25, 38}}) {
    for (const int sharers : {1, 2, 3}) {
      const CacheShare share{1, 1, {sharers, 1}, 2, ValueUp::before};
      for (int member = 0; member < sharers; ++member) {
        Count pairs = 0, chosen = 0;
        for (long long token = s.cached; token < s.length(); ++token) {
          const long long rows = (token + 1) / 4;
          chosen += std::min<Count>(rows, 3);
          for (long long row = 0; row < rows; ++row) pairs += row / 2 % sharers == member;
        }
        EXPECT_EQ(row_pairs(a, share, member, s), pairs) << s.cached << " " << s.fresh << " " << sharers;
        EXPECT_EQ(chosen_row_pairs(sparse, s), chosen) << s.cached << " " << s.fresh;
      }
    }
  }
}

// Rows and the index are whole on every rank of a TP group; queries and groups of outputs are not.
TEST(Compressed, P34TensorParallelismSharesOutHeadsAndNotRows) {
  const Case c = case_of();
  const Sums one = sums_of(c, plan_of(c, "tensor:tpa=1,ep=1")),
             eight = sums_of(c, plan_of(c, "tensor:tpa=8,ep=8"));
  EXPECT_EQ(eight.scored, one.scored);
  EXPECT_EQ(eight.kv, one.kv);
  EXPECT_EQ(eight.attended, one.attended);
  EXPECT_EQ(memory_use(c, plan_of(c, "tensor:tpa=8,ep=8")).kv.value,
            memory_use(c, plan_of(c, "tensor:tpa=1,ep=1")).kv.value);
  // Sharded: queries up and both products of outputs.
  const double sharded = 61.0 * (128.0 * 512 * 1536 + 128.0 * 512 * 1024 + 16.0 * 1024 * 7168);
  EXPECT_PRED2(near, one.weights - eight.weights, sharded * 7 / 8);
}

// 16 groups of 8 heads: more ranks than groups share one's heads and each has the group's second product.
TEST(Compressed, P34GroupsOfOutputsAreSharedOrRepeated) {
  const Case c = case_of();
  const Attention& a = c.model.attentions.front();
  const auto groups = [&](const char* text) {
    const OutputGroups g = output_groups(a, plan_of(c, text));
    return std::vector<Count>{g.groups, g.width};
  };
  EXPECT_EQ(groups("tensor:tpa=1,ep=1"), (std::vector<Count>{16, 4096}));
  EXPECT_EQ(groups("tensor:tpa=8,ep=8"), (std::vector<Count>{2, 4096}));
  EXPECT_EQ(groups("tensor:tpa=16,ep=16"), (std::vector<Count>{1, 4096}));
  EXPECT_EQ(groups("tensor:tpa=64,ep=64"), (std::vector<Count>{1, 1024}));
  EXPECT_EQ(groups("helix:kvp=8,tpa=1,ep=8"), (std::vector<Count>{2, 4096}));
  const Sums sixteen = sums_of(c, plan_of(c, "tensor:tpa=16,ep=16")),
             more = sums_of(c, plan_of(c, "tensor:tpa=64,ep=64"));
  EXPECT_PRED2(near, sixteen.weights - more.weights,
               61.0 * 3 / 64 * (128.0 * 512 * 1536 + 128.0 * 512 * 1024));  // not 16 x 1024 x 7168
}

TEST(Compressed, P34RanksThatShareACacheShareRowsAndIndex) {
  const Case c = case_of();
  const Sums whole = sums_of(c, plan_of(c, "tensor:tpa=1,ep=1"));
  for (const char* text :
       {"kv_shard:kvp=4,tpa=1,ep=4", "helix:kvp=4,tpa=1,ep=4", "dcp:tpa=4,dcp=4,ep=4,interleave=128"}) {
    SCOPED_TRACE(text);
    const Sums part = sums_of(c, plan_of(c, text));
    EXPECT_EQ(4 * part.scored, whole.scored);  // 25,600 rows of 4 tokens
    EXPECT_EQ(part.candidates, 1024 * 8.0);
    EXPECT_EQ(part.choices, 2);
    // The window of 128 tokens lies on one rank, behind whole blocks.
    const double rows = 30.0 * 1024 + 31.0 * 800;
    EXPECT_NEAR(part.attended, rows / 4 + 61.0 * 128, 30);
    const double kv = memory_use(c, plan_of(c, text)).kv.value, index = 30.0 * 25'600 / 4 * (584 + 132),
                 heavy = 31.0 * 800 / 4 * 584, window = 61.0 * 128 * 584;
    EXPECT_PRED2(near, kv, index + heavy + window + compressors_of(c.model));
  }
}

// Mixed steps and chunks: pairs of all rows of tokens, however a prompt is cut.
TEST(Compressed, P34ChunksOfAPromptAttendToWhatTheWholeDoes) {
  Case c = case_of();
  const auto attended = [&](std::vector<Segment> prompts) {
    c.batch = prefill_batch(prompts);
    const Sums s = sums_of(c, plan_of(c, "tensor:tpa=8,ep=8"));
    return std::pair{s.attended, s.scored};
  };
  const auto [whole, scored] = attended({{0, 20'000}});
  double parts = 0, part_scored = 0;
  for (const Segment s : {Segment{0, 7'777}, Segment{7'777, 223}, Segment{8'000, 12'000}}) {
    const auto [a, b] = attended({s});
    parts += a;
    part_scored += b;
  }
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(part_scored, scored);
}

TEST(Compressed, P34OtherStrategiesRefuse) {
  Case c = case_of();
  c.batch = prefill_batch({{0, 4096}});
  for (const Strategy* s : strategies()) {
    if (s->compressed || !s->prefills) continue;
    Plan p;
    p.strategy = id_of(*s);
    p.cp = s->context_parallel() ? 8 : 1;
    const auto why = check_plan(c, p);
    ASSERT_TRUE(why) << s->name;
    // Of rows that shard tokens as it does the one that runs them is named, else the first one of the table.
    const char* named = s->context_parallel() ? ": allgather_kv does" : ": tensor does";
    EXPECT_NE(why->find(named), std::string::npos) << *why;
    EXPECT_FALSE(s->takes(c)) << s->name;
  }
}

// Four streams are mixed before and behind every sublayer, and before the head; hand-offs carry all of them,
// and every rank has the matrices of the mixtures.
TEST(HyperConnections, P33StreamsAreMixedAroundEverySublayer) {
  const Case c = case_of();
  const Plan p = plan_of(c, "tensor:tpa=8,ep=8,batch=3");
  Schedule s;
  lower(s, c, p);
  const std::vector<double> times = executions(s);
  double before = 0, behind = 0, weights = 0;
  for (std::size_t b = 0; b < s.blocks.size(); ++b) {
    const Block& block = s.blocks[BlockIndex(static_cast<std::uint32_t>(b))];
    for (OpIndex i = block.first; i < block.last; ++i) {
      if (s.ops[i].kind != OpKind::mix_streams) continue;
      const auto& m = shape<MixShape>(s.ops[i]);
      EXPECT_EQ(m.rows, 3);
      EXPECT_EQ(m.hidden, 7168);
      EXPECT_EQ(m.streams, 4);
      (m.before ? before : behind) += times[b];
      if (std::string_view(block.name) != "head") weights += times[b] * weight_bytes(s.ops[i]).value;
    }
  }
  EXPECT_EQ(before, 2 * 61 + 1);
  EXPECT_EQ(behind, 2 * 61);
  EXPECT_EQ(weights, 61 * 2 * 4.0 * 24 * 4 * 7168);
  Case one = c;
  one.model.residual.streams = 1;
  EXPECT_PRED2(near, memory_use(c, p).weights.value - memory_use(one, p).weights.value, weights);
  const auto handed = [](const Case& of) {
    Schedule piped;
    lower(piped, of, plan_of(of, "pipeline:pp=2,tpa=4,ep=4"));
    double bytes = 0;
    for (const Op& op : piped.ops)
      bytes += std::string_view(op.name) == "hand-off" ? message_bytes(op).value : 0;
    return bytes;
  };
  EXPECT_EQ(handed(c), 4 * handed(one));
}

// [H79]: one of the two sites that a row of the tables has together.
TEST(HyperConnections, H79AreHalfOfWhatBothSitesTake) {
  Case c = case_of();
  use_framework(c.system, "sglang", source_path("hardware/catalog"));
  CostModel cost(c.system);
  for (const bool before : {false, true}) {
    PricedOp op;
    op.kind = OpKind::mix_streams;
    op.dtype = Dtype::fp32;
    op.math = Dtype::bf16;
    op.shape = MixShape{64, 7168, 4, before};
    const OpCost price = cost.price(op);
    ASSERT_NE(price.fit, nullptr);
    EXPECT_EQ(price.fit->words[0], before ? "pre" : "post");
    EXPECT_EQ(price.basis, Basis::measured);
    FormContext context;
    ASSERT_TRUE(price.fit->form->context(price.fit->words, c.system, context));
    // Streams are not in L2 when their turn comes: a layer's weights and caches have passed.
    constexpr double kColdCache = 2;
    std::vector<double> parameters = price.fit->parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (price.fit->form->parameters[i].name == std::string_view("l2"))
        parameters[i] = std::min(parameters[i], kColdCache);
    const std::vector<double> x{64, 7168, 4, 2};
    double at[kMostAxes];
    price.fit->form->coordinates(std::span<const double>(x), context, at);
    const double both = price.fit->form->seconds(std::span<const double>(x), context, parameters) *
                        std::exp(price.fit->correction.at(std::span(at).first(price.fit->form->axes.size())));
    EXPECT_NEAR(2 * cost.time(op).value / both, 1, 1e-9);
    op.shape = MixShape{64, 7168, 2, before};  // of other streams than were measured
    EXPECT_EQ(cost.price(op).basis, Basis::extrapolated);
    op.shape = MixShape{64, 5120, 4, before};  // between both widths
    EXPECT_LT(cost.time(op).value, both / 2);
  }
}

// Kimi-K3 weighs the sums of its blocks of 12 layers before every sublayer: the embedding, those before, and
// its own so far.
TEST(AttentionResiduals, P33SumsOfBlocksAreRead) {
  const Case c = case_of("kimi-k3");
  Schedule s;
  lower(s, c, plan_of(c, "tensor:tpa=8,ep=8"));
  const std::vector<double> times = executions(s);
  double read = 0, added = 0;
  for (std::size_t b = 0; b < s.blocks.size(); ++b) {
    const Block& block = s.blocks[BlockIndex(static_cast<std::uint32_t>(b))];
    for (OpIndex i = block.first; i < block.last; ++i) {
      const std::string_view name = s.ops[i].name;
      if (name == "weigh sums" && std::string_view(block.name) != "head")
        read += times[b] * shape<ElementwiseShape>(s.ops[i]).bytes.value;
      added += name == "add to sum" ? times[b] : 0;
    }
  }
  double sums = 0;
  for (int layer = 0; layer < 93; ++layer)
    for (const bool attention : {true, false})
      sums += 1 + layer / 12 + (attention && layer % 12 == 0 ? 0 : 1) + 1;
  EXPECT_NEAR(read, sums * 7168 * 2, 1);
  EXPECT_EQ(added, 2 * 93);
}

// A block's parts are the measured block, its correction included, in decode and in prefill.
TEST(Compressed, H73PartsSumToTheMeasuredBlock) {
  for (const char* model : {"deepseek-v4-pro", "deepseek-v4-flash"}) {
    for (const bool prompts : {false, true}) {
      SCOPED_TRACE(std::string(model) + (prompts ? ", prefill" : ", decode"));
      Case c = case_of(model, 65'536);
      c.batch.decode.front().count = 8;
      if (prompts) c.batch = prefill_batch({{16'384, 4096}});
      use_framework(c.system, "sglang", source_path("hardware/catalog"));
      Schedule s;
      lower(s, c, plan_of(c, "tensor:tpa=4,ep=4"));
      CostModel cost(c.system);
      int blocks = 0;
      for (const Block& block : s.blocks) {
        double sum = 0;
        const KernelFit* fit = nullptr;
        bool window = false;
        for (OpIndex i = block.first; i < block.last; ++i) {
          const Op& op = s.ops[i];
          if (op.part != Part::qkv && op.part != Part::attention && op.part != Part::out_proj) continue;
          if (op.kind == OpKind::elementwise || op.kind == OpKind::merge || op.kind == OpKind::mix_streams)
            continue;
          sum += cost.time(op).value;
          const PriceInterval in = cost.interval(op);
          EXPECT_LT(in.band.low, in.band.high) << describe(op);
          EXPECT_NE(cost.price(op).basis, Basis::assumed) << describe(op);
          if (op.kind == OpKind::module_rest) {
            fit = cost.price(op).fit;
            window = shape<ModuleRestShape>(op).ratio == 1;
          }
        }
        if (fit == nullptr || window) continue;
        ++blocks;
        EXPECT_EQ(fit->words[0], model);
        FormContext context;
        ASSERT_TRUE(fit->form->context(fit->words, c.system, context));
        const double heads = c.model.attentions.front().q_heads / 4.0;
        const std::vector<double> x =
            prompts ? std::vector<double>{1, 4096, 16'384, heads} : std::vector<double>{8, 65'536, heads};
        double at[kMostAxes];
        fit->form->coordinates(std::span<const double>(x), context, at);
        const double whole = fit->form->seconds(std::span<const double>(x), context, fit->parameters) *
                             std::exp(fit->correction.at(std::span(at).first(fit->form->axes.size())));
        EXPECT_NEAR(sum / whole, 1, prompts ? 0.1 : 1e-9) << fit->words[1];
      }
      EXPECT_EQ(blocks, 2);
    }
  }
}

}  // namespace
}  // namespace shardline
