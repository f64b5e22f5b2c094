// [C18] MLA under context parallelism: what travels is the cache's latent rows, and who receives them expands
// them. Bytes and operations are worked out here from DeepSeek-R1's widths. That the data flow is exact is
// tested in tests/cuda_probe.
#include <gtest/gtest.h>

#include <cmath>

#include "planner/layers/context_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/share.hpp"
#include "planner/search/memory.hpp"
#include "planner/studies/chain_cost.hpp"
#include "planner/studies/partition.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

// DeepSeek-R1: 128 heads, keys of 128 + 64 (rotary), values of 128, latents of 512.
constexpr double kLatent = 512 + 64, kBf16 = 2;
constexpr double kUp = 128 * (128 + 128);             // columns of the up-projection of all heads
constexpr double kExpanded = 128 * (128 + 64 + 128);  // numbers of one token's keys and values
constexpr double kAbsorbed = 128 * (512 + 64);        // a token's absorbed queries

Case r1(std::vector<Segment> requests) {
  Case c = decode_case("deepseek-r1", "gb200-nvl72", 0);
  c.precision = all_bf16();
  c.batch = prefill_batch(std::move(requests));
  return c;
}

// Of all ranks.
double bytes_sent(const Schedule& s, std::string_view name) {
  double sum = 0;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    for (int r = 0; r < s.ranks_per_stage && s.ops[i].name == name; ++r)
      sum += message_bytes(s.op_of_class(i, s.class_of(r))).value;
  }
  return sum;
}

double expansions(const Schedule& s) {
  double sum = 0;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    for (int r = 0; r < s.ranks_per_stage && s.ops[i].name == std::string_view("kv up"); ++r)
      sum += flops(s.op_of_class(i, s.class_of(r))).value;
  }
  return sum;
}

TEST(Latents, RingsAndGathersSendLatentsWhateverTheTpDegree) {
  const Case c = r1({{0, 64'000}});
  for (const int tpa : {1, 4}) {
    const std::string of = ":cp=4,tpa=" + std::to_string(tpa) + ",tpf=" + std::to_string(tpa) + ",batch=1";
    SCOPED_TRACE(of);
    // Three messages of each rank's 16,000 tokens; a gather's charge is a rank's own part.
    for (const char* name : {"ring_pass_kv", "striped"})
      EXPECT_DOUBLE_EQ(bytes_sent(lowered(c, name + of), "pass KV"), 3 * tpa * 64'000 * kLatent * kBf16);
    for (const char* name : {"allgather_kv", "tsp"})
      EXPECT_DOUBLE_EQ(bytes_sent(lowered(c, name + of), "gather KV"), tpa * 64'000 * kLatent * kBf16);
    // Prefixes of one, two and three quarters.
    EXPECT_DOUBLE_EQ(bytes_sent(lowered(c, "kv_runahead" + of), "send prefix"),
                     tpa * (16'000 + 32'000 + 48'000) * kLatent * kBf16);
  }
}

// 2 x tokens x 512 x columns, for every rank that attends to the token.
TEST(Latents, WhoeverAttendsToATokenExpandsIt) {
  const double once = 2 * 64'000.0 * 512 * kUp;
  for (const auto& requests : {std::vector<Segment>{{0, 64'000}}, {{40'000, 24'000}}}) {
    const Case c = r1(requests);
    for (const int tpa : {1, 4}) {
      const std::string of = ":cp=4,tpa=" + std::to_string(tpa) + ",tpf=" + std::to_string(tpa) + ",batch=1";
      SCOPED_TRACE(of);
      for (const char* name : {"ring_pass_kv", "striped", "allgather_kv", "tsp"})
        EXPECT_DOUBLE_EQ(expansions(lowered(c, name + of)), 4 * once) << name;
      EXPECT_DOUBLE_EQ(expansions(lowered(c, "ring_pass_q" + of)), once);
      EXPECT_DOUBLE_EQ(expansions(lowered(c, "ulysses" + of)), once);
    }
    EXPECT_DOUBLE_EQ(expansions(lowered(c, "tensor:tpa=4,tpf=4,batch=1")), once);
  }
  // Prefixes of a chain: 1 + 2 + 3 + 4 quarters.
  EXPECT_DOUBLE_EQ(expansions(lowered(r1({{0, 64'000}}), "kv_runahead:cp=4,batch=1")), once * 2.5);
}

// Kernels have prices of their own for keys that are wider than values.
TEST(Latents, EveryPrefillAttendsToExpandedHeads) {
  const Case c = r1({{0, 64'000}});
  for (const Strategy* strategy : strategies()) {
    std::vector<Plan> plans;
    strategy->enumerate(c, 4, {}, plans);
    std::size_t seen = 0;
    for (const Plan& p : plans) {
      SCOPED_TRACE(to_string(p));
      Schedule s;
      lower(s, c, p);
      for (const Op& op : s.ops) {
        if (op.kind != OpKind::attend_prefill) continue;
        ++seen;
        EXPECT_EQ(shape<AttendPrefillShape>(op).family, AttentionFamily::mla);
      }
    }
    if (strategy->prefills && strategy->exact) {
      EXPECT_GT(seen, 0u) << strategy->name;
    }
  }
}

TEST(Latents, AMessageDoesNotWaitForTheExpansionOfWhatItSends) {
  const Schedule s = lowered(r1({{0, 64'000}}), "ring_pass_kv:cp=4,batch=1");
  std::vector<OpIndex> sends, expands;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].name == std::string_view("pass KV")) sends.push_back(i);
    if (s.ops[i].name == std::string_view("kv up")) expands.push_back(i);
  }
  ASSERT_EQ(sends.size(), 3u);
  ASSERT_EQ(expands.size(), 4u);
  for (std::size_t j = 0; j < sends.size(); ++j) {
    for (const OpIndex before : s.dependencies_of(s.ops[sends[j]])) EXPECT_NE(before, expands[j]);
  }
}

TEST(Latents, BuffersHoldLatentsAndOneExpansion) {
  const Case c = r1({{0, 64'000}});
  const double latents = 16'000 * kLatent * kBf16, expanded = 16'000 * kExpanded * kBf16;
  const auto buffers = [&](const char* plan) { return buffer_bytes(c, parse_plan(plan)).value; };
  const double partial = 16'000.0 * 128 * (128 * kBf16 + 4);
  EXPECT_DOUBLE_EQ(buffers("ring_pass_kv:cp=4,batch=1"), 2 * latents + expanded + partial);
  EXPECT_DOUBLE_EQ(buffers("allgather_kv:cp=4,batch=1"), 4 * (latents + expanded));
  EXPECT_DOUBLE_EQ(buffers("kv_runahead:cp=4,batch=1"), 2 * 16'000 * 7168 * kBf16 + 4 * expanded);
}

// Absorbed: queries of 128 x 576 go round, partial outputs of 128 x 512 and a log-sum-exp come home.
TEST(Latents, RingDecodeAttendsToLatents) {
  Case c = decode_case("deepseek-r1", "gb200-nvl72", 100'000);
  c.precision = all_bf16();
  const Schedule s = lowered(c, "ring_decode:cp=4,tpa=2,tpf=2,batch=6");
  const double heads = 64, rows = 2;  // of a TP rank; six requests on four ranks
  EXPECT_DOUBLE_EQ(bytes_sent(s, "pass Q"), 8 * 3 * rows * kAbsorbed / 2 * kBf16);
  EXPECT_DOUBLE_EQ(bytes_sent(s, "send partial outputs home"), 8 * 3 * rows * heads * (512 * kBf16 + 4));
  double pairs = 0, values = 0;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    for (int r = 0; r < 8; ++r) {
      const Op op = s.op_of_class(i, s.class_of(r));
      if (op.kind == OpKind::attend_decode) {
        const auto& a = shape<AttendDecodeShape>(op);
        EXPECT_EQ(a.cache, CacheRows::latent);
        EXPECT_EQ(a.qk_dim, 576);
        EXPECT_EQ(a.v_dim, 512);
        EXPECT_EQ(kv_elements(a), 576);
        pairs += exponentials(op).value;  // one per pair and query head [G3]
      }
      if (op.name == std::string_view("value up")) values += flops(op).value;
    }
  }
  EXPECT_DOUBLE_EQ(pairs, 8.0 * 100'000 * 128);  // padding is attended to
  EXPECT_DOUBLE_EQ(values, 8 * 2 * rows * heads * 512 * 128);
}

TEST(Latents, AChainsClosedFormIsItsSimulation) {
  for (const int tpa : {1, 2}) {
    Case c = r1({{0, 10'000}});
    c.system.runtime.ring_step = Seconds(500e-6);
    cut_layers(c, 6, 6);  // of one kind: a mixed model's are their mean
    Plan p = parse_plan("kv_runahead:cp=3,batch=1");
    list_parts(p, {3500, 3300, 3200});
    p.tpa = p.tpf = tpa;
    SCOPED_TRACE(to_string(p));
    EXPECT_NEAR(chain_time(chain_cost(c, 3, tpa), listed_parts(p)) / Evaluator(c).simulate(p), 1, 1e-12);
  }
}

}  // namespace
}  // namespace shardline
