// Mamba-2, lowered: [P30] against the model's own counts, and against itself on other ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>

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
#include "tests/planner/launchable.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using namespace testing;

Case case_of(long long context = 100'000, const char* system = "h200-hgx", int nodes = 4) {
  Precision precision;
  precision.weights = precision.math = precision.dispatch = Dtype::bf16;
  precision.kv = Dtype::bf16;
  System on = catalog_system(system);
  on.fabric.nodes = nodes;
  return make_case(load_model(kNemotron, source_path("models/catalog")), std::move(on), precision, context, 1,
                   Routing{});
}

struct Sums {
  double mixer_flops = 0, kv = 0, weights = 0, state_flops = 0, state_bytes = 0, recurrences = 0;
};

// Over all layers of a step, as often as each block runs on one rank.
Sums sums_of(const Case& c, const Plan& p) {
  Sums out;
  over_attention(c, p, [&](const Op& op, double n) {
    out.kv += n * kv_bytes(op).value;
    if (op.kind == OpKind::gemm)
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
TEST(StateSpace, P30OneRankReadsAndComputesWhatTheModelSays) {
  for (const long long context : {1LL, 1000LL, 1'000'000LL}) {
    SCOPED_TRACE(context);
    Case c = case_of(1000);
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
    EXPECT_EQ(s.recurrences, 40);
  }
}

// By hand: 128 heads of 64 x 128 numbers in float32, and three rows of 8192 + 2 x 8 x 128 channels.
TEST(StateSpace, P30StateOfARank) {
  const Case c = case_of();
  for (const Attention& a : c.model.attentions) {
    if (!a.mamba) continue;
    EXPECT_EQ(rank_state_bytes(a, plan_of(c, "tensor:tpa=1,ep=1")).value,
              128.0 * 64 * 128 * 4 + 3 * 2 * (8192.0 + 2048));
    EXPECT_EQ(rank_state_bytes(a, plan_of(c, "tensor:tpa=8,ep=8")).value,
              16.0 * 64 * 128 * 4 + 3 * 2 * (1024.0 + 256));
  }
}

// Whole groups on each of the ranks that share the output projection.
TEST(StateSpace, P30RanksShareTheGroups) {
  const Case c = case_of();
  const Sums one = sums_of(c, plan_of(c, "tensor:tpa=1,ep=1"));
  for (const char* text : {"tensor:tpa=8,ep=8", "pipeline:pp=1,tpa=8,ep=8,in_flight=1",
                           "helix:kvp=4,tpa=2,ep=8", "dcp:tpa=8,dcp=4,ep=8"}) {
    SCOPED_TRACE(text);
    const Sums part = sums_of(c, plan_of(c, text));
    EXPECT_PRED2(near, 8 * part.state_flops, one.state_flops);
    EXPECT_PRED2(near, 8 * part.state_bytes, one.state_bytes);
  }
  const Sums copies = sums_of(c, plan_of(c, "kv_shard:kvp=4,tpa=2,ep=2,tpf=1"));
  EXPECT_PRED2(near, 2 * copies.state_flops, one.state_flops);
}

// The outputs of a group are normed together.
TEST(StateSpace, P30RanksThatDoNotDivideTheGroupsAreRefused) {
  const Case c = case_of();
  for (const char* text : {"tensor:tpa=16,ep=16", "helix:kvp=8,tpa=2,ep=16"}) {
    const auto reason = check_plan(c, plan_of(c, text));
    ASSERT_TRUE(reason) << text;
    EXPECT_EQ(*reason, "16 ranks share the layers with a state, whose 8 groups (Mamba-2) they do not divide");
  }
  EXPECT_FALSE(check_plan(c, plan_of(c, "tensor:tpa=8,ep=8")));
}

Case of_one_group() {
  Case c = case_of();
  for (Attention& a : c.model.attentions) {
    if (a.mamba) a.mamba->groups = 1;
  }
  return c;
}

// Of a layer with one group each rank has a copy of it beside its heads, and the norm is over the sum of all
// ranks' squares: four bytes a token.
TEST(StateSpace, P30OneGroupIsCopiedAndNormedTogether) {
  const Case c = of_one_group();
  const Sums one = sums_of(c, plan_of(c, "tensor:tpa=1,ep=1"));
  const Plan p = plan_of(c, "tensor:tpa=8,ep=8,batch=3");
  EXPECT_PRED2(near, 8 * sums_of(c, plan_of(c, "tensor:tpa=8,ep=8")).state_flops, one.state_flops);
  int sums = 0;
  over_attention(c, p, [&](const Op& op, double n) {
    if (std::string_view(op.name) == "sum of squares") {
      ++sums;
      EXPECT_EQ(op.kind, OpKind::all_reduce);
      EXPECT_EQ(op.group, (Group{8, 1}));
      EXPECT_EQ(message_bytes(op).value, 3 * 4);
      EXPECT_EQ(n, 40);
    }
  });
  EXPECT_EQ(sums, 1);
  for (const Attention& a : c.model.attentions) {
    if (!a.mamba) continue;
    // 16 heads of 64 x 128 numbers in float32; three rows of 1024 channels, and of B and C of the group.
    EXPECT_EQ(rank_state_bytes(a, p).value, 16.0 * 64 * 128 * 4 + 3 * 2 * (1024.0 + 2 * 128));
    EXPECT_EQ(recurrent_channels(a, p), 1024 + 2 * 128);
    // Gate, inputs, B, C and steps of the rank's heads.
    EXPECT_EQ(recurrent_weights(c, a, p).projections, c.model.hidden * (2.0 * 1024 + 2 * 128 + 16));
  }
  over_attention(c, plan_of(c, "tensor:tpa=1,ep=1"),
                 [&](const Op& op, double) { EXPECT_NE(std::string_view(op.name), "sum of squares"); });
  EXPECT_EQ(check_plan(c, plan_of(c, "tensor:tpa=16,ep=16")), std::nullopt);
  EXPECT_EQ(too_many_for_states(c.model, parse_plan("tensor:tpa=24,ep=24")),
            "24 ranks share the layers with a state, whose 128 heads (Mamba-2) they do not divide");
}

// vLLM copies the group; SGLang where no weights are quantised; TensorRT-LLM does not.
TEST(StateSpace, P30EnginesCopyOneGroupAlone) {
  const auto refuses = [](const char* engine, void (*change)(Case&)) {
    const Case c = testing::case_of(engine, {kNemotron, "h200-hgx", "", change});
    const auto refusal = does_not_start(c, parse_plan("tensor:tpa=8,ep=8"));
    return refusal ? std::string(refusal->rule) : std::string();
  };
  const auto one = [](Case& c) {
    for (Attention& a : c.model.attentions) {
      if (a.mamba) a.mamba->groups = 1;
    }
  };
  const auto one_in_fp8 = [](Case& c) {
    for (Attention& a : c.model.attentions) {
      if (a.mamba) a.mamba->groups = 1;
    }
    c.precision.weights = c.precision.math = Dtype::fp8;
  };
  const auto four = [](Case& c) {
    for (Attention& a : c.model.attentions) {
      if (a.mamba) a.mamba->groups = 4;
    }
  };
  EXPECT_EQ(refuses("vllm", one), "");
  EXPECT_EQ(refuses("vllm", one_in_fp8), "");
  EXPECT_EQ(refuses("sglang", one), "");
  EXPECT_EQ(refuses("sglang", one_in_fp8), "heads");
  EXPECT_EQ(refuses("trtllm", one), "heads");
  for (const char* engine : {"vllm", "sglang", "trtllm"}) EXPECT_EQ(refuses(engine, four), "heads");
}

// A prompt in chunks updates its state by as many tokens.
// A sweep on 3 GPUs answered with three tensor-parallel ranks, which nobody may ask for.
TEST(StateSpace, P30WhatASweepTriesIsNotRefused) {
  const Case c = case_of();
  SearchSpace space;
  space.duplicate_kv = true;
  std::size_t tried = 0;
  for (const Strategy* s : strategies()) {
    if (!s->takes(c)) continue;
    for (const int gpus : {3, 6, 8, 12}) {
      std::vector<Plan> plans;
      enumerate_plans(c, *s, gpus, space, plans);
      for (Plan p : plans) {
        p.batch = std::max(p.batch, least_batch(c, p));
        EXPECT_EQ(check_plan(c, p).value_or(""), "") << to_string(p);
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 20U);
}

TEST(StateSpace, P30ChunksOfAPromptSumToIt) {
  Case c = case_of();
  c.batch = prefill_batch({{0, 10'000}});
  const std::string plan = "pipeline:pp=1,tpa=8,ep=8,in_flight=1";
  const double whole = sums_of(c, plan_of(c, plan)).state_flops;
  EXPECT_PRED2(near, sums_of(c, plan_of(c, plan + ",prefill_chunk=4096")).state_flops, whole);
  EXPECT_GT(whole, 10'000 * 40 * 6.0 * 16 * 64 * 128);  // products of chunks beside the definition's
}

TEST(StateSpace, P30ContextParallelStrategiesRefuse) {
  Case c = case_of();
  c.batch = prefill_batch({{0, 4096}});
  for (const Strategy* s : strategies()) {
    if (s->states || !s->prefills) continue;
    Plan p;
    p.strategy = id_of(*s);
    p.cp = s->context_parallel() ? 8 : 1;
    const auto reason = check_plan(c, p);
    ASSERT_TRUE(reason) << s->name;
    EXPECT_THAT(*reason, ::testing::HasSubstr("keep a state")) << s->name;
  }
}

// Prices: the state is argued from gated DeltaNet's rows and never below its bytes; the band says so, and is
// wider than that of what was measured.
TEST(StateSpace, H76StatesArePricedAsGatedDeltaNetsAndMarked) {
  for (const char* system : {"h100-hgx", "h200-hgx", "gb200-nvl72"}) {
    for (const char* framework : {"trtllm", "vllm", "sglang"}) {
      SCOPED_TRACE(std::string(system) + " " + framework);
      Case c = case_of(65'536, system, 1);
      use_framework(c.system, framework, source_path("hardware/catalog"));
      for (const bool prompts : {false, true}) {
        if (prompts) c.batch = prefill_batch({{0, 8192}});
        Schedule s;
        lower(s, c, plan_of(c, prompts ? "tensor:tpa=4,ep=4" : "tensor:tpa=4,ep=4,batch=64"));
        CostModel cost(c.system);
        int seen = 0;
        for (const Op& op : s.ops) {
          if (!is_recurrent(op.kind)) continue;
          ++seen;
          EXPECT_GE(cost.time(op), kv_bytes(op) / c.system.device.memory_bandwidth * (1 - 1e-12))
              << describe(op);
          EXPECT_LE(cost.floor(op), cost.time(op)) << describe(op);
          EXPECT_NE(cost.price(op).basis, Basis::none) << describe(op);
          if (op.kind == OpKind::recur) {
            EXPECT_NE(cost.price(op).basis, Basis::measured) << describe(op);
          }
        }
        EXPECT_GT(seen, 0);
      }
    }
  }
}

}  // namespace
}  // namespace shardline
