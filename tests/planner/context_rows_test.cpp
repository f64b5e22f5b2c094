// [C24] Compressed attention under context-parallel prefill: every rank has all caches, makes all rows, and
// scores, chooses and attends for its own tokens.
#include <gmock/gmock.h>

#include "hardware/cost/kernel_cost.hpp"
#include "hardware/timing/unfolder.hpp"
#include "models/model/cache.hpp"
#include "planner/layers/compressed.hpp"
#include "planner/layers/gathered.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/search/memory.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

constexpr const char* kFamily[]{"deepseek-v4-pro", "deepseek-v4-flash"};

Case prompts(const std::string& model, std::vector<Segment> requests) {
  Case c = decode_case(model, "h200-hgx", 1);
  c.precision = {Dtype::fp8, Dtype::fp8, Dtype::fp8, Dtype::bf16, Dtype::fp8};
  c.precision.router = c.precision.head = Dtype::bf16;
  c.batch = prefill_batch(std::move(requests));
  return c;
}

Schedule lowered_plan(const Case& c, const std::string& plan) {
  EXPECT_EQ(refusal(c, plan), "");
  return lowered(c, plan);
}

// The sum over the ranks of a stage of f(shape) of every op of a kind.
template <class S, class F>
double over_ranks(const Schedule& s, OpKind kind, F f) {
  double all = 0;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (s.ops[i].kind != kind) continue;
    for (int r = 0; r < s.ranks_per_stage; ++r)
      all += static_cast<double>(f(shape<S>(s.op_of_class(i, s.class_of(r)))));
  }
  return all;
}

// What all ranks score, choose and attend to together is what one does.
TEST(ContextRows, C24AllRanksTogetherDoTheWorkOfOne) {
  for (const char* model : kFamily) {
    for (const std::vector<Segment>& requests :
         {std::vector<Segment>{{0, 60'000}}, {{30'011, 7'003}}, {{0, 5}, {9'000, 4'001}, {0, 12'345}}}) {
      SCOPED_TRACE(model);
      const Case c = prompts(model, requests);
      const Schedule one = lowered_plan(c, "tensor:tpa=1,tpf=1,batch=1"),
                     many = lowered_plan(c, "allgather_kv:cp=4,tpa=1,tpf=1,batch=1");
      const auto same = [&](double a, double b) {
        EXPECT_GT(a, 0);
        EXPECT_NEAR(b / a, 1, 1e-12);
      };
      const auto pairs = [](const auto& s) { return s.pairs; };
      const auto rows = [](const auto& s) { return s.q_rows; };
      using Logits = IndexLogitsShape;
      using Sparse = AttendSparseShape;
      same(over_ranks<Logits>(one, OpKind::index_logits, pairs),
           over_ranks<Logits>(many, OpKind::index_logits, pairs));
      same(over_ranks<Logits>(one, OpKind::index_logits, rows),
           over_ranks<Logits>(many, OpKind::index_logits, rows));
      same(over_ranks<Sparse>(one, OpKind::attend_sparse, pairs),
           over_ranks<Sparse>(many, OpKind::attend_sparse, pairs));
      const auto scores = [](const TopKShape& s) { return s.scores; };
      same(over_ranks<TopKShape>(one, OpKind::top_k, scores),
           over_ranks<TopKShape>(many, OpKind::top_k, scores));
      const auto candidates = [](const ModuleRestShape& s) { return s.candidates; };
      same(over_ranks<ModuleRestShape>(one, OpKind::module_rest, candidates),
           over_ranks<ModuleRestShape>(many, OpKind::module_rest, candidates));
      // Streams are of tokens: each rank mixes those of its own, and before the head the last one that it has
      // of each request.
      const auto mixed = [](const MixShape& m) { return m.rows; };
      EXPECT_EQ(
          over_ranks<MixShape>(many, OpKind::mix_streams, mixed),
          over_ranks<MixShape>(one, OpKind::mix_streams, mixed) + 3 * static_cast<double>(requests.size()));
    }
  }
}

// New tokens alone travel: window keys as they are projected, values and gates in float32; none of layers
// that make no rows, and of the index where there is one.
TEST(ContextRows, C24MessagesAreWhatNewTokensAddWhateverIsCached) {
  for (const char* model : kFamily) {
    for (const long long cached : {0LL, 8'000LL, 1'000'003LL}) {
      const Case c = prompts(model, {{cached, 4'001}});
      const Schedule s = lowered_plan(c, "allgather_kv:cp=8,tpa=1,tpf=1,batch=1");
      const double padded = 501;  // of 4,001 tokens on 8 ranks
      std::vector<double> window, rows, index, want_window, want_rows, want_index;
      for (const Op& op : ops_named(s, "gather window keys")) window.push_back(message_bytes(op).value);
      for (const Op& op : ops_named(s, "gather values and gates of rows"))
        rows.push_back(message_bytes(op).value);
      for (const Op& op : ops_named(s, "gather values and gates of index rows"))
        index.push_back(message_bytes(op).value);
      for (int i = 0; i < std::ssize(c.model.attentions); ++i) {
        if (of_drafts_alone(c.model, i)) continue;
        const Attention& a = c.model.attentions[static_cast<std::size_t>(i)];
        want_window.push_back(padded * 512 * 2);
        if (a.compression->ratio > 0) want_rows.push_back(padded * 4 * 2 * (a.index ? 2 : 1) * 512);
        if (a.index) want_index.push_back(padded * 4 * 2 * 2 * 128);
      }
      EXPECT_EQ(window, want_window);
      EXPECT_EQ(rows, want_rows);
      EXPECT_EQ(index, want_index);
    }
  }
}

// A rank's own tokens pass the small kernels of the layer; what is gathered passes them on every rank.
TEST(ContextRows, C24EveryRankMakesTheRowsOfAll) {
  const Case c = prompts("deepseek-v4-pro", {{0, 8'192}});
  const Schedule s = lowered_plan(c, "allgather_kv:cp=8,tpa=1,tpf=1,batch=1");
  for (const char* name :
       {"append window keys of other ranks", "make rows of other ranks", "make index rows of other ranks"}) {
    ASSERT_FALSE(ops_named(s, name).empty()) << name;
    for (const Op& op : ops_named(s, name)) EXPECT_EQ(shape<ElementwiseShape>(op).rows, 7'168) << name;
  }
  // 4 bytes of 2 x 256 numbers are read of each token, and a row of 132 bytes is written for four of them.
  EXPECT_EQ(shape<ElementwiseShape>(ops_named(s, "make index rows of other ranks").front()).bytes,
            Bytes(7'168 * (2 * 256 * 4 + 132 / 4.)));
}

TEST(ContextRows, C24FoldedEqualsUnfolded) {
  for (const char* model : kFamily) {
    const Case c = prompts(model, {{3'000, 9'000}, {0, 700}});
    for (const char* text : {"allgather_kv:cp=8,tpa=1,tpf=1,batch=1", "allgather_kv:cp=4,tpa=2,tpf=2,batch=2",
                             "allgather_kv:cp=8,tpa=1,ep=8,tpf=1,batch=1,in_flight=1,prefill_chunk=2000"}) {
      SCOPED_TRACE(std::string(model) + " " + text);
      expect_folded_equals_unfolded(c, lowered_plan(c, text));
    }
  }
}

// Caches are whole on every rank, as under tensor parallelism, and buffers hold the widest message of all
// ranks twice.
TEST(ContextRows, C24MemoryIsThatOfWholeCaches) {
  for (const char* model : kFamily) {
    for (const std::vector<Segment>& requests :
         {std::vector<Segment>{{0, 65'536}}, {{70'001, 999}, {0, 3}}}) {
      const Case c = prompts(model, requests);
      const Plan cp = parse_plan("allgather_kv:cp=8,tpa=1,tpf=1,batch=1"),
                 tp = parse_plan("tensor:tpa=8,tpf=8,batch=1");
      EXPECT_EQ(memory_use(c, cp).kv.value, memory_use(c, tp).kv.value);
    }
  }
  const Case c = prompts("deepseek-v4-pro", {{0, 65'536}});
  for (const Attention& a : c.model.attentions) {
    if (a.compression->ratio == 0) continue;  // of the module that drafts alone
    const double widest = a.index ? 8 * 1'024. : 8 * 512.;
    EXPECT_EQ(gathered_rows_buffers(c, a, parse_plan("allgather_kv:cp=8,tpa=1,tpf=1,batch=1")),
              Bytes(65'536 * 2 * widest));
  }
}

// The index is shared out by tokens, which TP cannot do; a chunk more or less is priced as its share.
TEST(ContextRows, C24RanksShareTheIndexThatTensorParallelismRepeats) {
  const Case c = prompts("deepseek-v4-pro", {{0, 131'072}});
  ASSERT_FALSE(c.system.calibration.empty());
  const auto seconds = [&](const std::string& text, OpKind kind) {
    const Schedule s = lowered_plan(c, text);
    CostModel cost(c.system);
    double most = 0;
    for (int k = 0; k < s.classes; ++k) {
      double of_class = 0;
      for (OpIndex i = 0; i < s.ops.size(); ++i)
        if (s.ops[i].kind == kind) of_class += cost.time(s.op_of_class(i, k)).value;
      most = std::max(most, of_class);
    }
    return most;
  };
  const std::string cp8 = "allgather_kv:cp=8,tpa=1,ep=8,tpf=1,batch=1", tp8 = "tensor:tpa=8,ep=8,batch=1";
  for (const OpKind kind : {OpKind::index_logits, OpKind::top_k})
    EXPECT_LT(seconds(cp8, kind), 0.25 * seconds(tp8, kind)) << to_string(kind);
}

TEST(ContextRows, C24WhatIsRefusedNamesWhatRunsIt) {
  const Case c = prompts("deepseek-v4-pro", {{0, 8'192}});
  for (const char* text : {"ring_pass_kv:cp=4,tpa=1,tpf=1,batch=1", "ulysses:cp=4,tpa=1,tpf=1,batch=1",
                           "tsp:cp=4,tpa=1,tpf=1,batch=1"})
    EXPECT_THAT(refusal(c, text), ::testing::EndsWith("which deepseek-v4-pro has: allgather_kv does"));
}

}  // namespace
}  // namespace shardline
