// [C23] Layers that keep a state, under context-parallel prefill: tokens are exchanged for heads before the
// convolution, and heads for tokens behind the states.
#include <gmock/gmock.h>

#include "hardware/cost/kernel_cost.hpp"
#include "hardware/timing/unfolder.hpp"
#include "planner/layers/recurrent.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/search/memory.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

constexpr const char* kModels[]{"qwen3.5-397b-a17b", "kimi-k3", "nemotron-3-super-120b-a12b"};
constexpr const char* kPlans[]{"allgather_kv:cp=8,tpa=1,tpf=1,batch=1",
                               "ring_pass_kv:cp=4,tpa=2,tpf=2,batch=1",
                               "ring_pass_q:cp=4,tpa=1,tpf=1,batch=2",
                               "striped:cp=4,tpa=1,tpf=1,batch=1",
                               "ulysses:cp=2,tpa=1,tpf=1,batch=1",
                               "allgather_kv:cp=4,tpa=1,tpf=1,batch=1,in_flight=1,prefill_chunk=2000"};

Case study(const std::string& model, std::vector<Segment> requests) {
  Case c = decode_case(model, "h200-hgx", 1);
  c.precision = all_bf16();
  c.batch = prefill_batch(std::move(requests));
  return c;
}

const Attention& state_layer(const Case& c) {
  for (const Attention& a : c.model.attentions)
    if (a.recurrent()) return a;
  return c.model.attentions.front();
}

double over_ranks(const Schedule& s, OpKind kind) {
  double all = 0;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].kind != kind) continue;
    for (int r = 0; r < s.ranks_per_stage; ++r) {
      const auto a = shape<RecurrentShape>(s.op_of_class(i, s.class_of(r)));
      all += static_cast<double>(a.rows * a.value_heads);
    }
  }
  return all;
}

// Whatever the attention layers do: tokens x heads of all ranks are those of one.
TEST(ContextStates, C23AllRanksTogetherDoTheWorkOfOne) {
  for (const char* model : kModels) {
    const Case c = study(model, {{3'000, 9'000}, {0, 700}});
    const double one = over_ranks(lowered(c, "tensor:tpa=1,tpf=1,batch=1"), OpKind::recur);
    ASSERT_GT(one, 0);
    for (const char* text : kPlans) {
      SCOPED_TRACE(std::string(model) + " " + text);
      ASSERT_EQ(refusal(c, text), "");
      const Plan p = parse_plan(text);
      for (const OpKind kind : {OpKind::recur, OpKind::convolve})
        EXPECT_EQ(over_ranks(lowered(c, text), kind), one * p.batch);
    }
  }
}

// Of a token: queries and keys of the heads that go (copies beyond the key heads), values, a beta and decays
// in float32 of each head; outputs back.
TEST(ContextStates, C23MessagesAreTheHeadsOfOtherRanks) {
  struct Want {
    const char* model;
    double there, back;  // bytes of a token to one other rank of 8, and from it
  };
  // Qwen3.5: 16 key heads and 64 of values, 128 wide: 2 and 8 of them. Kimi-K3: 12 heads, decays by channel.
  for (const Want& w : {Want{"qwen3.5-397b-a17b", 2.0 * (2 * 2 * 128 + 8 * 128 + 8) + 4 * 8, 2.0 * 8 * 128},
                        Want{"kimi-k3", 2.0 * (3 * 12 * 128 + 12) + 4.0 * 12 * 128, 2.0 * 12 * 128}}) {
    SCOPED_TRACE(w.model);
    const Case c = study(w.model, {{0, 8'000}});
    const Schedule s = lowered(c, "allgather_kv:cp=8,tpa=1,tpf=1,batch=1");
    const std::vector<Op> there = ops_named(s, "tokens to heads"), back = ops_named(s, "heads to tokens");
    ASSERT_EQ(there.size(), 1U);
    ASSERT_EQ(back.size(), 1U);
    EXPECT_EQ(message_bytes(there[0]), Bytes(1'000 * 7 * w.there));
    EXPECT_EQ(message_bytes(back[0]), Bytes(1'000 * 7 * w.back));
    EXPECT_EQ(recurrent_buffers(c, state_layer(c), parse_plan("allgather_kv:cp=8,tpa=1,tpf=1,batch=1")),
              Bytes(2 * 1'000 * 8 * (w.there + w.back)));
  }
}

TEST(ContextStates, C23FoldedEqualsUnfolded) {
  for (const char* model : kModels) {
    const Case c = study(model, {{3'000, 9'000}, {0, 700}});
    for (const char* text : kPlans) {
      SCOPED_TRACE(std::string(model) + " " + text);
      expect_folded_equals_unfolded(c, lowered(c, text));
    }
  }
}

// Every rank has its heads' states, and each head's is on one rank.
TEST(ContextStates, C23StatesAreSharedOutByHeads) {
  for (const char* model : kModels) {
    SCOPED_TRACE(model);
    const Case c = study(model, {{0, 8'000}});
    const Attention& a = state_layer(c);
    const Count heads = state_rule(a).value_heads;
    for (const auto& [cp, tpa] : {std::pair{8, 1}, {4, 2}, {3, 2}, {5, 1}}) {
      Plan p;
      p.strategy = strategy_id("allgather_kv");
      p.cp = cp;
      p.tpa = tpa;
      std::vector<int> owners(static_cast<std::size_t>(heads), 0);
      Count most = 0;
      for (int r = 0; r < cp * tpa; ++r) {
        const auto [first, end] = state_heads(a, p, r);
        const auto [low, high] = value_heads(a, p, r % tpa);
        EXPECT_TRUE(first >= low && end <= high);
        most = std::max(most, end - first);
        for (Count h = first; h < end; ++h) ++owners[static_cast<std::size_t>(h)];
      }
      EXPECT_THAT(owners, ::testing::Each(1)) << cp << " " << tpa;
      EXPECT_LE(most, (heads / tpa + cp) / cp);
    }
    Plan one, eight;
    one.strategy = strategy_id("tensor");
    eight.strategy = strategy_id("allgather_kv");
    eight.cp = 8;
    const double keys = model == std::string("qwen3.5-397b-a17b") || model == std::string("kimi-k3") ? 0 : 1;
    const double part = rank_state_bytes(a, eight).value * 8 / rank_state_bytes(a, one).value;
    EXPECT_NEAR(part, 1, keys == 0 ? 1e-12 : 0.01);
  }
}

// Ranks share the scan as TP does.
TEST(ContextStates, C23TheScanIsSharedOutAsUnderTensorParallelism) {
  const Case c = study("qwen3.5-397b-a17b", {{0, 65'536}});
  CostModel cost(c.system);
  const auto scan = [&](const char* text) {
    const Schedule s = lowered(c, text);
    double sum = 0;
    for (OpIndex i = 0; i < s.ops.size(); ++i)
      if (s.ops[i].kind == OpKind::recur) sum += cost.time(s.op_of_class(i, 0)).value;
    return sum;
  };
  const double tensor = scan("tensor:tpa=8,ep=8,batch=1");
  EXPECT_GT(tensor, 0);
  EXPECT_EQ(scan("allgather_kv:cp=8,tpa=1,ep=8,tpf=1,batch=1"), tensor);
}

TEST(ContextStates, C23WhatIsRefusedIsNamed) {
  const Case c = study("qwen3.5-397b-a17b", {{0, 8'192}});
  EXPECT_THAT(refusal(c, "star:cp=4,tpa=1,tpf=1,batch=1"),
              ::testing::EndsWith("which qwen3.5-397b-a17b has: allgather_kv does"));
  const Case kimi = study("kimi-k3", {{0, 8'192}});
  EXPECT_EQ(refusal(kimi, "allgather_kv:cp=64,tpa=1,tpf=1,batch=1"),
            "cp=64 ranks take heads for tokens in layers with a state, of which a TP rank has 96: some would "
            "have none");
  EXPECT_EQ(refusal(kimi, "allgather_kv:cp=48,tpa=1,tpf=1,batch=1"), "");
}

}  // namespace
}  // namespace shardline
