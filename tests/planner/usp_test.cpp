// USP (arXiv 2405.07719): bytes and pairs of every rank by closed form, which ranks talk to each other, and
// where it meets the strategies that it joins. That its data flow is exact is tested in tests/cuda_probe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "planner/layers/context_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/share.hpp"
#include "planner/search/memory.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

constexpr double kBf16 = 2;
// Llama-3.1-405B: 128 query and 8 KV heads of 128.
constexpr double kQ = 128, kKv = 8, kDim = 128;

Case usp_case(std::vector<Segment> requests, const std::string& model = "llama-3.1-405b",
              const std::string& system = "h100-hgx") {
  Case c = decode_case(model, system, 0);
  c.precision = all_bf16();
  c.batch = prefill_batch(std::move(requests));
  return c;
}

// That leave rank `r` in one layer.
double bytes_sent(const Schedule& s, std::string_view name, int r) {
  double sum = 0;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].name == name) sum += message_bytes(s.op_of_class(i, s.class_of(r))).value;
  }
  return sum;
}

double pairs(const Schedule& s, int r) {
  double sum = 0;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].kind == OpKind::attend_prefill)
      sum += exponentials(s.op_of_class(i, s.class_of(r))).value;  // one per pair and query head [G3]
  }
  return sum;
}

// Section 3 of the paper: of P ranks with S tokens, groups of U and rings of R.
TEST(Usp, ARankSendsAndComputesWhatTheClosedFormsSay) {
  constexpr double kTokens = 64'000;
  const Case c = usp_case({{0, 64'000}});
  for (const int cp : {4, 8, 16}) {
    for (const int inner : {2, 4, 8}) {
      if (inner >= cp) continue;
      const int ring = cp / inner;
      const std::string text = "usp:cp=" + std::to_string(cp) + ",batch=1,ulysses=" + std::to_string(inner);
      SCOPED_TRACE(text);
      const Schedule s = lowered(c, text);
      const double own = kTokens / cp, others = static_cast<double>(inner - 1) / inner;
      for (int r = 0; r < cp; ++r) {
        EXPECT_DOUBLE_EQ(bytes_sent(s, "tokens to heads", r), others * own * (kQ + 2 * kKv) * kDim * kBf16);
        EXPECT_DOUBLE_EQ(bytes_sent(s, "heads to tokens", r), others * own * kQ * kDim * kBf16);
        EXPECT_DOUBLE_EQ(bytes_sent(s, "pass KV", r), 2 * (ring - 1) * own * kKv * kDim * kBf16);
        EXPECT_DOUBLE_EQ(pairs(s, r), kQ / inner * kTokens * (kTokens + 1) / (2 * ring));
      }
      EXPECT_EQ(ops_named(s, "attend").size(), static_cast<std::size_t>(ring));
      EXPECT_EQ(ops_named(s, "pass KV").size(), static_cast<std::size_t>(ring - 1));
    }
  }
}

// With U = P the exchange is that of Ulysses and nothing is passed on; with U = 1 it is the ring's alone.
TEST(Usp, ItsClosedFormsEndInUlyssesAndInTheRing) {
  const Case c = usp_case({{0, 64'000}});
  const double own = 64'000.0 / 8;
  EXPECT_DOUBLE_EQ(bytes_sent(lowered(c, "ulysses:cp=8,batch=1"), "tokens to heads", 0),
                   7.0 / 8 * own * (kQ + 2 * kKv) * kDim * kBf16);
  EXPECT_DOUBLE_EQ(bytes_sent(lowered(c, "ring_pass_kv:cp=8,batch=1"), "pass KV", 0),
                   2 * 7 * own * kKv * kDim * kBf16);
  EXPECT_EQ(refusal(c, "usp:cp=8,batch=1,ulysses=8"), "usp with ulysses=8 of 8 ranks is ulysses");
  EXPECT_THROW(parse_plan("usp:cp=8,batch=1,ulysses=1"), UserError);  // out of range
  EXPECT_EQ(refusal(c, "usp:cp=8,batch=1"), "usp with ulysses=1 is ring_pass_kv");
}

// Rank r * U + u of each TP rank: the group are neighbours, the ring goes from group to group.
TEST(Usp, GroupsAreNeighboursAndRingsGoFromGroupToGroup) {
  const Case c = usp_case({{0, 64'000}});
  for (const auto& [text, inner, ring, tpa] : {std::tuple{"usp:cp=8,batch=1,ulysses=2", 2, 4, 1},
                                               {"usp:cp=8,batch=1,ulysses=4", 4, 2, 1},
                                               {"usp:cp=4,tpa=4,tpf=4,batch=1,ulysses=2", 2, 2, 4}}) {
    SCOPED_TRACE(text);
    const Schedule s = lowered(c, text);
    for (const char* name : {"tokens to heads", "heads to tokens"})
      EXPECT_EQ(ops_named(s, name).at(0).group, (Group{inner, tpa}));
    for (const Op& op : ops_named(s, "pass KV")) EXPECT_EQ(op.group, (Group{ring, inner * tpa}));
  }
}

// Eight GPUs of a node share NVLink. A group of a node's ranks exchanges there whatever the number of nodes;
// the groups of Ulysses grow beyond it.
TEST(Usp, TheExchangeStaysInsideTheNode) {
  const Case c = usp_case({{0, 131'072}});
  CostModel cost(c.system);
  const auto rate = [&](const std::string& text) {
    const Op op = ops_named(lowered(c, text), "tokens to heads").at(0);
    return message_bytes(op).value / cost.time(op).value;
  };
  const double in_node = rate("ulysses:cp=8,batch=1");
  for (const int cp : {16, 32}) {
    const std::string ranks = ":cp=" + std::to_string(cp) + ",batch=1";
    EXPECT_GT(rate("usp" + ranks + ",ulysses=8"), 0.8 * in_node) << cp;
    EXPECT_LT(rate("ulysses" + ranks), 0.5 * in_node) << cp;
    EXPECT_LT(Evaluator(c).simulate(parse_plan("usp" + ranks + ",ulysses=8")),
              Evaluator(c).simulate(parse_plan("ulysses" + ranks)))
        << cp;
  }
  // The ring of strided ranks is between nodes: eight messages of a node share its links.
  const Op far = ops_named(lowered(c, "usp:cp=16,batch=1,ulysses=8"), "pass KV").at(0);
  Op near = far;
  near.group.stride = 1;
  EXPECT_GT(cost.time(far), 2 * cost.time(near));
}

// A + (R - 1) max(A, S) of the ring, of which nothing is in the exchanges: as ring_pass_kv's of R ranks.
TEST(Usp, ItsRingTakesTheTimeOfARingOfItsGroups) {
  for (const double bandwidth : {1e9, 50e9, 400e9}) {
    Case c = usp_case({{0, 64'000}});
    c.system.fabric.network.bandwidth = BytesPerSecond(bandwidth);
    c.system.calibration = {};
    c.system.device.sms = 0;
    cut_layers(c, 1, 1);
    CostModel cost(c.system);
    PassScratch scratch(cost);
    Schedule s = lowered(c, "usp:cp=16,batch=1,ulysses=8");
    const auto seconds = [&](const char* name) { return cost.time(ops_named(s, name).at(0)).value; };
    const auto attention = [&](std::size_t j) { return cost.time(ops_named(s, "attend").at(j)).value; };
    double wanted = std::max(attention(0), seconds("pass KV")) + attention(1) + seconds("merge");
    for (const char* name : {"tokens to heads", "heads to tokens"}) wanted += seconds(name);
    wanted += 2 * seconds("end of iteration");
    const double whole = simulate_pass(s, cost, scratch).latency.value;
    double rest = 0;
    bool inside = false;
    for (const Op& op : s.ops) {
      const std::string_view name = op.name;
      inside = inside || name == "tokens to heads";
      if (!inside) rest += cost.time(op).value;
      if (name == "heads to tokens") inside = false;
    }
    EXPECT_NEAR((wanted + rest) / whole, 1, 1e-12) << bandwidth;
  }
}

TEST(Usp, EveryDivisorThatTheHeadsAllowIsEnumerated) {
  const auto plans = [](const Case& c, int gpus) {
    std::vector<Plan> all;
    strategy("usp").enumerate(c, gpus, {}, all);
    std::map<std::pair<int, int>, std::vector<int>> by_ranks;  // (cp, tpa) of one stage -> ulysses
    for (const Plan& p : all) {
      if (p.pp == 1 && p.ep == 1) by_ranks[{p.cp, p.tpa}].push_back(p.options.all()[0].value);
    }
    return by_ranks;
  };
  using Found = std::map<std::pair<int, int>, std::vector<int>>;
  // Eight KV heads; under MLA 128 heads of keys and values.
  EXPECT_EQ(plans(usp_case({{0, 64'000}}), 16),
            (Found{{{16, 1}, {2, 4, 8}}, {{8, 2}, {2, 4}}, {{4, 4}, {2}}}));
  EXPECT_EQ(plans(usp_case({{0, 64'000}}), 12), (Found{{{12, 1}, {2, 4}}, {{6, 2}, {2}}}));
  EXPECT_EQ(plans(usp_case({{0, 64'000}}, "deepseek-r1"), 64).at({64, 1}),
            (std::vector<int>{2, 4, 8, 16, 32}));
  EXPECT_EQ(plans(usp_case({{0, 64'000}}, "falcon-7b"), 8), Found{});  // 71 heads, one KV head
}

TEST(Usp, RefusalsSayWhy) {
  const Case c = usp_case({{0, 64'000}});
  EXPECT_EQ(refusal(c, "usp:cp=8,batch=1,ulysses=3"), "usp needs ulysses to divide cp: 3 and 8");
  EXPECT_EQ(refusal(c, "usp:cp=6,batch=1,ulysses=3"), "usp needs ulysses*tpa to divide the query heads");
  EXPECT_EQ(refusal(c, "usp:cp=32,batch=1,ulysses=16"),
            "usp needs ulysses*tpa to divide the KV heads, of which it makes no copies");
  EXPECT_EQ(refusal(c, "usp:cp=4,tpa=8,tpf=8,batch=1,ulysses=2"),
            "usp needs ulysses*tpa to divide the KV heads, of which it makes no copies");
  EXPECT_EQ(refusal(c, "ulysses:cp=8,batch=1,ulysses=2"), "ulysses is for usp, not ulysses");
  EXPECT_EQ(refusal(usp_case({{0, 64'000}}, "deepseek-r1"), "usp:cp=32,batch=1,ulysses=16"), "");
}

TEST(Usp, ARankHoldsItsHeadsOfItsGroupsTokens) {
  const Case c = usp_case({{0, 64'000}});
  const Plan p = parse_plan("usp:cp=8,batch=1,ulysses=4");
  // As many bytes as any eighth of the cache.
  EXPECT_EQ(memory_use(c, p).kv, memory_use(c, parse_plan("ring_pass_kv:cp=8,batch=1")).kv);
  const double own = 64'000.0 / 8, exchanged = (2 * kQ + 2 * kKv) * kDim * kBf16;
  EXPECT_DOUBLE_EQ(buffer_bytes(c, p).value,
                   own * (2 * exchanged + 2 * 2 * kKv * kDim * kBf16 + kQ * (kDim * kBf16 + 4)));
  // All heads share MLA's latents: a group's four ranks hold the same ones.
  const Case mla = usp_case({{0, 64'000}}, "deepseek-r1");
  EXPECT_DOUBLE_EQ(memory_use(mla, p).kv / memory_use(mla, parse_plan("ring_pass_kv:cp=8,batch=1")).kv, 4);
}

// DeepSeek-R1: 128 heads with keys of 192 and values of 128, each expanded once, by who projects the token.
TEST(Usp, UnderMlaExpandedHeadsTravel) {
  const Case c = usp_case({{0, 64'000}}, "deepseek-r1");
  const Schedule s = lowered(c, "usp:cp=8,batch=1,ulysses=4");
  const double own = 64'000.0 / 8;
  EXPECT_DOUBLE_EQ(bytes_sent(s, "tokens to heads", 3), 3.0 / 4 * own * 128 * (192 + 192 + 128) * kBf16);
  EXPECT_DOUBLE_EQ(bytes_sent(s, "pass KV", 3), own * 128 * (192 + 128) * kBf16);
  EXPECT_DOUBLE_EQ(bytes_sent(s, "heads to tokens", 3), 3.0 / 4 * own * 128 * 128 * kBf16);
  double expanded = 0;
  for (const Op& op : ops_named(s, "kv up")) expanded += flops(op).value;
  EXPECT_DOUBLE_EQ(expanded, 2 * own * 512 * 128 * (128 + 128));
  for (const Op& op : ops_named(s, "attend")) {
    EXPECT_EQ(shape<AttendPrefillShape>(op).family, AttentionFamily::mla);
    EXPECT_EQ(shape<AttendPrefillShape>(op).q_heads, 32);
  }
}

}  // namespace
}  // namespace shardline
