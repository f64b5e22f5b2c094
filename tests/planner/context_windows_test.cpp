// [C21] Windows, chunks of positions and sinks under context-parallel prefill: which iterations of a ring do
// what, which messages travel, and what heads keep, all counted token by token.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "hardware/cost/kernel_cost.hpp"
#include "hardware/timing/unfolder.hpp"
#include "models/model/catalog.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/prefill_layout.hpp"
#include "planner/search/evaluate.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

constexpr const char* kPlans[]{
    "ring_pass_kv:cp=4,tpa=1,tpf=1,batch=1",  "ring_pass_kv:cp=4,tpa=2,tpf=2,batch=1,layout=contiguous",
    "ring_pass_q:cp=4,tpa=1,tpf=1,batch=1",   "striped:cp=4,tpa=1,tpf=1,batch=1",
    "usp:cp=8,tpa=1,tpf=1,batch=1,ulysses=2", "ulysses:cp=8,tpa=1,tpf=1,batch=1",
    "tsp:cp=4,tpa=2,tpf=2,batch=1",           "allgather_kv:cp=4,tpa=1,tpf=1,batch=1"};

// Layers of one kind: 16 query heads, 8 KV heads.
Case study(std::vector<Segment> requests, Reach reach, bool sinks = false) {
  Case c = decode_case("llama-3.1-70b", "h100-hgx", 0);
  c.precision = all_bf16();
  cut_layers(c, 2, 2);
  for (Attention& a : c.model.attentions) {
    a.q_heads = 16;
    a.reach = reach;
    a.sinks = sinks;
  }
  c.batch = prefill_batch(std::move(requests));
  return c;
}

// Positions of a list's rows, with their requests.
std::vector<std::pair<int, long long>> positions(const Tokens& tokens) {
  std::vector<std::pair<int, long long>> out;
  for (const Interval& i : tokens) {
    for (std::int64_t row = 0; i.request != kPadding && row < i.size(); ++row)
      out.emplace_back(i.request, i.position(row));
  }
  return out;
}

Count pairs_one_by_one(const Tokens& queries, const Tokens& keys, const Reach& reach) {
  Count pairs = 0;
  for (const auto& [r, q] : positions(queries)) {
    for (const auto& [of, k] : positions(keys)) pairs += r == of && k <= q && k >= reach.first(q) ? 1 : 0;
  }
  return pairs;
}

std::vector<AttendPrefillShape> shapes(const Schedule& s, OpIndex op) {
  std::vector<AttendPrefillShape> out;
  for (int r = 0; r < s.ranks_per_stage; ++r)
    out.push_back(shape<AttendPrefillShape>(s.op_of_class(op, s.class_of(r))));
  return out;
}

std::vector<OpIndex> named(const Schedule& s, std::string_view name) {
  std::vector<OpIndex> out;
  for (OpIndex i = 0; i < s.ops.size(); ++i)
    if (s.ops[i].name == name) out.push_back(i);
  return out;
}

// Of every iteration the pairs of all ranks, and as many messages as the last one needs.
TEST(ContextWindows, C21IterationsAreThoseWithAKeyInReach) {
  int short_rings = 0, left_out = 0, idle = 0;
  for (const Reach& reach : {Reach{ReachKind::window, 9}, Reach{ReachKind::window, 1},
                             Reach{ReachKind::window, 40}, Reach{ReachKind::chunk, 16}, Reach{}}) {
    for (const std::vector<Segment>& requests :
         {std::vector<Segment>{{0, 96}}, {{30, 41}}, {{0, 23}, {50, 9}}}) {
      const Case c = study(requests, reach);
      for (const char* text : kPlans) {
        const std::string_view name(text, std::string_view(text).find(':'));
        const bool moves_keys = name == "ring_pass_kv" || name == "striped", moves_q = name == "ring_pass_q";
        if (!moves_keys && !moves_q) continue;
        SCOPED_TRACE(text);
        ASSERT_EQ(refusal(c, text), "");
        const Plan p = parse_plan(text);
        const ContextLayout layout = step_layout(c, p).within(reach);
        const Schedule s = lowered(c, text);
        std::vector<OpIndex> attends = named(s, "attend");
        std::size_t at = 0;
        int last = 0;
        for (int j = 0; j < p.cp; ++j) {
          std::vector<Count> want;
          for (int k = 0; k < p.cp; ++k) {
            const auto other = static_cast<std::size_t>((k - j + p.cp) % p.cp), own = std::size_t(k);
            const Tokens &queries = layout.fresh[moves_q ? other : own],
                         &keys = layout.keys[moves_q ? own : other];
            want.push_back(pairs_one_by_one(queries, keys, reach));
          }
          const bool any = std::any_of(want.begin(), want.end(), [](Count n) { return n > 0; });
          if (!any && reach.local()) {
            ++left_out;
            continue;
          }
          last = j;
          ASSERT_LT(at, attends.size());
          const std::vector<AttendPrefillShape> got = shapes(s, attends[at++]);
          for (int k = 0; k < p.cp; ++k) {
            const AttendPrefillShape& a = got[static_cast<std::size_t>(k * p.tpa)];
            EXPECT_EQ(a.pairs, want[static_cast<std::size_t>(k)]) << "iteration " << j << ", rank " << k;
            if (a.pairs == 0 && reach.local()) {
              EXPECT_EQ(a.q_rows + a.kv_rows + a.tiles + a.intervals, 0);
              ++idle;
            }
          }
        }
        EXPECT_EQ(at, attends.size());
        const std::size_t messages = named(s, moves_q ? "pass Q" : "pass KV").size();
        EXPECT_EQ(messages, static_cast<std::size_t>(last));
        short_rings += last + 1 < p.cp ? 1 : 0;
      }
    }
  }
  EXPECT_GT(short_rings, 10);
  EXPECT_GT(left_out, 20);
  EXPECT_GT(idle, 20);
}

// Queries come home from where they have seen something, and from nowhere else.
TEST(ContextWindows, C21OutputsComeHomeFromWhereAQuerySeesAKey) {
  const Reach reach{ReachKind::window, 9};
  const Case c = study({{0, 96}}, reach);
  const char* text = "ring_pass_q:cp=4,tpa=1,tpf=1,batch=1";
  const Schedule s = lowered(c, text);
  const ContextLayout layout = step_layout(c, parse_plan(text)).within(reach);
  const std::vector<OpIndex> home = named(s, "send partial outputs home");
  ASSERT_EQ(home.size(), 1U);
  const double piece = static_cast<double>(layout.query_message) * 16 * (128 * 2 + 4);
  for (int k = 0; k < 4; ++k) {
    int pieces = 0;
    for (int other = 0; other < 4; ++other) {
      pieces += other != k &&
                pairs_one_by_one(layout.fresh[std::size_t(other)], layout.keys[std::size_t(k)], reach) > 0;
    }
    EXPECT_EQ(shape<ExchangeShape>(s.op_of_class(home[0], k)).bytes, Bytes(pieces * piece)) << k;
  }
  // All of them, had the layer no window.
  const Schedule full = lowered(study({{0, 96}}, {}), text);
  for (int k = 0; k < 4; ++k) {
    const OpIndex op = named(full, "send partial outputs home").front();
    EXPECT_EQ(shape<ExchangeShape>(full.op_of_class(op, k)).bytes, Bytes(3 * piece));
  }
}

// All ranks together multiply what one does, whatever the cut; and no rank of Ulysses or USP loses its window
// or adds its group's sinks.
TEST(ContextWindows, C21AllRanksTogetherDoTheWorkOfOne) {
  for (const Reach& reach : {Reach{ReachKind::window, 9}, Reach{ReachKind::chunk, 16}, Reach{}}) {
    for (const std::vector<Segment>& requests :
         {std::vector<Segment>{{0, 96}}, {{30, 41}}, {{0, 23}, {50, 9}}}) {
      const Case c = study(requests, reach, true);
      Count want = 0;
      for (const Segment& r : requests) {
        for (long long q = r.cached; q < r.length(); ++q) want += 16 * (q - reach.first(q) + 1);
      }
      for (const char* text : kPlans) {
        SCOPED_TRACE(text);
        ASSERT_EQ(refusal(c, text), "");
        const Schedule s = lowered(c, text);
        Count pairs = 0;
        for (const OpIndex op : named(s, "attend")) {
          for (const AttendPrefillShape& a : shapes(s, op)) {
            pairs += a.pairs * a.q_heads;
            if (a.pairs > 0) {
              EXPECT_EQ(a.window, reach.slides() ? reach.tokens : 0);
            }
          }
        }
        EXPECT_EQ(pairs, want);
      }
    }
  }
}

// The events of a folded schedule are those of all its ranks, also where some have nothing to do.
TEST(ContextWindows, C21FoldedEqualsUnfolded) {
  for (const Reach& reach : {Reach{ReachKind::window, 1024}, Reach{ReachKind::chunk, 2000}}) {
    const Case c = study({{3'000, 9'000}, {0, 700}}, reach, true);
    for (const char* text : kPlans) {
      SCOPED_TRACE(text);
      expect_folded_equals_unfolded(c, lowered(c, text));
    }
  }
}

// A window leaves a ring less to do and no more to send; one as long as the sequence leaves it as it is.
TEST(ContextWindows, C21AShorterWindowIsNoSlower) {
  for (const char* text : kPlans) {
    SCOPED_TRACE(text);
    double before = 0;
    for (const std::int64_t window : {128, 1024, 8192, 65'536}) {
      const Case c = study({{0, 65'536}}, {ReachKind::window, window});
      const double time = Evaluator(c).simulate(parse_plan(text)).value;
      EXPECT_GE(time, before * (1 - 1e-9)) << window;
      before = time;
    }
    const Case full = study({{0, 65'536}}, {});
    EXPECT_NEAR(before / Evaluator(full).simulate(parse_plan(text)).value, 1, 0.01);
  }
}

// Of a window ranks that take heads for tokens each keep their heads of it; ranks that keep tokens may have
// all of it on one.
TEST(ContextWindows, C21MemoryHasAWindowByHeadsOrWhole) {
  // 256 new tokens see 511 cached ones, too.
  const Case c = study({{100'000, 256}}, {ReachKind::window, 512});
  const Attention& a = c.model.attentions.front();
  EXPECT_EQ(cached_rows(c, a, parse_plan("ulysses:cp=8,tpa=1,tpf=1,batch=1")), 96);
  EXPECT_EQ(cached_rows(c, a, parse_plan("usp:cp=8,tpa=1,tpf=1,batch=1,ulysses=2")), 384);
  EXPECT_EQ(cached_rows(c, a, parse_plan("ring_pass_kv:cp=4,tpa=1,tpf=1,batch=1")), 767);
  const Case full = study({{0, 4096}}, {});
  for (const char* text : {"ulysses:cp=8,tpa=1,tpf=1,batch=1", "usp:cp=8,tpa=1,tpf=1,batch=1,ulysses=2"})
    EXPECT_EQ(cached_rows(full, full.model.attentions.front(), parse_plan(text)), 4096 / 8);
}

// gpt-oss, whose layers are of both kinds, in every ring: what is refused names what runs it.
TEST(ContextWindows, C21ModelsOfTheCatalogueAreRunAndRefusalsNameWhatRunsThem) {
  for (const char* model : {"gpt-oss-120b", "gemma-3-27b", "llama-4-scout", "mimo-v2-flash"}) {
    Case c = decode_case(model, "h100-hgx", 1);
    c.precision = all_bf16();
    c.batch = prefill_batch({{0, 8'192}});
    for (const char* text : {"ring_pass_kv:cp=4,tpa=1,tpf=1,batch=1", "ring_pass_q:cp=4,tpa=1,tpf=1,batch=1",
                             "striped:cp=4,tpa=1,tpf=1,batch=1", "ulysses:cp=4,tpa=1,tpf=1,batch=1"})
      EXPECT_EQ(refusal(c, text), "") << model;
    EXPECT_THAT(refusal(c, "star:cp=4,tpa=1,tpf=1,batch=1"),
                ::testing::EndsWith(std::string("which ") + model + " has: allgather_kv does"));
  }
}

}  // namespace
}  // namespace shardline
