// [C20] Striped attention (arXiv 2311.09431): the work of every rank and iteration in closed form, messages
// of a ring, and how it stands to the other layouts of the same ring.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "planner/search/memory.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

ContextLayout striped_layout(const std::vector<Segment>& requests, int ranks, const Placement* before) {
  return dealt_layout(requests, ranks, before,
                      [](Placement& p, int request, long long fresh) { p.stripe(request, fresh); });
}

Case prefill_case(std::vector<Segment> requests, const std::string& model = "llama-3.1-405b") {
  Case c = decode_case(model, "h100-gtt", 0);
  c.precision = all_bf16();
  c.batch = prefill_batch(std::move(requests));
  cut_layers(c, 4, has_dense(c.model) ? 1 : 0);
  return c;
}

// Shapes of every iteration's attention, by rank of a ring without TP.
std::vector<std::vector<AttendPrefillShape>> iterations(const Schedule& s) {
  std::vector<std::vector<AttendPrefillShape>> out;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].kind != OpKind::attend_prefill) continue;
    auto& ranks = out.emplace_back();
    for (int r = 0; r < s.ranks_per_stage; ++r)
      ranks.push_back(shape<AttendPrefillShape>(s.op_of_class(i, s.class_of(r))));
  }
  return out;
}

std::vector<Count> pairs_of_ranks(const Schedule& s) {
  std::vector<Count> sum(static_cast<std::size_t>(s.ranks_per_stage), 0);
  for (const auto& ranks : iterations(s)) {
    for (std::size_t r = 0; r < ranks.size(); ++r) sum[r] += ranks[r].pairs;
  }
  return sum;
}

// All ranks wait for the busiest of an iteration.
Count critical_pairs(const Schedule& s) {
  Count sum = 0;
  for (const auto& ranks : iterations(s)) {
    Count most = 0;
    for (const AttendPrefillShape& a : ranks) most = std::max(most, a.pairs);
    sum += most;
  }
  return sum;
}

TEST(Striped, FortyEightTokensOnFourRanks) {
  const Case c = prefill_case({{0, 48}});
  const Schedule contiguous = lowered(c, "ring_pass_kv:cp=4,batch=1,layout=contiguous");
  const Schedule zigzag = lowered(c, "ring_pass_kv:cp=4,batch=1"),
                 striped = lowered(c, "striped:cp=4,batch=1");
  EXPECT_EQ(pairs_of_ranks(contiguous), (std::vector<Count>{78, 222, 366, 510}));
  EXPECT_EQ(pairs_of_ranks(zigzag), (std::vector<Count>{294, 294, 294, 294}));
  EXPECT_EQ(pairs_of_ranks(striped), (std::vector<Count>{276, 288, 300, 312}));
  EXPECT_EQ(critical_pairs(contiguous), 510);
  EXPECT_EQ(critical_pairs(zigzag), 294);
  EXPECT_EQ(critical_pairs(striped), 312);
}

// n tokens a rank: n (n + 1) / 2 of those not ahead of it, n (n - 1) / 2 of those ahead, in whole flash tiles
// of one causal block; the busiest rank has P (n + 1) / (P n + 1) of what a zigzag gives everyone.
TEST(Striped, EveryIterationIsACausalBlockWithOrWithoutItsDiagonal) {
  for (const long long ranks : {2, 3, 8}) {
    for (const long long n : {1LL, 7LL, 128LL, 16'000LL}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks of " << n);
      const Case c = prefill_case({{0, ranks * n}});
      const Schedule s = lowered(c, "striped:cp=" + std::to_string(ranks) + ",batch=1");
      const auto all = iterations(s);
      ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks));
      for (long long j = 0; j < ranks; ++j) {
        for (long long r = 0; r < ranks; ++r) {
          const AttendPrefillShape& a = all[static_cast<std::size_t>(j)][static_cast<std::size_t>(r)];
          const bool ahead = j > r;  // the keys are those of rank r - j
          EXPECT_EQ(a.pairs, ahead ? n * (n - 1) / 2 : n * (n + 1) / 2);
          EXPECT_EQ(a.q_rows, n);
          EXPECT_EQ(a.kv_rows, n);
          EXPECT_EQ(a.tiles, (n + 127) / 128);
          EXPECT_EQ(a.whole, j == 0);  // other ranks' stripes were not measured, whatever their pairs
        }
      }
      const std::vector<Count> sum = pairs_of_ranks(s);
      for (long long r = 0; r < ranks; ++r)
        EXPECT_EQ(sum[static_cast<std::size_t>(r)], ranks * n * (n - 1) / 2 + (r + 1) * n);
      EXPECT_EQ(std::accumulate(sum.begin(), sum.end(), Count{0}), ranks * n * (ranks * n + 1) / 2);
      EXPECT_EQ(critical_pairs(s), ranks * n * (n + 1) / 2);
    }
  }
}

// Bytes of the messages of one layer that all ranks of one TP rank send together.
double bytes_sent(const Schedule& s) {
  double sum = 0;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    for (int r = 0; r < s.ranks_per_stage && s.ops[i].name == std::string_view("pass KV"); ++r) {
      EXPECT_EQ(s.ops[i].kind, OpKind::send_recv);
      sum += message_bytes(s.op_of_class(i, s.class_of(r))).value;
    }
  }
  return sum;
}

// 2 (P - 1) n K d elements a rank, or (P - 1) n latent rows; both as a ring of chunks sends.
TEST(Striped, MessagesAndMemoryAreThoseOfARing) {
  const auto both = [](const Case& c, const std::string& of, double wanted) {
    EXPECT_DOUBLE_EQ(bytes_sent(lowered(c, "striped:" + of)), wanted) << of;
    EXPECT_DOUBLE_EQ(bytes_sent(lowered(c, "ring_pass_kv:" + of)), wanted) << of;
    const MemoryUse a = memory_use(c, parse_plan("striped:" + of)),
                    b = memory_use(c, parse_plan("ring_pass_kv:" + of));
    EXPECT_EQ(a.total().value, b.total().value) << of;
    EXPECT_EQ(a.kv.value, b.kv.value) << of;
  };
  const Case llama = prefill_case({{0, 64'000}}), r1 = prefill_case({{0, 64'000}}, "deepseek-r1");
  both(llama, "cp=4,batch=1", 4 * 2 * 3 * 16'000.0 * 8 * 128 * 2);
  both(llama, "cp=4,tpa=8,tpf=8,batch=1", 4 * 2 * 3 * 16'000.0 * 8 * 128 * 2);
  both(r1, "cp=4,batch=1", 4 * 3 * 16'000.0 * 576 * 2);
  both(r1, "cp=4,tpa=2,tpf=2,batch=1", 2 * 4 * 3 * 16'000.0 * 576 * 2);
  // 16,001 new tokens on the ranks that hold 1,250 cached ones, 16,000 on one that holds a token more.
  both(prefill_case({{5'001, 64'003}}), "cp=4,batch=1", 4 * 2 * 3 * (16'001.0 + 1'251) * 8 * 128 * 2);
}

// One token a rank: nothing tells a stripe from a block.
TEST(Striped, OfATokenPerRankItIsTheContiguousRing) {
  for (const long long cached : {0, 1'000}) {
    const Case c = prefill_case({{cached, 8}});
    const auto stripes = iterations(lowered(c, "striped:cp=8,batch=1"));
    const auto blocks = iterations(lowered(c, "ring_pass_kv:cp=8,batch=1,layout=contiguous"));
    ASSERT_EQ(stripes.size(), blocks.size());
    for (std::size_t j = 0; j < stripes.size(); ++j) {
      for (std::size_t r = 0; r < stripes[j].size(); ++r)
        EXPECT_TRUE(equal(Shape(stripes[j][r]), Shape(blocks[j][r]))) << "iteration " << j << ", rank " << r;
    }
    Evaluator e(c);
    EXPECT_EQ(e.simulate(parse_plan("striped:cp=8,batch=1")),
              e.simulate(parse_plan("ring_pass_kv:cp=8,batch=1,layout=contiguous")));
  }
}

// Long sequences on a ring whose attention hides its messages: the contiguous ring takes up to 2 - 1/P times
// as long in attention, and the diagonals of a stripe are all that a zigzag has less of.
TEST(Striped, TimeIsCloseToAZigzagAndFarFromBlocks) {
  Case c = prefill_case({{0, 256 * 1024}});
  c.system.calibration = {};
  Evaluator e(c);
  const double striped = e.simulate(parse_plan("striped:cp=8,tpa=8,tpf=8,batch=1")).value;
  const double zigzag = e.simulate(parse_plan("ring_pass_kv:cp=8,tpa=8,tpf=8,batch=1")).value;
  const double contiguous =
      e.simulate(parse_plan("ring_pass_kv:cp=8,tpa=8,tpf=8,batch=1,layout=contiguous")).value;
  EXPECT_NEAR(striped / zigzag, 1, 1e-3);
  EXPECT_NE(striped, zigzag);
  EXPECT_GT(contiguous / striped, 1.3);
}

// What the prefill leaves behind is where a decode over as many shards looks for it: token t on rank t mod N.
TEST(Striped, LeavesTheCacheOfADecodeOverTheSameRanks) {
  for (const long long tokens : {1LL, 17LL, 4'099LL}) {
    for (const int ranks : {2, 3, 8}) {
      const ContextLayout l = striped_layout({{0, tokens}}, ranks, nullptr);
      for (int r = 0; r < ranks; ++r) {
        const Tokens& fresh = l.fresh[static_cast<std::size_t>(r)];
        EXPECT_EQ(rows(fresh), kv_tokens_on_shard(tokens, ranks, 1, r));
        for (const Interval& i : fresh) {
          EXPECT_EQ(i.begin, r);
          EXPECT_EQ(i.stride, ranks);
        }
      }
    }
  }
}

TEST(Striped, RefusesWhatIsNotItsOwn) {
  const Case c = prefill_case({{0, 40}});
  EXPECT_EQ(refusal(c, "striped:cp=8,batch=1"), "");
  EXPECT_EQ(refusal(c, "striped:cp=8,batch=1,layout=zigzag"), "layout is for ring_pass_kv, not striped");
  EXPECT_EQ(
      refusal(c, "striped:cp=4,batch=1,prefill_chunk=8"),
      "prefill_chunk is for tensor or pipeline or ring_pass_kv or ring_pass_q or allgather_kv, not striped");
  EXPECT_EQ(refusal(c, "striped:batch=1"),
            "striped needs cp of at least 2; with cp 1 it is tensor or pipeline");
  EXPECT_EQ(refusal(c, "striped:cp=48,batch=1"), "cp 48 exceeds the context 40");
  Case decode = c;
  decode.batch = decode_batch(1'000);
  EXPECT_EQ(refusal(decode, "striped:cp=4,batch=1"), "striped is a strategy for prefill");
}

TEST(Striped, IsSweptAsARing) {
  const Case c = prefill_case({{0, 64'000}}, "deepseek-r1");
  SearchSpace space;
  for (const int gpus : {1, 8, 24}) {
    std::vector<Plan> striped, ring;
    strategy("striped").enumerate(c, gpus, space, striped);
    strategy("ring_pass_kv").enumerate(c, gpus, space, ring);
    ASSERT_EQ(striped.size(), ring.size());
    for (std::size_t i = 0; i < ring.size(); ++i) {
      ring[i].strategy = strategy_id("striped");
      EXPECT_EQ(striped[i], ring[i]);
    }
  }
}

}  // namespace
}  // namespace shardline
