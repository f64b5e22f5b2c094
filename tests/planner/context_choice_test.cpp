// [C22], [C25] Keys that an index chooses, under context-parallel prefill: every rank scores, chooses and
// attends for its own tokens among all keys, of which it gathers the index's, and gathers the others or
// passes them on.
#include <gmock/gmock.h>

#include "hardware/cost/kernel_cost.hpp"
#include "hardware/timing/unfolder.hpp"
#include "models/model/cache.hpp"
#include "planner/layers/gathered.hpp"
#include "planner/layers/prefill_layout.hpp"
#include "planner/layers/sparse_attention.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/search/memory.hpp"
#include "tests/planner/cache_pools.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

constexpr const char* kModels[]{"deepseek-v3.2", "glm-5.2", "minimax-m3"};

Case study(const std::string& model, std::vector<Segment> requests) {
  Case c = decode_case(model, "h200-hgx", 1);
  c.precision = {Dtype::fp8, Dtype::fp8, Dtype::fp8, Dtype::bf16, Dtype::fp8};
  if (model == "minimax-m3") c.precision = all_bf16();
  c.precision.router = c.precision.head = Dtype::bf16;
  c.batch = prefill_batch(std::move(requests));
  return c;
}

// The sum over the ranks of a stage of f(shape) of every op of a kind.
template <class S, class F>
double sum(const Schedule& s, OpKind kind, F f) {
  double all = 0;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].kind != kind) continue;
    for (int r = 0; r < s.ranks_per_stage; ++r)
      all += static_cast<double>(f(shape<S>(s.op_of_class(i, s.class_of(r)))));
  }
  return all;
}

Schedule lowered_attention(const Case& c, const std::string& plan) {
  EXPECT_EQ(refusal(c, plan), "");
  return lowered(c, plan);
}

// What all ranks score, choose and attend to together is what one does.
TEST(ContextChoice, C22AllRanksTogetherDoTheWorkOfOne) {
  for (const char* model : kModels) {
    for (const std::vector<Segment>& requests :
         {std::vector<Segment>{{0, 60'000}}, {{30'011, 7'003}}, {{0, 5}, {9'000, 4'001}, {0, 12'345}}}) {
      SCOPED_TRACE(model);
      const Case c = study(model, requests);
      const Schedule one = lowered_attention(c, "tensor:tpa=1,tpf=1,batch=1"),
                     many = lowered_attention(c, "allgather_kv:cp=4,tpa=1,tpf=1,batch=1");
      const auto same = [&](double a, double b) {
        EXPECT_GT(a, 0);
        EXPECT_NEAR(b / a, 1, 1e-12);
      };
      const auto pairs = [](const auto& s) { return s.pairs; };
      const auto rows = [](const auto& s) { return s.q_rows; };
      using Logits = IndexLogitsShape;
      using Sparse = AttendSparseShape;
      same(sum<Logits>(one, OpKind::index_logits, pairs), sum<Logits>(many, OpKind::index_logits, pairs));
      same(sum<Logits>(one, OpKind::index_logits, rows), sum<Logits>(many, OpKind::index_logits, rows));
      same(sum<Sparse>(one, OpKind::attend_sparse, pairs), sum<Sparse>(many, OpKind::attend_sparse, pairs));
      const auto scores = [](const TopKShape& s) { return s.scores; };
      const auto choosing = [](const TopKShape& s) { return s.choosing; };
      same(sum<TopKShape>(one, OpKind::top_k, scores), sum<TopKShape>(many, OpKind::top_k, scores));
      same(sum<TopKShape>(one, OpKind::top_k, choosing), sum<TopKShape>(many, OpKind::top_k, choosing));
      const auto candidates = [](const ModuleRestShape& s) { return s.candidates; };
      same(sum<ModuleRestShape>(one, OpKind::module_rest, candidates),
           sum<ModuleRestShape>(many, OpKind::module_rest, candidates));
    }
  }
}

// Rows of the index before those of the cache; of layers that take a choice the latter alone.
TEST(ContextChoice, C22MessagesAreRowsAsTheyAreCached) {
  const std::vector<Segment> requests{{8'000, 4'000}};
  for (const char* model : kModels) {
    SCOPED_TRACE(model);
    const Case c = study(model, requests);
    const char* text = "allgather_kv:cp=8,tpa=1,tpf=1,batch=1";
    const Schedule s = lowered_attention(c, text);
    const Plan p = parse_plan(text);
    const auto padded = static_cast<double>(step_layout(c, p).dealt.key_message);
    EXPECT_EQ(padded, 12'000 / 8);
    std::vector<double> index, cache, want_index, want_cache;
    for (const Op& op : ops_named(s, "gather index keys")) index.push_back(message_bytes(op).value);
    for (const Op& op : ops_named(s, "gather KV")) cache.push_back(message_bytes(op).value);
    for (const Attention& a : c.model.attentions) {
      if (a.index && !a.index->shared) want_index.push_back(padded * index_row_bytes(a, c.precision.kv));
      want_cache.push_back(padded * row_bytes(a, c.precision.kv));
    }
    EXPECT_EQ(index, want_index);
    EXPECT_EQ(cache, want_cache);
    EXPECT_EQ(ops_named(s, "order index keys").size(), want_index.size());
  }
}

TEST(ContextChoice, C22FoldedEqualsUnfolded) {
  for (const char* model : kModels) {
    const Case c = study(model, {{3'000, 9'000}, {0, 700}});
    for (const char* text : {"allgather_kv:cp=8,tpa=1,tpf=1,batch=1", "allgather_kv:cp=4,tpa=2,tpf=2,batch=2",
                             "allgather_kv:cp=8,tpa=1,ep=8,tpf=1,batch=1,in_flight=1,prefill_chunk=2000"}) {
      SCOPED_TRACE(std::string(model) + " " + text);
      expect_folded_equals_unfolded(c, lowered_attention(c, text));
    }
  }
}

double seconds(const Case& c, const std::string& text, OpKind kind) {
  const Schedule s = lowered(c, text);
  CostModel cost(c.system);
  double most = 0;
  for (int k = 0; k < s.classes; ++k) {
    double of_class = 0;
    for (OpIndex i = 0; i < s.ops.size(); ++i)
      if (s.ops[i].kind == kind) of_class += cost.time(s.op_of_class(i, k)).value;
    most = std::max(most, of_class);
  }
  return most;
}

// TP does not make the index faster; its tokens on several ranks do, and these share it evenly.
TEST(ContextChoice, C22RanksShareTheIndexThatTensorParallelismRepeats) {
  const Case c = study("deepseek-v3.2", {{0, 131'072}});
  ASSERT_FALSE(c.system.calibration.empty());
  const std::string cp8 = "allgather_kv:cp=8,tpa=1,ep=8,tpf=1,batch=1", tp8 = "tensor:tpa=8,ep=8,batch=1",
                    one = "tensor:tpa=1,tpf=1,batch=1";
  for (const OpKind kind : {OpKind::index_logits, OpKind::top_k}) {
    EXPECT_GT(seconds(c, tp8, kind), 0.5 * seconds(c, one, kind)) << to_string(kind);
    EXPECT_LT(seconds(c, cp8, kind), 0.25 * seconds(c, tp8, kind)) << to_string(kind);
  }
  // Not faster than its share, but for what the correction of the measured block, of which both are parts,
  // differs by between an eighth of the rows and all of them.
  for (const OpKind kind : {OpKind::index_logits, OpKind::top_k})
    EXPECT_GT(seconds(c, cp8, kind), 0.98 * seconds(c, one, kind) / 8) << to_string(kind);
}

TEST(ContextChoice, C22MemoryIsShardedAndBuffersHoldAllRowsTwice) {
  const Case c = study("deepseek-v3.2", {{0, 65'536}});
  const Plan p = parse_plan("allgather_kv:cp=8,tpa=1,tpf=1,batch=1");
  EXPECT_EQ(memory_use(c, p).kv.value, 61.0 * (656 + 132) * 65'536 / 8);
  EXPECT_EQ(gathered_choice_buffers(c, c.model.attentions.front(), p), Bytes(65'536.0 * (2 * 656 + 132)));
}

// SGLang's ranks gather keys and values into caches of their own.
TEST(ContextChoice, P18AnEnginesRanksMayKeepTheCacheWhole) {
  Case c = study("deepseek-v3.2", {{0, 65'536}});
  const auto kv = [&](const char* plan) { return memory_use(c, parse_plan(plan)).kv.value; };
  const double whole = kv("tensor:tpa=8,ep=8,batch=1");
  EXPECT_EQ(kv("allgather_kv:cp=8,tpa=1,ep=8,tpf=1,batch=1"), whole / 8);
  c.engine = engine_named("sglang");
  EXPECT_EQ(kv("tensor:tpa=8,ep=8,batch=1"), whole);
  EXPECT_EQ(kv("allgather_kv:cp=8,tpa=1,ep=8,tpf=1,batch=1"), whole);
}

TEST(ContextChoice, C22WhatIsRefusedNamesWhatRunsIt) {
  const Case c = study("deepseek-v3.2", {{0, 8'192}});
  for (const char* text : {"ring_pass_q:cp=4,tpa=1,tpf=1,batch=1", "ulysses:cp=4,tpa=1,tpf=1,batch=1",
                           "striped:cp=4,tpa=1,tpf=1,batch=1"})
    EXPECT_THAT(refusal(c, text), ::testing::EndsWith("which deepseek-v3.2 has: allgather_kv does"));
}

constexpr const char* kRings[]{"ring_pass_kv:cp=4,tpa=1,tpf=1,batch=1",
                               "ring_pass_kv:cp=4,tpa=1,tpf=1,batch=1,layout=contiguous"};

// Choices are those of a gather, pair by pair; what was chosen is attended to in the iteration that brings
// it, all together once, but for rounding up in each.
TEST(ContextChoice, C25ARingChoosesAndAttendsAsAGatherDoes) {
  for (const char* model : kModels) {
    for (const std::vector<Segment>& requests :
         {std::vector<Segment>{{0, 60'000}}, {{30'011, 7'003}}, {{0, 5}, {9'000, 4'001}, {0, 12'345}}}) {
      for (const char* plan : kRings) {
        SCOPED_TRACE(std::string(model) + " " + plan);
        const Case c = study(model, requests);
        const Schedule one = lowered_attention(c, "tensor:tpa=1,tpf=1,batch=1"),
                       ring = lowered_attention(c, plan);
        const auto pairs = [](const auto& s) { return s.pairs; };
        const auto scores = [](const TopKShape& s) { return s.scores; };
        EXPECT_EQ(sum<IndexLogitsShape>(one, OpKind::index_logits, pairs),
                  sum<IndexLogitsShape>(ring, OpKind::index_logits, pairs));
        EXPECT_EQ(sum<TopKShape>(one, OpKind::top_k, scores), sum<TopKShape>(ring, OpKind::top_k, scores));
        const double whole = sum<AttendSparseShape>(one, OpKind::attend_sparse, pairs),
                     parts = sum<AttendSparseShape>(ring, OpKind::attend_sparse, pairs);
        EXPECT_GE(parts, whole);
        // Less than one each: kinds of layers, ranks, iterations, and two chunks of each request.
        EXPECT_LT(parts, whole + 4. * 4 * 4 * 2 * static_cast<double>(requests.size()));
      }
    }
  }
}

// A rank whose queries are before all keys that it holds has nothing to do, in the iterations of one block on
// each rank all but the first of rank 0.
TEST(ContextChoice, C25ARankWithoutKeysBeforeItDoesNothing) {
  const Case c = study("deepseek-v3.2", {{0, 16'384}});
  const Schedule s = lowered_attention(c, kRings[1]);
  int idle = 0, busy = 0;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].kind != OpKind::attend_sparse) continue;
    for (int k = 0; k < s.classes; ++k) {
      const auto& a = shape<AttendSparseShape>(s.op_of_class(i, k));
      (a.pairs > 0 ? busy : idle)++;
      EXPECT_EQ(a.pairs > 0, a.q_rows > 0);
    }
  }
  EXPECT_EQ(busy, 4 + 3 + 2 + 1);
  EXPECT_EQ(idle, 6);
}

// Index keys are gathered, rows of the cache travel: N - 1 messages of a rank's rows as they are cached.
TEST(ContextChoice, C25MessagesAreRowsAsTheyAreCached) {
  for (const char* model : kModels) {
    SCOPED_TRACE(model);
    const Case c = study(model, {{8'000, 4'000}});
    const Schedule s = lowered_attention(c, "ring_pass_kv:cp=8,tpa=1,tpf=1,batch=1");
    double gathered = 0, passed = 0, want_gathered = 0, want_passed = 0;
    for (const Op& op : ops_named(s, "gather index keys")) gathered += message_bytes(op).value;
    for (const Op& op : ops_named(s, "pass KV")) passed += message_bytes(op).value;
    for (const Attention& a : c.model.attentions) {
      if (a.index && !a.index->shared) want_gathered += 1'500 * index_row_bytes(a, c.precision.kv);
      want_passed += 7 * 1'500 * row_bytes(a, c.precision.kv);
    }
    EXPECT_EQ(gathered, want_gathered);
    EXPECT_EQ(passed, want_passed);
    EXPECT_TRUE(ops_named(s, "gather KV").empty());
  }
}

TEST(ContextChoice, C25FoldedEqualsUnfolded) {
  for (const char* model : kModels) {
    const Case c = study(model, {{3'000, 9'000}, {0, 700}});
    for (const char* text : {"ring_pass_kv:cp=8,tpa=1,tpf=1,batch=1", "ring_pass_kv:cp=4,tpa=2,tpf=2,batch=2",
                             "ring_pass_kv:cp=8,tpa=1,ep=8,tpf=1,batch=1,in_flight=1,prefill_chunk=2000"}) {
      SCOPED_TRACE(std::string(model) + " " + text);
      expect_folded_equals_unfolded(c, lowered_attention(c, text));
    }
  }
}

// The cache is sharded as under a gather; buffers need two messages in place of all of them, twice.
TEST(ContextChoice, C25BuffersHoldTwoMessagesAndNoWholeCache) {
  const Case c = study("deepseek-v3.2", {{0, 65'536}});
  const Plan ring = parse_plan("ring_pass_kv:cp=8,tpa=1,tpf=1,batch=1"),
             gather = parse_plan("allgather_kv:cp=8,tpa=1,tpf=1,batch=1");
  EXPECT_EQ(memory_use(c, ring).kv, memory_use(c, gather).kv);
  const double partial = 8'192. * 128 * (512 * 2 + 4);
  EXPECT_EQ(ring_choice_buffers(c, c.model.attentions.front(), ring),
            Bytes(65'536. * 132 + 2 * 8'192. * 656 + partial));
}

}  // namespace
}  // namespace shardline
