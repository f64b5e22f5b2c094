// APB, StarAttention and sparse prefill: work as their papers count it, what is left out, and what is
// refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/layers/host_blocks.hpp"
#include "planner/search/evaluate.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

constexpr long long kN = 131'072;

Case document(long long tokens, const std::string& model = "llama-3.1-8b") {
  Case c = decode_case(model, "a100-sxm", 0);
  c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};
  c.batch = prefill_batch({{0, tokens}});
  return c;
}

// Of all ranks and layers, without head, retaining heads and choices, which the papers do not count.
double layer_flops(const Schedule& s) {
  double sum = 0;
  const std::vector<double> runs = executions(s);
  for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
    for (OpIndex i = s.blocks[b].first; i < s.blocks[b].last; ++i) {
      const std::string name = s.ops[i].name;
      if (name == "lm head" || name.starts_with("retaining")) continue;
      for (int r = 0; r < s.ranks_per_stage; ++r)
        sum += flops(s.op_of_class(i, s.class_of(r))).value * runs[b];
    }
  }
  return sum;
}

double pairs_of(const Op& op) { return static_cast<double>(shape<AttendPrefillShape>(op).pairs); }
double pairs_of(const Schedule& s) {
  double sum = 0;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].kind != OpKind::attend_prefill) continue;
    for (int r = 0; r < s.ranks_per_stage; ++r) sum += pairs_of(s.op_of_class(i, s.class_of(r)));
  }
  return sum;
}

double triangle(double n) { return n * (n + 1) / 2; }

// arXiv 2502.12085, Table 9, in its letters. It takes a causal triangle for half of a square; we count its
// diagonal, 2 d operations more per token and layer that begins with a mask.
struct Table9 {
  double n, d = 4096, g = 4, i = 14336, layers = 32, hosts = 8, anchor = 4096, passing = 2048;
  double full() const { return layers * (4 * n * d * d + 4 / g * n * d * d + 2 * n * n * d + 6 * n * d * i); }
  double star() const {
    const double h = hosts;
    return layers / h *
           ((8 * h - 4) * n * d * d + (8 * h - 4) / g * n * d * d + (8 * h - 6) / h * n * n * d +
            (12 * h - 6) * n * d * i);
  }
  double apb_without_passing() const {
    const double b = n / hosts, w = b + anchor;
    return layers * (4 * (1 + 1 / g + 0.5 * b / d + 1.5 * i / d) * b * d * d +
                     4 * (hosts - 1) * (1 + 1 / g + 0.5 * w / d + 1.5 * i / d) * w * d * d);
  }
  double apb_passing() const { return layers * passing * hosts * (hosts - 1) * (n / hosts + anchor) * d; }
  double diagonal(double tokens) const { return layers * 2 * d * tokens; }
};

TEST(Approximate, Table9OperationsOfFullAttentionAndStar) {
  for (const long long n : {32'768LL, kN, 524'288LL}) {
    const Table9 t{static_cast<double>(n)};
    const Case c = document(n);
    EXPECT_DOUBLE_EQ(layer_flops(lowered(c, "tensor:batch=1")) - t.diagonal(t.n), t.full());
    // Star's hosts begin the mask anew on 2b tokens, the first on b.
    EXPECT_DOUBLE_EQ(layer_flops(lowered(c, "star:cp=8,batch=1")) - t.diagonal(t.n / 8 * 15), t.star());
  }
}

// The paper charges l_p H (H-1) (b + l_a) d for attention to passed tokens. Its kernel computes
// b l_p H (H-1) / 2 pairs of 4 d operations: the anchor's queries do not see them, so 2 b in place of b +
// l_a.
TEST(Approximate, Table9CountsFiveEighthsOfApbsPassing) {
  const Table9 t{static_cast<double>(kN)};
  const double all =
      layer_flops(lowered(document(kN), "apb:cp=8,batch=1,anchor=4096,passing=2048,retaining=1024"));
  const double passing = all - t.diagonal(t.n + 7 * t.anchor) - t.apb_without_passing();
  EXPECT_NEAR(t.apb_passing() / passing, 0.625, 1e-9);
  EXPECT_NEAR(passing / (t.layers * 4 * t.d * t.n / 8 * t.passing * 28), 1, 1e-9);
}

TEST(Approximate, RetainingHeadsScoreTheLocalTokensOnly) {
  const Schedule s =
      lowered(document(kN), "apb:cp=8,batch=1,anchor=4096,passing=2048,query=64,retaining=1024");
  for (const Op& op : s.ops) {
    const std::string name = op.name;
    if (name == "retaining up") {
      EXPECT_EQ(op.variants, kAlike);
      EXPECT_EQ(shape<GemmShape>(op).rows, 16'384);
      EXPECT_EQ(shape<GemmShape>(op).k, 4096 + 2048);
      EXPECT_EQ(shape<GemmShape>(op).n, 1024);
    }
    if (name == "gather passed KV") {
      EXPECT_EQ(message_bytes(op), Bytes(2048 * 2048 * 2));
    }
  }
  const auto op =
      std::find_if(s.ops.begin(), s.ops.end(), [](const Op& o) { return std::string(o.name) == "ffn up"; });
  ASSERT_NE(op, s.ops.end());
  const auto index = static_cast<OpIndex>(op - s.ops.begin());
  EXPECT_EQ(shape<GemmShape>(s.op_of_class(index, 0)).rows, 16'384);
  EXPECT_EQ(shape<GemmShape>(s.op_of_class(index, 7)).rows, 16'384 + 4096 + 64);
}

// What is computed of the exact mask: all pairs of the schedule but those of the anchors' own queries.
TEST(Approximate, AttentionComputedIsThatOfTheSchedule) {
  for (const long long n : {kN, 100'003LL}) {
    const Case c = document(n);
    for (const char* text : {"star:cp=8,batch=1", "star:cp=3,tpa=2,tpf=2,batch=2",
                             "apb:cp=8,batch=1,anchor=4096,passing=2048,retaining=1024",
                             "apb:cp=5,tpa=4,tpf=4,batch=3,anchor=100,passing=7,retaining=64"}) {
      SCOPED_TRACE(text);
      const Plan p = parse_plan(text);
      const double anchor = p[kAnchor] > 0 ? p[kAnchor] : static_cast<double>((n + p.cp - 1) / p.cp);
      const double pairs = pairs_of(lowered(c, text)) / p.tpa - p.batch * (p.cp - 1) * triangle(anchor);
      EXPECT_DOUBLE_EQ(attention_computed(c, p), pairs / (p.batch * triangle(static_cast<double>(n))));
      EXPECT_LT(attention_computed(c, p), 1);
    }
  }
  EXPECT_NEAR(
      attention_computed(document(kN), parse_plan("apb:cp=8,batch=1,anchor=4096,passing=2048,retaining=1")),
      0.2891, 1e-4);
  EXPECT_EQ(attention_computed(document(kN), parse_plan("tensor:batch=1")), 1);
}

TEST(Approximate, ExactnessIsWhatTheTableSays) {
  for (const Strategy* s : strategies()) EXPECT_EQ(s->exact, s->computed == nullptr) << s->name;
  for (const char* name : {"apb", "star", "sparse"}) EXPECT_FALSE(strategy(std::string(name)).exact);
}

// The sizes of the paper's Table 8, for eight hosts.
TEST(Approximate, DefaultSizesAreThoseOfThePapersTable8) {
  const struct {
    long long n;
    int anchor, passing;
  } kRows[] = {{32'768, 1024, 512},
               {65'536, 2048, 1024},
               {kN, 4096, 2048},
               {262'144, 8192, 4096},
               {524'288, 8192, 8192}};
  for (const auto& row : kRows) {
    const Case c = document(row.n);
    std::vector<Plan> plans;
    strategy(std::string("apb")).enumerate(c, 8, {}, plans);
    const auto p = std::find_if(plans.begin(), plans.end(), [](const Plan& plan) { return plan.cp == 8; });
    ASSERT_NE(p, plans.end()) << row.n;
    EXPECT_EQ((*p)[kAnchor], row.anchor);
    EXPECT_EQ((*p)[kPassing], row.passing);
    EXPECT_EQ(value_of(*p, "retaining"), 1024);
    EXPECT_EQ(parse_plan(to_string(*p)), *p);
  }
  SearchSpace space;
  space.options = {{&kAnchor, {100}}, {&kPassing, {50}}};
  std::vector<Plan> plans;
  strategy(std::string("apb")).enumerate(document(kN), 8, space, plans);
  ASSERT_FALSE(plans.empty());
  for (const Plan& p : plans) EXPECT_EQ(p[kAnchor] * 1000 + p[kPassing], 100'050);
}

TEST(Approximate, PlansThatMeanNothingAreRefused) {
  const Case c = document(1000);
  Case cached = c;
  cached.batch = prefill_batch({{10, 1000}});
  EXPECT_EQ(refusal(c, "apb:cp=8,batch=1"),
            "apb needs anchor, passing and retaining, for instance anchor=4096,passing=2048,retaining=1024");
  EXPECT_EQ(refusal(c, "apb:cp=8,batch=1,anchor=126,passing=5,retaining=8"),
            "anchor 126 exceeds the 125 tokens of the first block");
  EXPECT_EQ(refusal(c, "apb:cp=8,batch=1,anchor=125,passing=126,retaining=8"),
            "passing 126 exceeds the 125 tokens of a block");
  EXPECT_EQ(refusal(cached, "star:cp=8,batch=1"),
            "star cuts whole documents into blocks: there must be no cached tokens");
  EXPECT_EQ(refusal(document(7), "star:cp=7,batch=1"), "");
  EXPECT_EQ(refusal(c, "star:cp=8,batch=1,anchor=5"), "anchor is for apb, not star");
  EXPECT_EQ(refusal(c, "ulysses:cp=8,batch=1,passing=5"), "passing is for apb, not ulysses");
  EXPECT_EQ(refusal(c, "sparse:batch=1"),
            "sparse needs vertical, slash and estimate, for instance vertical=1000,slash=6096,estimate=64");
  EXPECT_EQ(refusal(c, "ulysses:cp=8,batch=1,layout=contiguous"), "layout is for ring_pass_kv, not ulysses");
  EXPECT_EQ(refusal(c, "ring_pass_kv:cp=8,batch=1,layout=contiguous"), "");
  EXPECT_EQ(refusal(document(1000, "deepseek-r1"), "apb:cp=8,batch=1,anchor=5,passing=5,retaining=8"),
            "apb scores keys and values by KV head, which MLA does not have");
  EXPECT_EQ(refusal(c, "apb:cp=2,tpa=16,tpf=16,batch=1,anchor=5,passing=5,retaining=8"),
            "apb needs tpa not above the KV heads: retaining heads would count the shared ones twice");
}

TEST(Approximate, SparsePairsAreThoseOfTheirMask) {
  for (const auto& [cached, fresh] : {std::pair{0, 50}, {0, 300}, {40, 30}, {90, 100}}) {
    Case c = document(0);
    c.batch = prefill_batch({{cached, fresh}});
    double seen = 0, estimate = 0, exact = 0;
    for (int q = cached; q < cached + fresh; ++q) {
      seen += std::min(q + 1, 20 + 60);
      exact += q + 1;
      if (q >= cached + fresh - 16) estimate += q + 1;
    }
    const Plan p = parse_plan("sparse:batch=1,vertical=20,slash=60,estimate=16");
    EXPECT_EQ(pairs_of(lowered(c, to_string(p))), seen + estimate);
    EXPECT_DOUBLE_EQ(attention_computed(c, p), seen / exact);
  }
}

// Without the balance of two chunks the last rank has a triangle and N - 1 whole squares.
TEST(Approximate, AContiguousRingLeavesTheLastRankMost) {
  const Case c = document(8 * 1000);
  const Schedule s = lowered(c, "ring_pass_kv:cp=8,batch=1,layout=contiguous");
  EXPECT_EQ(pairs_of(s), triangle(8000));
  double last = 0, first = 0;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].kind != OpKind::attend_prefill) continue;
    first += pairs_of(s.op_of_class(i, 0));
    last += pairs_of(s.op_of_class(i, 7));
  }
  EXPECT_EQ(first, triangle(1000));
  EXPECT_EQ(last, triangle(1000) + 7 * 1e6);
  EXPECT_GT(Evaluator(c).simulate(parse_plan("ring_pass_kv:cp=8,batch=1,layout=contiguous")),
            Evaluator(c).simulate(parse_plan("ring_pass_kv:cp=8,batch=1")));
}

TEST(Approximate, MoreAnchorAndPassingNeverTakeLess) {
  const Case c = document(kN);
  Evaluator e(c);
  Seconds last;
  for (const int anchor : {256, 1024, 4096, 16'384}) {
    for (const int passing : {256, 2048}) {
      Plan p = parse_plan("apb:cp=8,batch=1,retaining=1024");
      p.set(kAnchor, anchor);
      p.set(kPassing, passing);
      const Seconds t = e.simulate(p);
      EXPECT_GT(t, passing == 256 ? Seconds(0) : last);
      last = t;
    }
  }
  EXPECT_LT(e.simulate(parse_plan("apb:cp=8,batch=1,anchor=4096,passing=2048,retaining=1024")),
            e.simulate(parse_plan("star:cp=8,batch=1")));
}

}  // namespace
}  // namespace shardline
