// Sparse attention with an index (DSA), lowered: [P27] against the model's own counts, against counting, and
// against itself on other ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "hardware/cost/kernel_cost.hpp"
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

constexpr long long kContext = 100'000;

Case case_of(const std::string& model, long long context = kContext, const char* system = "h200-hgx",
             int nodes = 4) {
  Precision precision;
  precision.weights = precision.math = precision.dispatch = Dtype::bf16;
  precision.kv = Dtype::fp8;
  System on = catalog_system(system);
  on.fabric.nodes = nodes;
  return make_case(load_model(model, source_path("models/catalog")), std::move(on), precision, context, 1,
                   Routing{});
}

struct Sums {
  double flops = 0, attention_flops = 0, kv = 0, weights = 0, index_pairs = 0, chosen_pairs = 0;
};

// Over all layers of a step, as often as each block runs on one rank.
Sums sums_of(const Case& c, const Plan& p) {
  Sums out;
  over_attention(c, p, [&](const Op& op, double n) {
    out.flops += n * flops(op).value;
    out.kv += n * kv_bytes(op).value;
    if (is_gemm(op.kind)) {
      const double elements = weight_bytes(op).value / bytes_per_element(op.dtype);
      out.weights += n * elements;
    } else {
      out.attention_flops += n * flops(op).value;
    }
    if (op.kind == OpKind::index_logits)
      out.index_pairs += n * static_cast<double>(shape<IndexLogitsShape>(op).pairs);
    if (op.kind == OpKind::attend_sparse)
      out.chosen_pairs += n * static_cast<double>(shape<AttendSparseShape>(op).pairs);
  });
  return out;
}

// The oracle: what the model says of itself, without a plan.
TEST(SparseAttention, P27OneRankReadsAndComputesWhatTheModelSays) {
  for (const char* name : {"deepseek-v3.2", "glm-5.2"}) {
    for (const long long context : {1000LL, 2048LL, 2049LL, kContext, 1'000'000LL}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(context));
      Case c = case_of(name, 1000);
      c.batch = decode_batch(context);
      const Sums s = sums_of(c, plan_of(c, "tensor:tpa=1,ep=1"));
      const auto [mixers, matrices] = mixers_of(c.model, context);
      const auto near = [](double x, double y) { return std::abs(x - y) <= 1e-12 * std::abs(y); };
      EXPECT_PRED2(near, s.attention_flops, mixers);
      EXPECT_PRED2(near, s.weights, matrices);
      EXPECT_PRED2(near, s.kv, decode_read_bytes(c.model, context, Dtype::fp8).value);
      const MemoryUse use = memory_use(c, plan_of(c, "tensor:tpa=1,ep=1"));
      EXPECT_PRED2(near, use.kv.value, cache_bytes(c.model, context, Dtype::fp8).value);
    }
  }
}

// What the small kernels of all layers gather, each block as often as it runs on one rank.
double gathered(const Case& c, const std::string& plan) {
  Schedule s;
  lower(s, c, plan_of(c, plan));
  const std::vector<double> times = executions(s);
  double sum = 0;
  for (std::size_t b = 0; b < s.blocks.size(); ++b) {
    const Block& block = s.blocks[BlockIndex(static_cast<std::uint32_t>(b))];
    for (OpIndex i = block.first; i < block.last; ++i) {
      if (s.ops[i].kind == OpKind::module_rest)
        sum += times[b] * static_cast<double>(shape<ModuleRestShape>(s.ops[i]).candidates);
    }
  }
  return sum;
}

// Chunks of a prompt are charged their own pairs, which are the prompt's together.
TEST(SparseAttention, H73ChunksOfAPromptSumToIt) {
  Case c = case_of("deepseek-v3.2");
  c.batch = prefill_batch({{0, 10'000}});
  const double whole = gathered(c, "pipeline:pp=1,tpa=8,ep=8,in_flight=1");
  EXPECT_EQ(whole, c.model.layers() * (10'000.0 * 10'001 / 2));
  for (const char* chunk : {"1000", "4096", "9999"})
    EXPECT_EQ(gathered(c, std::string("pipeline:pp=1,tpa=8,ep=8,in_flight=1,prefill_chunk=") + chunk), whole)
        << chunk;
}

// Decoding requests beside a prompt bring their new token, not their caches.
TEST(SparseAttention, H73DecodesBesideAPromptGatherNoCaches) {
  Case c = case_of("deepseek-v3.2");
  c.batch = prefill_batch({{0, 2'000}});
  const double alone = gathered(c, "tensor:tpa=8,ep=8");
  c.batch.decode = {{kContext - 1, 1, 3}};
  EXPECT_EQ(gathered(c, "tensor:tpa=8,ep=8"), alone + 3 * c.model.layers());
}

// By looking at every row.
TEST(SparseAttention, P27ChosenPairsAreThoseOfEveryRow) {
  const SparseIndex index{.heads = 2, .dim = 4, .top_k = 10};
  for (const Segment s : {Segment{0, 5}, Segment{0, 10}, Segment{0, 31}, Segment{7, 9}, Segment{10, 1},
                          Segment{9, 1}, Segment{25, 4}, Segment{3, 7}}) {
    Count pairs = 0;
    for (long long row = s.cached; row < s.length(); ++row) pairs += std::min<long long>(10, row + 1);
    EXPECT_EQ(chosen_pairs(index, s), pairs) << s.cached << " " << s.fresh;
  }
}

// TP shards the heads of attention and no part of the index; two halves of the heads are all heads.
TEST(SparseAttention, P27TensorParallelismShardsHeadsAndNotTheIndex) {
  const Case c = case_of("deepseek-v3.2");
  const Sums one = sums_of(c, plan_of(c, "tensor:tpa=1,ep=1")),
             two = sums_of(c, plan_of(c, "tensor:tpa=2,ep=2"));
  EXPECT_EQ(one.index_pairs, two.index_pairs);
  EXPECT_EQ(one.chosen_pairs, two.chosen_pairs);
  const double scores = 2.0 * 64 * 128 * one.index_pairs;
  EXPECT_NEAR(2 * (two.attention_flops - scores), one.attention_flops - scores, 1e-12 * one.attention_flops);
  EXPECT_EQ(one.kv, two.kv);
}

// The context may be shared: then each rank scores its part, and reads its part of what was chosen.
TEST(SparseAttention, P27RanksThatShareACacheShareTheIndex) {
  const Case c = case_of("deepseek-v3.2");
  const Sums whole = sums_of(c, plan_of(c, "tensor:tpa=8,ep=8"));
  for (const char* text : {"kv_shard:kvp=8,tpa=1,ep=1", "helix:kvp=8,tpa=1,ep=8,value_up=before",
                           "helix:kvp=8,tpa=1,ep=8,value_up=after", "dcp:tpa=8,dcp=8,ep=8,exchange=a2a"}) {
    SCOPED_TRACE(text);
    const Sums part = sums_of(c, plan_of(c, text));
    EXPECT_NEAR(8 * part.index_pairs, whole.index_pairs, 8 * 61);
    EXPECT_NEAR(8 * part.chosen_pairs, whole.chosen_pairs, 8 * 61);
    Schedule s;
    lower(s, c, plan_of(c, text));
    double candidates = 0;
    int choices = 0;
    for (const Op& op : s.ops) {
      if (std::string_view(op.name) == "gather candidates") candidates = message_bytes(op).value;
      choices += op.kind == OpKind::top_k;
    }
    // 2048 scores and positions of one row.
    EXPECT_EQ(candidates, 2048 * 8.0);
    EXPECT_EQ(choices, 2);
  }
}

// Layers that take an earlier one's choice have no index of their own: 57 of GLM-5.2's 78.
TEST(SparseAttention, P27SharedLayersScoreNothing) {
  const Case c = case_of("glm-5.2");
  Schedule s;
  lower(s, c, plan_of(c, "tensor:tpa=8,ep=8"));
  const std::vector<double> times = executions(s);
  double scored = 0, attended = 0;
  for (std::size_t b = 0; b < s.blocks.size(); ++b) {
    const Block& block = s.blocks[BlockIndex(static_cast<std::uint32_t>(b))];
    for (OpIndex i = block.first; i < block.last; ++i) {
      scored += s.ops[i].kind == OpKind::index_logits ? times[b] : 0;
      attended += s.ops[i].kind == OpKind::attend_sparse ? times[b] : 0;
    }
  }
  EXPECT_EQ(scored, 21);
  EXPECT_EQ(attended, 78);
}

// Index keys are on every rank of a TP group, and shared where caches are.
TEST(SparseAttention, P27MemoryHasTheKeysOfTheIndex) {
  const Case c = case_of("deepseek-v3.2");
  const double token = 61.0 * (656 + 132);
  EXPECT_EQ(memory_use(c, plan_of(c, "tensor:tpa=8,ep=8")).kv.value, token * kContext);
  EXPECT_EQ(memory_use(c, plan_of(c, "dcp:tpa=8,dcp=8,ep=8")).kv.value, token * kContext / 8);
  EXPECT_EQ(memory_use(c, plan_of(c, "helix:kvp=8,tpa=1,ep=8,value_up=after")).kv.value,
            token * kContext / 8);
}

// Strategies that cannot choose keys say so, and enumerate nothing.
TEST(SparseAttention, P27OtherStrategiesRefuse) {
  Case c = case_of("deepseek-v3.2");
  Case prefill = c;
  prefill.batch = prefill_batch({{0, 4096}});
  for (const Strategy* s : strategies()) {
    if (s->chosen_keys) continue;
    std::vector<Plan> plans;
    for (const Case* of : {&c, &prefill}) s->enumerate(*of, 8, SearchSpace{}, plans);
    for (const Plan& p : plans) {
      for (const Case* of : {&c, &prefill}) EXPECT_TRUE(check_plan(*of, p)) << s->name;
    }
    Plan p;
    p.strategy = id_of(*s);
    p.cp = s->context_parallel() ? 8 : 1;
    const auto reason = check_plan(s->decodes ? c : prefill, p);
    ASSERT_TRUE(reason) << s->name;
    EXPECT_THAT(*reason, ::testing::AnyOf(::testing::HasSubstr("an index chooses"),
                                          ::testing::HasSubstr("is a strategy for")));
  }
}

double seconds_of(const Case& c, const std::string& text, OpKind kind) {
  Schedule s;
  lower(s, c, plan_of(c, text));
  CostModel cost(c.system);
  double sum = 0;
  for (const Op& op : s.ops)
    if (op.kind == kind) sum += cost.time(op).value;
  return sum;
}

// What the tables say (SGLang, H200): TP does not make the index faster, sharing its keys does.
TEST(SparseAttention, H73CalibratedIndexFollowsTheKeysOfTheRank) {
  const Case c = case_of("deepseek-v3.2", 160'000);
  ASSERT_FALSE(c.system.calibration.empty());
  for (const OpKind kind : {OpKind::index_logits, OpKind::attend_sparse, OpKind::top_k, OpKind::module_rest})
    EXPECT_GT(seconds_of(c, "tensor:tpa=8,ep=8", kind), 0) << to_string(kind);
  const double one = seconds_of(c, "tensor:tpa=1,ep=1", OpKind::index_logits),
               eight = seconds_of(c, "tensor:tpa=8,ep=8", OpKind::index_logits),
               shared = seconds_of(c, "dcp:tpa=8,dcp=8,ep=8,exchange=a2a", OpKind::index_logits);
  EXPECT_NEAR(eight / one, 1, 0.25);  // but for the correction of the measured block
  EXPECT_LT(shared, eight / 4);
}

// A block's parts are the measured block: with products by their own fits their sum is what the fit to the
// whole block says, its correction included.
TEST(SparseAttention, H73PartsSumToTheMeasuredBlock) {
  Case c = case_of("deepseek-v3.2", 65'536);
  c.precision.kv = Dtype::bf16;
  c.batch.decode.front().count = 8;
  Schedule s;
  lower(s, c, plan_of(c, "tensor:tpa=4,ep=4"));
  CostModel cost(c.system);
  double sum = 0;
  const KernelFit* fit = nullptr;
  for (const Op& op : s.ops) {
    if (op.part != Part::qkv && op.part != Part::attention && op.part != Part::out_proj) continue;
    if (op.kind == OpKind::elementwise) continue;
    sum += cost.time(op).value;
    EXPECT_NE(cost.price(op).basis, Basis::assumed) << describe(op);
    const PriceInterval i = cost.interval(op);
    EXPECT_LT(i.band.low, i.band.high) << describe(op);
    if (op.kind == OpKind::module_rest) fit = cost.price(op).fit;
  }
  ASSERT_NE(fit, nullptr);
  EXPECT_EQ(fit->words[0] + " " + fit->words[1], "deepseek-v3.2 indexer");
  FormContext context;
  ASSERT_TRUE(fit->form->context(fit->words, c.system, context));
  const double x[] = {8, 65'536, 32};
  double at[kMostAxes];
  fit->form->coordinates(std::span<const double>(x), context, at);
  const double whole = fit->form->seconds(std::span<const double>(x), context, fit->parameters) *
                       std::exp(fit->correction.at(std::span(at).first(fit->form->axes.size())));
  EXPECT_NEAR(sum / whole, 1, 1e-9);
}

}  // namespace
}  // namespace shardline
