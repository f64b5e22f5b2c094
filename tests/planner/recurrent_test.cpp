// Linear attention by the delta rule (gated DeltaNet, KDA), lowered: [P30] against the model's own counts,
// against counting, and against itself on other ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/cost/kernel_cost.hpp"
#include "hardware/cost/kernel_list.hpp"
#include "hardware/machine/frameworks.hpp"
#include "models/model/cache.hpp"
#include "models/model/catalog.hpp"
#include "planner/layers/recurrent.hpp"
#include "planner/search/memory.hpp"
#include "planner/search/search.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/attention_ops.hpp"
#include "tests/planner/priced_op.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using namespace testing;

constexpr long long kContext = 100'000;
constexpr const char* kQwen = "qwen3.5-397b-a17b";

// Of Kimi Linear's shape: every fourth layer MLA, the others KDA. moonshotai/Kimi-Linear-48B-A3B's
// config.json.
Model kimi_linear() {
  Model m;
  m.name = "kimi-linear";
  m.hidden = 2304;
  m.vocab = 163'840;
  Attention kda, mla;
  kda.kind = AttentionKind::delta;
  kda.gate = OutputGate::narrow;
  kda.delta = DeltaRule{
      .key_heads = 32, .value_heads = 32, .key_dim = 128, .value_dim = 128, .conv = 4, .channel_decay = true};
  mla.kind = AttentionKind::mla;
  mla.q_heads = 32;
  mla.kv_heads = 1;
  mla.kv_lora_rank = 512;
  mla.rope_dim = 64;
  mla.nope_dim = 128;
  mla.v_dim = 128;
  FeedForward experts;
  experts.experts = 256;
  experts.experts_per_token = 8;
  experts.shared_experts = 1;
  experts.inner = 1024;
  std::vector<Attention> attentions;
  for (int i = 0; i < 27; ++i) attentions.push_back(i % 4 == 3 || i == 26 ? mla : kda);
  set_layers(m, attentions, std::vector<FeedForward>(attentions.size(), experts));
  return m;
}

Model model_of(const std::string& name) {
  return name == "kimi-linear" ? kimi_linear() : load_model(name, source_path("models/catalog"));
}

Case case_of(const std::string& model, long long context = kContext, const char* system = "h200-hgx",
             int nodes = 4) {
  Precision precision;
  precision.weights = precision.math = precision.dispatch = Dtype::bf16;
  precision.kv = Dtype::bf16;
  System on = catalog_system(system);
  on.fabric.nodes = nodes;
  return make_case(model_of(model), std::move(on), precision, context, 1, Routing{});
}

struct Sums {
  double mixer_flops = 0, kv = 0, weights = 0, state_flops = 0, state_bytes = 0, recurrences = 0;
};

// Over all layers of a step, as often as each block runs on one rank.
Sums sums_of(const Case& c, const Plan& p) {
  Sums out;
  over_attention(c, p, [&](const Op& op, double n) {
    out.kv += n * kv_bytes(op).value;
    if (op.kind == OpKind::gemm || op.kind == OpKind::batched_gemm)
      out.weights += n * weight_bytes(op).value / bytes_per_element(op.dtype);
    else
      out.mixer_flops += n * flops(op).value;
    if (!is_recurrent(op.kind)) return;
    out.state_flops += n * flops(op).value;
    out.state_bytes += n * kv_bytes(op).value;
    out.recurrences += op.kind == OpKind::recur ? n : 0;
  });
  return out;
}

// The oracle: what the model says of itself, without a plan.
TEST(Recurrent, P30OneRankReadsAndComputesWhatTheModelSays) {
  for (const char* name : {kQwen, "kimi-linear"}) {
    for (const long long context : {1LL, 1000LL, kContext, 1'000'000LL}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(context));
      Case c = case_of(name, 1000);
      c.batch = decode_batch(context);
      const Plan p = plan_of(c, "tensor:tpa=1,ep=1");
      const Sums s = sums_of(c, p);
      const auto [mixers, matrices] = mixers_of(c.model, context);
      EXPECT_PRED2(near, s.mixer_flops, mixers);
      EXPECT_PRED2(near, s.weights, matrices);
      EXPECT_PRED2(near, s.kv, decode_read_bytes(c.model, context, Dtype::bf16).value);
      EXPECT_PRED2(near, s.state_bytes, 2 * state_bytes(c.model).value);
      EXPECT_PRED2(near, memory_use(c, p).kv.value,
                   cache_bytes(c.model, context, Dtype::bf16).value + state_bytes(c.model).value);
    }
  }
}

// MODELS.md's check values: what a step reads at 1M tokens, and the state of a request.
TEST(Recurrent, P30PublishedBytesOfQwen) {
  Case c = case_of(kQwen, 1000);
  c.batch = decode_batch(1'000'000);
  const Sums s = sums_of(c, plan_of(c, "tensor:tpa=1,ep=1"));
  EXPECT_NEAR(s.kv / 1e9, 31.1, 0.05);
  EXPECT_NEAR(s.state_bytes / 2 / 1e6, 192, 1);
}

// Heads are sharded over all ranks of a TP group, and over all that share the output projection where the
// caches of other layers are sharded by context.
TEST(Recurrent, P30RanksShareTheHeads) {
  for (const char* name : {kQwen, "kimi-linear"}) {
    const Case c = case_of(name);
    const bool kimi = c.model.attentions.back().kind == AttentionKind::mla ||
                      c.model.attentions.front().kind == AttentionKind::mla;
    const Sums one = sums_of(c, plan_of(c, "tensor:tpa=1,ep=1"));
    std::vector<std::string> plans{"tensor:tpa=8,ep=8", "pipeline:pp=1,tpa=8,ep=8,in_flight=1",
                                   kimi ? "helix:kvp=8,tpa=1,ep=8,value_up=after" : "helix:kvp=4,tpa=2,ep=8"};
    plans.emplace_back(kimi ? "dcp:tpa=8,dcp=8,ep=8" : "dcp:tpa=8,dcp=4,ep=8");
    for (const std::string& text : plans) {
      SCOPED_TRACE(std::string(name) + " " + text);
      const Sums part = sums_of(c, plan_of(c, text));
      EXPECT_PRED2(near, 8 * part.state_flops, one.state_flops);
      EXPECT_PRED2(near, 8 * part.state_bytes, one.state_bytes);
      EXPECT_EQ(part.recurrences, one.recurrences);
    }
    // Ranks of other KV shards have copies, as of the other weights.
    const Sums copies = sums_of(c, plan_of(c, "kv_shard:kvp=4,tpa=2,ep=2,tpf=1"));
    EXPECT_PRED2(near, 2 * copies.state_flops, one.state_flops);
  }
}

// The rank with most: by looking at every rank.
TEST(Recurrent, P30HeadsOfTheFullestRank) {
  for (const auto& [keys, values] :
       {std::pair{16, 64}, std::pair{16, 32}, std::pair{4, 12}, std::pair{3, 6}}) {
    Attention a;
    a.kind = AttentionKind::delta;
    a.delta = DeltaRule{.key_heads = keys, .value_heads = values, .key_dim = 8, .value_dim = 4, .conv = 4};
    for (int ranks = 1; ranks <= values; ++ranks) {
      Plan p;
      p.strategy = strategy_id("tensor");
      p.tpa = ranks;
      Count most_keys = 0, most_values = 0, all = 0;
      for (int t = 0; t < ranks; ++t) {
        const auto own = value_heads(a, p, t);
        all += own.second - own.first;
        most_values = std::max(most_values, own.second - own.first);
        std::vector<bool> used(static_cast<std::size_t>(keys), false);
        for (Count v = own.first; v < own.second; ++v)
          used[static_cast<std::size_t>(v * keys / values)] = true;
        const auto of = key_heads_of(*a.delta, own);
        EXPECT_EQ(std::count(used.begin(), used.end(), true), of.second - of.first);
        most_keys = std::max(most_keys, of.second - of.first);
      }
      EXPECT_EQ(all, values);
      EXPECT_EQ(recurrent_heads(a, p).value, most_values) << ranks << " of " << values;
      EXPECT_EQ(recurrent_heads(a, p).key, most_keys) << ranks << " of " << keys << " " << values;
    }
  }
}

// Every request has a state, prompts and those that decode; chunks of a prompt hand one on.
TEST(Recurrent, P30StatesOfAllRequestsAreKept) {
  Case c = case_of(kQwen, 4096);
  const Plan p = plan_of(c, "tensor:tpa=8,ep=8,batch=3");
  const double one = state_bytes(c.model).value / 8, token = cache_bytes(c.model, 1, Dtype::bf16).value / 2;
  EXPECT_PRED2(near, memory_use(c, p).kv.value, 3 * (one + 4096 * token));
  c.batch.prefill = {{0, 512, 2}};
  EXPECT_PRED2(near, memory_use(c, p).kv.value, 3 * (3 * one + (4096 + 2 * 512) * token));
}

double prompt_flops(const Case& c, const std::string& plan) {
  return sums_of(c, plan_of(c, plan)).state_flops;
}

// A prompt in chunks updates its state by as many tokens; each chunk reads and writes it once.
TEST(Recurrent, P30ChunksOfAPromptSumToIt) {
  Case c = case_of(kQwen);
  c.batch = prefill_batch({{0, 10'000}});
  const std::string plan = "pipeline:pp=1,tpa=8,ep=8,in_flight=1";
  const double whole = prompt_flops(c, plan), bytes = sums_of(c, plan_of(c, plan)).state_bytes;
  for (const auto& [chunk, rounds] : {std::pair{"1000", 10}, std::pair{"4096", 3}, std::pair{"9999", 2}}) {
    const std::string chunked = plan + ",prefill_chunk=" + chunk;
    EXPECT_PRED2(near, prompt_flops(c, chunked), whole) << chunk;
    EXPECT_PRED2(near, sums_of(c, plan_of(c, chunked)).state_bytes, rounds * bytes) << chunk;
  }
  EXPECT_GT(whole, 10'000 * 45 * 8.0 * 8 * 128 * 128);  // products of chunks beside the definition's
}

// Decoding requests and prompts of one step have kernels of their own.
TEST(Recurrent, P30MixedStepsUpdateAndScan) {
  Case c = case_of(kQwen);
  c.batch = {{{kContext - 1, 1, 5}}, {{0, 700}, {300, 100}}};
  Schedule s;
  lower(s, c, plan_of(c, "tensor:tpa=8,ep=8"));
  int updates = 0, scans = 0;
  for (const Op& op : s.ops) {
    if (op.kind != OpKind::recur) continue;
    const RecurrentShape& r = shape<RecurrentShape>(op);
    (r.prompts ? scans : updates) += 1;
    EXPECT_EQ(r.rows, r.prompts ? 800 : 5);
    EXPECT_EQ(r.requests, r.prompts ? 2 : 5);
    EXPECT_EQ(r.longest, r.prompts ? 700 : 1);
  }
  EXPECT_EQ(updates, 1);
  EXPECT_EQ(scans, 1);
}

// Strategies that run no such layers say so, and enumerate nothing.
TEST(Recurrent, P30OtherStrategiesRefuse) {
  Case c = case_of(kQwen);
  Case prefill = c;
  prefill.batch = prefill_batch({{0, 4096}});
  for (const Strategy* s : strategies()) {
    std::vector<Plan> plans;
    for (const Case* of : {&c, &prefill}) s->enumerate(*of, 8, SearchSpace{}, plans);
    if (s->states) {
      EXPECT_FALSE(plans.empty() && s->decodes && std::string_view(s->name) != "pipeline") << s->name;
      continue;
    }
    for (const Plan& p : plans) {
      for (const Case* of : {&c, &prefill}) EXPECT_TRUE(check_plan(*of, p)) << s->name;
    }
    Plan p;
    p.strategy = id_of(*s);
    p.cp = s->context_parallel() ? 8 : 1;
    const auto reason = check_plan(s->decodes ? c : prefill, p);
    ASSERT_TRUE(reason) << s->name;
    EXPECT_THAT(*reason, ::testing::AnyOf(::testing::HasSubstr("keep a state"),
                                          ::testing::HasSubstr("is a strategy for")));
  }
}

TEST(Recurrent, P30MoreRanksThanHeadsAreRefused) {
  Case c = case_of("kimi-linear", kContext, "h200-hgx", 16);
  const auto reason = check_plan(c, plan_of(c, "helix:kvp=64,tpa=1,ep=64,value_up=after"));
  ASSERT_TRUE(reason);
  EXPECT_EQ(*reason, "64 ranks share the layers with a state, which have 32 heads of values");
  EXPECT_FALSE(check_plan(c, plan_of(c, "helix:kvp=32,tpa=1,ep=32,value_up=after")));
}

Case on_framework(Case c, const std::string& framework) {
  use_framework(c.system, framework, source_path("hardware/catalog"));
  return c;
}

// Each framework's own kernels, of both phases, at the heads of the ranks that were measured.
TEST(Recurrent, H76KernelsAreTheFrameworks) {
  for (const char* framework : {"vllm", "sglang"}) {
    SCOPED_TRACE(framework);
    Case c = on_framework(case_of(kQwen, 65'536), framework);
    EXPECT_EQ(priced(c, "tensor:tpa=8,ep=8,batch=16", OpKind::recur).basis, Basis::measured);
    EXPECT_THAT(priced(c, "tensor:tpa=8,ep=8,batch=16", OpKind::recur).kernel,
                ::testing::HasSubstr("fused_recurrent_gated_delta_rule_packed_decode"));
    EXPECT_EQ(priced(c, "tensor:tpa=8,ep=8,batch=16", OpKind::convolve).basis, Basis::measured);
    c.batch = prefill_batch({{0, 8192}});
    EXPECT_EQ(priced(c, "tensor:tpa=8,ep=8", OpKind::recur).basis, Basis::measured);
    EXPECT_THAT(priced(c, "tensor:tpa=8,ep=8", OpKind::recur).kernel,
                ::testing::HasSubstr("chunk_gated_delta_rule"));
    EXPECT_EQ(priced(c, "tensor:tpa=8,ep=8", OpKind::convolve).basis, Basis::measured);
  }
}

TEST(Recurrent, H76KimisKernelsAreItsOwn) {
  Case c = on_framework(case_of("kimi-linear", 65'536), "sglang");
  EXPECT_THAT(priced(c, "tensor:tpa=1,ep=1,batch=16", OpKind::recur).kernel, ::testing::HasSubstr("kda"));
  EXPECT_THAT(priced(c, "tensor:tpa=1,ep=1,batch=16", OpKind::convolve).kernel, ::testing::HasSubstr("kda"));
  c.batch = prefill_batch({{0, 8192}});
  EXPECT_THAT(priced(c, "tensor:tpa=1,ep=1", OpKind::recur).kernel, ::testing::HasSubstr("chunk_kda"));
  EXPECT_THAT(priced(c, "tensor:tpa=1,ep=1", OpKind::convolve).kernel, ::testing::HasSubstr("qkv3"));
}

// No list and no system leaves a phase without a price, and none is zero or below what the device needs.
TEST(Recurrent, H76EveryListPricesEveryPhaseAboveTheDevicesFloor) {
  for (const char* system : {"a100-sxm", "h100-hgx", "h200-hgx", "gb200-nvl72"}) {
    for (const char* framework : {"trtllm", "vllm", "sglang"}) {
      for (const char* name : {kQwen, "kimi-linear"}) {
        SCOPED_TRACE(std::string(system) + " " + framework + " " + name);
        Case c = on_framework(case_of(name, 65'536, system, 1), framework);
        for (const bool prompts : {false, true}) {
          if (prompts) c.batch = prefill_batch({{0, 8192}});
          Schedule s;
          lower(s, c, plan_of(c, prompts ? "tensor:tpa=4,ep=4" : "tensor:tpa=4,ep=4,batch=64"));
          CostModel cost(c.system);
          for (const Op& op : s.ops) {
            if (!is_recurrent(op.kind)) continue;
            const Seconds least = kv_bytes(op) / c.system.device.memory_bandwidth;
            EXPECT_GE(cost.time(op), least * (1 - 1e-12)) << describe(op);
            EXPECT_GT(cost.time(op), Seconds(1e-6)) << describe(op);
            EXPECT_LE(cost.floor(op), cost.time(op)) << describe(op);
            EXPECT_NE(cost.price(op).basis, Basis::none) << describe(op);
            const PriceInterval i = cost.interval(op);
            if (cost.price(op).fit) {
              EXPECT_LT(i.band.low, i.band.high) << describe(op);
            }
          }
        }
      }
    }
  }
}

// The context of a request changes nothing here, more requests and more tokens do.
TEST(Recurrent, H76StatesCostByRequestsNotByContext) {
  const Case c = case_of(kQwen, 65'536), longer = case_of(kQwen, 1'000'000);
  const char* plan = "tensor:tpa=8,ep=8,batch=64";
  EXPECT_EQ(priced(c, plan, OpKind::recur).seconds, priced(longer, plan, OpKind::recur).seconds);
  EXPECT_GT(priced(c, "tensor:tpa=8,ep=8,batch=256", OpKind::recur).seconds,
            2 * priced(c, plan, OpKind::recur).seconds);
}

// A prompt among short ones takes what it takes alone, at least.
TEST(Recurrent, H76TheLongestPromptIsNoFasterBesideOthers) {
  Case c = case_of(kQwen);
  c.batch = prefill_batch({{0, 32'768}});
  const double alone = priced(c, "tensor:tpa=8,ep=8", OpKind::recur).seconds;
  c.batch = prefill_batch({{0, 32'768}, {0, 10, 30}});
  EXPECT_GE(priced(c, "tensor:tpa=8,ep=8", OpKind::recur).seconds, alone * (1 - 1e-12));
}

}  // namespace
}  // namespace shardline
