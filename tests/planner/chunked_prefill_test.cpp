// Prefills in chunks: rounds through pipeline stages [H20], [C17].
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "hardware/timing/unfolder.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/search/provenance.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

Case chunked_case(std::vector<Segment> requests, int layers = 6) {
  Case c = decode_case("llama-3.1-8b", "h100-hgx", 0);
  c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};
  c.batch = prefill_batch(std::move(requests));
  cut_layers(c, layers, layers);
  return c;
}

Seconds ttft(const Case& c, const std::string& plan) { return Evaluator(c).simulate(parse_plan(plan)); }

// Stages of blocks that the test sets the makespans of: round r of stage s is block s * rounds + r, its
// hand-off block stages * rounds + s * rounds + r.
Schedule grid(int stages, int rounds) {
  Schedule s;
  s.rounds = rounds;
  for (int b = 0; b < 2 * stages * rounds; ++b) {
    s.blocks.push_back({"block", 0, 0, b >= stages * rounds});
    s.order.push_back(static_cast<BlockIndex>(b));
  }
  for (int i = 0; i < stages; ++i) {
    const auto first = static_cast<std::uint32_t>(s.program.size());
    for (int r = 0; r < rounds; ++r) {
      for (const int b : {i * rounds + r, (stages + i) * rounds + r})
        s.program.push_back({static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(b) + 1, 1, r});
    }
    s.stages.push_back({first, static_cast<std::uint32_t>(s.program.size()), 1});
  }
  return s;
}

// The longest of all ways from the first round of the first stage to the last of the last, tried one by one:
// down the stages by a hand-off, or on to the next round of the same stage or link.
double longest_way(const std::vector<double>& t, int stages, int rounds, int s, int r, bool sending) {
  const auto busy = [&](int i, int j) { return t[static_cast<std::size_t>(i * rounds + j)]; };
  const auto hop = [&](int i, int j) { return t[static_cast<std::size_t>((stages + i) * rounds + j)]; };
  if (!sending) {
    double best = s > 0 ? longest_way(t, stages, rounds, s - 1, r, true) : 0;
    if (r > 0) best = std::max(best, longest_way(t, stages, rounds, s, r - 1, false));
    return best + busy(s, r);
  }
  double best = longest_way(t, stages, rounds, s, r, false);
  if (r > 0) best = std::max(best, longest_way(t, stages, rounds, s, r - 1, true));
  return best + hop(s, r);
}

TEST(ChunkedPrefill, H20RoundsTakeTheLongestWayThroughStagesAndRounds) {
  std::mt19937_64 random(20);
  for (int n = 0; n < 300; ++n) {
    const int stages = 1 + static_cast<int>(random() % 4), rounds = 2 + static_cast<int>(random() % 4);
    const Schedule s = grid(stages, rounds);
    std::vector<double> t;
    for (std::size_t b = 0; b < s.blocks.size(); ++b) t.push_back(static_cast<double>(random() % 9));
    const std::vector<RoundTime> played = play_rounds(s, t);
    const double longest = longest_way(t, stages, rounds, stages - 1, rounds - 1, true);
    ASSERT_EQ(played.back().sent.value, longest);
    const std::vector<double> on_path = executions_on_path(s, played);
    double sum = 0;
    for (std::size_t b = 0; b < t.size(); ++b) sum += on_path[b] * t[b];
    ASSERT_EQ(sum, longest);
  }
}

TEST(ChunkedPrefill, ChunksDoTheWorkOfTheWholePrefill) {
  for (const auto& requests : {std::vector<Segment>{{0, 50'000}}, {{1'000, 20'001}, {0, 7'000}}}) {
    const Case c = chunked_case(requests);
    Schedule whole, chunked;
    const auto attention = [](const Schedule& s) {
      double pairs = 0, rows = 0;
      const std::vector<double> runs = executions(s);
      for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
        for (OpIndex i = s.blocks[b].first; i < s.blocks[b].last; ++i) {
          const Op& op = s.ops[i];
          if (op.kind == OpKind::attend_prefill)
            pairs += runs[b] * static_cast<double>(shape<AttendPrefillShape>(op).pairs);
          if (op.kind == OpKind::gemm && op.part == Part::qkv)
            rows += runs[b] * static_cast<double>(shape<GemmShape>(op).rows);
        }
      }
      return std::pair(pairs, rows);
    };
    for (const char* plan : {"tensor:tpa=2,tpf=2", "pipeline:pp=3,in_flight=1"}) {
      Plan p = parse_plan(plan);
      lower(whole, c, p);
      for (const int chunk : {999, 6'000, 49'999}) {
        p.set(kPrefillChunk, chunk);
        if (chunk >= c.batch.prefill.front().fresh) continue;
        lower(chunked, c, p);
        EXPECT_EQ(attention(chunked), attention(whole));
      }
    }
  }
}

// Over context-parallel ranks every chunk is dealt out as a turn, and the cache lies where those before left
// it: the chunks of one stage are the turns of a conversation, but for the head.
void expect_turns(long long fresh, long long chunk, bool even) {
  for (const char* plan : {"ring_pass_kv:cp=4,tpa=2,tpf=2", "ring_pass_kv:cp=4,layout=contiguous",
                           "ring_pass_q:cp=4", "allgather_kv:cp=4,tpa=2,tpf=2"}) {
    SCOPED_TRACE(plan);
    Plan p = parse_plan(plan);
    Schedule chunked;
    p.set(kPrefillChunk, static_cast<int>(chunk));
    const Case whole = chunked_case({{0, fresh}});
    ASSERT_EQ(check_plan(whole, p).value_or(""), "");
    lower(chunked, whole, p);
    EXPECT_EQ(chunked.rounds, 4);
    const Seconds time = ttft(whole, to_string(p));
    p.set(kPrefillChunk, 0);
    auto cache = std::make_shared<Placement>(p.cp, 1);
    Seconds sum, head;
    for (long long at = 0; at < fresh; at += chunk) {
      const long long now = std::min(chunk, fresh - at);
      Case turn = chunked_case({{at, now}});
      turn.placement = cache;
      Evaluator e(turn);
      const Breakdown b = break_down(e, p);
      head = b.parts[static_cast<std::size_t>(Part::head)];
      sum += b.time - head;
      cache = std::make_shared<Placement>(*cache);
      const auto deal = strategy(p.strategy).deal;
      deal ? deal(*cache, p, 0, now) : cache->prefill(0, now);
    }
    // Ranks with a token less go on to the next chunk at once, where turns begin together.
    EXPECT_LE(time, (sum + head) * (1 + 1e-9));
    EXPECT_GT(time, (sum + head) * (even ? 1 - 1e-9 : 0.999));
    // Folded to classes, against every rank played.
    CostModel cost(whole.system);
    PassScratch scratch(cost);
    TaskGraph graph;
    lower_unfolded(chunked, cost, graph);
    EXPECT_NEAR(
        simulate(graph, cost.machine(p.gpus())).makespan() / simulate_pass(chunked, cost, scratch).latency, 1,
        1e-12);
  }
}

TEST(ChunkedPrefill, ChunksOverContextParallelRanksAreTurns) {
  expect_turns(32'000, 8'000, true);
  expect_turns(30'001, 8'003, false);
}

TEST(ChunkedPrefill, ChunksOfUnequalRanksFillTheStagesOfAPipeline) {
  const Case c = chunked_case({{0, 40'003}});
  Seconds last;
  for (const int stages : {1, 2, 4}) {
    const std::string plan = "ring_pass_kv:cp=4," + (stages > 1 ? fmt::format("pp={},", stages) : "") +
                             "in_flight=1,prefill_chunk=2501";
    Evaluator e(c);
    const Seconds t = e.simulate(parse_plan(plan));
    EXPECT_LE(e.bound(parse_plan(plan)), t);
    if (stages > 1) {
      EXPECT_LT(t, last);        // stages work at once
      EXPECT_GT(t * 2.0, last);  // and not faster than twice as many
    }
    last = t;
  }
}

TEST(ChunkedPrefill, OneStageTakesTheSumOfItsChunks) {
  const Case c = chunked_case({{0, 30'000}});
  Seconds sum;
  for (const Segment& chunk : {Segment{0, 12'000}, {12'000, 12'000}, {24'000, 6'000}}) {
    const Case part = chunked_case({chunk});
    sum += ttft(part, "tensor:tpa=4,tpf=4");
  }
  // Each of them runs the head.
  const Case c0 = chunked_case({{0, 12'000}});
  Evaluator e(c0);
  const Seconds head =
      break_down(e, parse_plan("tensor:tpa=4,tpf=4")).parts[static_cast<std::size_t>(Part::head)];
  EXPECT_NEAR(ttft(c, "tensor:tpa=4,tpf=4,prefill_chunk=12000") / (sum - head * 2.0), 1, 1e-12);
}

TEST(ChunkedPrefill, StagesWorkAtTheSameTime) {
  const Case c = chunked_case({{0, 262'144}}, 32);
  const Seconds one = ttft(c, "tensor:prefill_chunk=4096");
  const Seconds four = ttft(c, "pipeline:pp=4,in_flight=1,prefill_chunk=4096");
  EXPECT_GT(four, one / 4);
  EXPECT_LT(four, one / 4 * 1.1);  // 64 chunks fill 4 stages: 67 / 64, and the last chunks are the longest
  EXPECT_NEAR(ttft(c, "pipeline:pp=4,in_flight=1") / ttft(c, "tensor"), 1, 0.01);  // one after the other
}

TEST(ChunkedPrefill, BreakdownSumsToTheTime) {
  const Case c = chunked_case({{0, 100'000}, {0, 30'000}}, 32);
  for (const char* plan :
       {"pipeline:pp=4,in_flight=1,prefill_chunk=8192", "tensor:tpa=4,tpf=4,prefill_chunk=8192"}) {
    Evaluator e(c);
    const Breakdown b = break_down(e, parse_plan(plan));
    Seconds parts, bases;
    for (const Seconds t : b.parts) parts += t;
    for (const Seconds t : b.bases) bases += t;
    EXPECT_NEAR(parts / b.time, 1, 1e-9);
    EXPECT_NEAR(bases / b.time, 1, 1e-9);
    EXPECT_NEAR(b.waiting.value, 0, 1e-9 * b.time.value);
  }
}

TEST(ChunkedPrefill, SmallerChunksNeedLessMemory) {
  const Case c = chunked_case({{0, 262'144}}, 32);
  Plan p = parse_plan("tensor");
  Bytes last = memory_use(c, p).total();
  for (const int chunk : {65'536, 8'192, 1'024}) {
    p.set(kPrefillChunk, chunk);
    const MemoryUse use = memory_use(c, p);
    EXPECT_LT(use.total(), last);
    EXPECT_EQ(use.kv, memory_use(c, parse_plan("tensor")).kv);
    last = use.total();
  }
}

TEST(ChunkedPrefill, PlansThatCannotBeAreRefused) {
  const Case c = chunked_case({{0, 10'000}});
  const auto reason = [&](const char* plan) { return refusal(c, plan); };
  EXPECT_EQ(reason("tensor:prefill_chunk=9999"), "");
  EXPECT_EQ(reason("tensor:prefill_chunk=10000"), "prefill_chunk 10000 exceeds all new tokens but one, 9999");
  EXPECT_EQ(
      reason("tsp:cp=2,prefill_chunk=100"),
      "prefill_chunk is for tensor or pipeline or ring_pass_kv or ring_pass_q or allgather_kv, not tsp");
  EXPECT_EQ(reason("pipeline:pp=2,in_flight=2,prefill_chunk=100"),
            "prefill_chunk needs in_flight=1: chunks of one microbatch fill the stages");
  Case hosts = c;
  hosts.system.runtime.host_layer = Seconds(3e-3);
  EXPECT_EQ(check_plan(hosts, parse_plan("tensor:prefill_chunk=100")).value_or(""),
            "prefill_chunk is not for systems with runtime.host_layer, where hosts launch whole layers");
  Case decode = decode_case("llama-3.1-8b", "h100-hgx", 1000);
  EXPECT_EQ(check_plan(decode, parse_plan("tensor:prefill_chunk=100")).value_or(""),
            "prefill_chunk is for prefill");
}

}  // namespace
}  // namespace shardline
