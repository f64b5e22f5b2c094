// Block-sparse attention with an index (MSA), lowered: [P27] against the model's own counts, against
// counting, and against itself on other ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
#include "planner/layers/sparse_attention.hpp"
#include "planner/search/memory.hpp"
#include "planner/search/search.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/attention_ops.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using namespace testing;

constexpr long long kContext = 102'400;

Case case_of(long long context = kContext, Dtype kv = Dtype::fp8) {
  Precision precision;
  precision.weights = precision.math = precision.dispatch = Dtype::bf16;
  precision.kv = kv;
  System on = catalog_system("h200-hgx");
  on.fabric.nodes = 4;
  return make_case(load_model("minimax-m3", source_path("models/catalog")), std::move(on), precision, context,
                   16, Routing{});
}

struct Sums {
  double flops = 0, kv = 0, weights = 0, index = 0, scores = 0, chosen = 0, candidates = 0;
  int choices = 0;
};
Sums sums_of(const Case& c, const Plan& p) {
  Sums out;
  over_attention(c, p, [&](const Op& op, double n) {
    out.kv += n * kv_bytes(op).value;
    if (is_gemm(op.kind))
      out.weights += n * weight_bytes(op).value / bytes_per_element(op.dtype);
    else
      out.flops += n * flops(op).value;
    if (op.kind == OpKind::index_logits) {
      out.index += n * static_cast<double>(shape<IndexLogitsShape>(op).pairs);
      out.scores += n * score_bytes(op).value;
    }
    if (op.kind == OpKind::attend_sparse)
      out.chosen += n * static_cast<double>(shape<AttendSparseShape>(op).pairs);
    if (std::string_view(op.name) == "gather candidates") out.candidates = message_bytes(op).value;
    out.choices += op.kind == OpKind::top_k;
  });
  return out;
}

// The oracle: what the model says of itself, without a plan.
TEST(BlockChoice, P27OneRankReadsAndComputesWhatTheModelSays) {
  for (const long long context : {1000LL, 2048LL, 2049LL, kContext, 1'000'000LL}) {
    SCOPED_TRACE(context);
    Case c = case_of();
    c.batch = decode_batch(context);
    const Plan p = plan_of(c, "tensor:tpa=1,ep=1");
    const Sums s = sums_of(c, p);
    const auto [mixers, matrices] = mixers_of(c.model, context);
    EXPECT_PRED2(near, s.flops, mixers);
    EXPECT_PRED2(near, s.weights, matrices);
    EXPECT_PRED2(near, s.kv, decode_read_bytes(c.model, context, Dtype::fp8).value);
    EXPECT_PRED2(near, memory_use(c, p).kv.value, cache_bytes(c.model, context, Dtype::fp8).value);
  }
}

// By looking at every row: all of its own block up to itself, and whole ones.
TEST(BlockChoice, P27ChosenPairsAreThoseOfEveryRow) {
  const SparseIndex index{.heads = 2, .dim = 4, .top_k = 3, .block = 4, .local_blocks = 1};
  for (const Segment s :
       {Segment{0, 5}, Segment{0, 12}, Segment{0, 13}, Segment{0, 61}, Segment{7, 9}, Segment{10, 1},
        Segment{12, 1}, Segment{15, 1}, Segment{16, 1}, Segment{25, 6}, Segment{3, 17}}) {
    Count pairs = 0;
    for (long long row = s.cached; row < s.length(); ++row) {
      const long long blocks = row / 4 + 1;
      pairs += blocks <= 3 ? row + 1 : 2 * 4 + row % 4 + 1;
    }
    EXPECT_EQ(chosen_pairs(index, s), pairs) << s.cached << " " << s.fresh;
  }
}

// Scores of blocks that rows choose among, on the rank with most: by looking at every row.
TEST(BlockChoice, P27ScoresAreThoseOfEveryRow) {
  Case c = case_of();
  for (const Segment s : {Segment{0, 5000}, Segment{2047, 3}, Segment{2048, 1}, Segment{40'000, 777}}) {
    c.batch = prefill_batch({s});
    for (const char* text : {"tensor:tpa=1,ep=1", "helix:kvp=4,tpa=1,ep=4"}) {
      const int shards = std::string_view(text).starts_with("helix") ? 4 : 1;
      if (shards > 1) c.batch.decode = {{1, 1, 1}};  // it has no steps of prompts alone
      Count scores = 0, choosing = 0;
      for (long long row = s.cached; row < s.length(); ++row) {
        const long long blocks = row / 128 + 1, own = (blocks + shards - 1) / shards;
        if (own <= 16) continue;
        ++choosing;
        scores += 4 * own;
      }
      bool seen = false;
      over_attention(c, plan_of(c, text), [&](const Op& op, double) {
        if (op.kind != OpKind::top_k) return;
        const auto& k = shape<TopKShape>(op);
        if (k.candidates || k.rows != s.fresh || !k.prompts) return;
        seen = true;
        EXPECT_EQ(k.choosing, choosing) << text << " " << s.cached;
        EXPECT_EQ(k.scores, scores) << text << " " << s.cached;
      });
      EXPECT_TRUE(seen) << text;
      c.batch.decode.clear();
    }
  }
}

// Index heads go with the KV heads; the index's keys are on every rank.
TEST(BlockChoice, P27TensorParallelismShardsTheHeadsOfTheIndexAndNotItsKeys) {
  const Case c = case_of();
  const auto ops = [&](const char* plan) {
    Count heads = 0, keys = 0, rows = 0;
    over_attention(c, plan_of(c, plan), [&](const Op& op, double) {
      if (op.kind == OpKind::index_logits) {
        heads = shape<IndexLogitsShape>(op).heads;
        keys = shape<IndexLogitsShape>(op).keys * shape<IndexLogitsShape>(op).key_bytes;
      }
      if (op.kind == OpKind::attend_sparse) rows = shape<AttendSparseShape>(op).row_bytes;
    });
    return std::vector<Count>{heads, keys, rows};
  };
  EXPECT_EQ(ops("tensor:tpa=1,ep=1"), (std::vector<Count>{4, kContext * 128, 1024}));
  EXPECT_EQ(ops("tensor:tpa=2,ep=2"), (std::vector<Count>{2, kContext * 128, 512}));
  EXPECT_EQ(ops("tensor:tpa=4,ep=4"), (std::vector<Count>{1, kContext * 128, 256}));
  EXPECT_EQ(ops("tensor:tpa=8,ep=8"), (std::vector<Count>{1, kContext * 128, 256}));
  // Its projections: 4 query heads and one key, then one of each.
  const double whole = sums_of(c, plan_of(c, "tensor:tpa=1,ep=1")).weights,
               four = sums_of(c, plan_of(c, "tensor:tpa=4,ep=4")).weights;
  EXPECT_PRED2(near, 4 * four - whole, 57.0 * 3 * 6144 * 128);
}

TEST(BlockChoice, P27RanksThatShareACacheShareTheIndex) {
  const Case c = case_of();
  const Sums whole = sums_of(c, plan_of(c, "tensor:tpa=4,ep=4"));
  // 800 blocks of 128 tokens, whole ones on each rank: 200 on each of four.
  for (const char* text : {"kv_shard:kvp=4,tpa=4,ep=4", "helix:kvp=4,tpa=4,ep=16"}) {
    SCOPED_TRACE(text);
    const Sums part = sums_of(c, plan_of(c, text));
    EXPECT_EQ(4 * part.index, whole.index);
    EXPECT_EQ(4 * part.scores, whole.scores);
    EXPECT_NEAR(4 * part.chosen, whole.chosen, 4 * 57);
    EXPECT_EQ(part.candidates, 16 * 8.0);  // scores and numbers of 16 blocks, one head
    EXPECT_EQ(part.choices, 2);
  }
  // Ranks of a dcp group have one KV head between them.
  const Sums dcp = sums_of(c, plan_of(c, "dcp:tpa=16,dcp=4,ep=16,exchange=a2a"));
  EXPECT_EQ(4 * dcp.index, whole.index);
  EXPECT_EQ(dcp.candidates, 16 * 8.0);
}

// Whole blocks of an index lie on one rank, whatever the cache's blocks: what does not divide is rounded up.
TEST(BlockChoice, P27CachesAreSharedByWholeBlocks) {
  Case c = case_of();
  const Plan p = plan_of(c, "helix:kvp=4,tpa=4,ep=16");
  for (const Attention& a : c.model.attentions) EXPECT_EQ(cache_share(c, a, p).block, a.index ? 128 : 16);
  c.kv_block = 129;
  for (const Attention& a : c.model.attentions) EXPECT_EQ(cache_share(c, a, p).block, a.index ? 256 : 129);
}

// Keys and values of the rank's KV heads, and the index's key whole.
TEST(BlockChoice, P27MemoryHasTheKeysOfTheIndex) {
  const Case c = case_of();
  EXPECT_EQ(memory_use(c, plan_of(c, "tensor:tpa=4,ep=4")).kv.value, kContext * (60.0 * 256 + 57.0 * 128));
  EXPECT_EQ(memory_use(c, plan_of(c, "helix:kvp=4,tpa=4,ep=16")).kv.value,
            kContext / 4 * (60.0 * 256 + 57.0 * 128));
}

TEST(BlockChoice, P27OtherStrategiesRefuse) {
  Case c = case_of();
  c.batch = prefill_batch({{0, 4096}});
  for (const Strategy* s : strategies()) {
    if (s->chosen_keys || !s->prefills) continue;
    std::vector<Plan> plans;
    s->enumerate(c, 8, SearchSpace{}, plans);
    for (const Plan& p : plans) EXPECT_TRUE(check_plan(c, p)) << s->name;
    Plan p;
    p.strategy = id_of(*s);
    p.cp = s->context_parallel() ? 8 : 1;
    const auto reason = check_plan(c, p);
    ASSERT_TRUE(reason) << s->name;
    EXPECT_THAT(*reason, ::testing::HasSubstr("an index chooses")) << s->name;
  }
}

// A block's parts are the measured block, its correction included, in decode and in prefill.
TEST(BlockChoice, H73PartsSumToTheMeasuredBlock) {
  for (const bool prompts : {false, true}) {
    Case c = case_of(65'536, Dtype::bf16);
    c.batch.decode.front().count = 8;
    if (prompts) c.batch = prefill_batch({{16'384, 4096}});
    use_framework(c.system, "sglang", source_path("hardware/catalog"));
    Schedule s;
    const Plan p = plan_of(c, "tensor:tpa=4,ep=4");
    lower(s, c, p);
    CostModel cost(c.system);
    double sum = 0;
    const KernelFit* fit = nullptr;
    for (const Block& block : s.blocks) {
      double of_block = 0;
      const KernelFit* of = nullptr;
      for (OpIndex i = block.first; i < block.last; ++i) {
        const Op& op = s.ops[i];
        if (op.part != Part::qkv && op.part != Part::attention && op.part != Part::out_proj) continue;
        if (op.kind == OpKind::elementwise) continue;
        of_block += cost.time(op).value;
        const PriceInterval in = cost.interval(op);
        EXPECT_LT(in.band.low, in.band.high) << describe(op);
        EXPECT_NE(cost.price(op).basis, Basis::assumed) << describe(op);
        if (op.kind == OpKind::module_rest) of = cost.price(op).fit;
      }
      if (of == nullptr) continue;
      sum = of_block;
      fit = of;
    }
    ASSERT_NE(fit, nullptr);
    EXPECT_EQ(fit->words[0] + " " + fit->words[1], "MiniMax-M3 msa");
    FormContext context;
    ASSERT_TRUE(fit->form->context(fit->words, c.system, context));
    const std::vector<double> x =
        prompts ? std::vector<double>{1, 4096, 16'384, 16} : std::vector<double>{8, 65'536, 16};
    double at[kMostAxes];
    fit->form->coordinates(std::span<const double>(x), context, at);
    const double whole = fit->form->seconds(std::span<const double>(x), context, fit->parameters) *
                         std::exp(fit->correction.at(std::span(at).first(fit->form->axes.size())));
    // Engines' host time of prompts is the engine's; of rows that choose blocks the mean is a block's half
    // off.
    EXPECT_NEAR(sum / whole, 1, prompts ? 0.1 : 1e-9);
  }
}

}  // namespace
}  // namespace shardline
