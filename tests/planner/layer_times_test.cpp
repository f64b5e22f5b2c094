// Times of models whose layers are of several kinds, and strategies that have none of them.
#include <gmock/gmock.h>

#include <random>

#include "models/model/catalog.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/studies/chain_cost.hpp"
#include "planner/studies/threshold_study.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

const char* const kModels[] = {"gpt-oss-120b", "llama-4-maverick", "mimo-v2-flash", "gemma-3-27b"};

struct Setting {
  const char* system;
  bool calibrated;
};
const Setting kSettings[] = {
    {"gb200-nvl72", false}, {"gb200-nvl72", true}, {"h100-hgx", false}, {"h100-hgx", true}};

Precision all_fp8() {
  Precision p{Dtype::fp8, Dtype::fp8, Dtype::fp8, Dtype::bf16, Dtype::fp8};
  p.router = p.head = Dtype::bf16;
  return p;
}

Case study(const std::string& model, const Setting& on, const Batch& batch) {
  Case c = decode_case(model, on.system, 1);
  c.precision = all_fp8();
  if (!on.calibrated) c.system.calibration = {};
  c.batch = batch;
  return c;
}

// Every layer's attention as `change` makes it of its own.
template <class F>
void change_attentions(Case& c, F change) {
  std::vector<Attention> attentions;
  std::vector<FeedForward> ffns;
  for (const LayerRun& run : c.model.runs) {
    Attention a = c.model.attentions[static_cast<std::size_t>(run.attention)];
    change(a);
    attentions.insert(attentions.end(), static_cast<std::size_t>(run.count), a);
    ffns.insert(ffns.end(), static_cast<std::size_t>(run.count),
                c.model.ffns[static_cast<std::size_t>(run.ffn)]);
  }
  set_layers(c.model, attentions, ffns);
  set_routing(c, {});
  EXPECT_TRUE(check(c.model).empty()) << check(c.model).front().what;
}

// Of these plans those that the case has.
std::vector<Plan> plans_of(const Case& c) {
  std::vector<Plan> all;
  for (const char* text :
       {"tensor:tpa=8,tpf=8,batch=2", "tensor:tpa=4,ep=4,batch=4", "helix:kvp=2,tpa=4,tpf=8,batch=2",
        "dcp:tpa=16,tpf=16,dcp=2,batch=2", "dcp:tpa=32,tpf=32,dcp=2,batch=2", "dp_ep:dp=4,tpa=2,ep=8,batch=1",
        "kv_shard:kvp=4,tpa=2,tpf=2,batch=3", "pipeline:pp=2,tpa=4,tpf=4,batch=2",
        "allgather_kv:cp=4,tpa=2,tpf=2,batch=1", "ring_pass_kv:cp=4,tpa=1,tpf=1,batch=1",
        "ring_pass_q:cp=4,tpa=1,tpf=1,batch=1", "ulysses:cp=4,tpa=1,tpf=1,batch=1",
        "tensor:tpa=4,tpf=4,batch=1,prefill_chunk=1000"}) {
    if (!refusal(c, text).empty()) continue;
    Plan& p = all.emplace_back(parse_plan(text));
    p.in_flight = p.pp;
  }
  EXPECT_GE(all.size(), c.batch.prefills() ? 3u : 4u);
  return all;
}

void expect_same_times(const Case& a, const Case& b, double within) {
  Evaluator one(a), other(b);
  for (const Plan& p : plans_of(a)) {
    SCOPED_TRACE(a.model.name + " on " + a.system.name + ": " + to_string(p));
    EXPECT_EQ(check_plan(b, p).value_or(""), "");
    // Gathered keys of later ranks count as read under full attention, whose kernels see whole tiles [C4];
    // none is in a window's reach.
    const bool gathered = p.cp > 1 && !a.system.calibration.empty();
    EXPECT_NEAR(one.simulate(p) / other.simulate(p), 1, gathered ? 0.01 : within);
    if (gathered) {
      EXPECT_LE(one.simulate(p), other.simulate(p) * (1 + 1e-12));
    }
    EXPECT_NEAR(memory_use(a, p).kv / memory_use(b, p).kv, 1, 1e-12);
  }
}

// (query, key) pairs of all heads of a rank times their width, and rows of its products times their weights.
struct LayerWork {
  double attention = 0, ffn = 0;
};

LayerWork work_of(const Schedule& s) {
  LayerWork w;
  const std::vector<double> runs = executions(s);
  for (std::size_t i = 0; i < s.blocks.size(); ++i) {
    for (OpIndex o = s.blocks[i].first; o < s.blocks[i].last; ++o) {
      const Op& op = s.ops[o];
      if (is_attention(op.kind)) {
        std::visit(
            [&](const auto& shape) {
              if constexpr (requires { shape.pairs + shape.qk_dim + shape.v_dim; })
                w.attention +=
                    runs[i] * static_cast<double>(shape.pairs * shape.q_heads * (shape.qk_dim + shape.v_dim));
            },
            op.shape);
      }
      const std::string name = op.name;
      if (name == "ffn up" || name == "router") {
        const auto& g = std::get<GemmShape>(op.shape);
        w.ffn += runs[i] * static_cast<double>(g.rows * g.k * g.n);
      }
    }
  }
  return w;
}

// What a step does is what its layers do, each with its own kinds, one after the other.
TEST(LayerTimes, EveryLayerRunsItsOwnKinds) {
  for (const char* model : kModels) {
    for (const Batch& batch : {Batch{{{20'000, 1, 4}}, {}}, prefill_batch({{9'000, 2'000}, {0, 300}})}) {
      const Case c = study(model, kSettings[0], batch);
      const Model& m = c.model;
      for (const char* plan :
           {"tensor:tpa=4,tpf=4,batch=2", "pipeline:pp=5,tpa=4,tpf=4,batch=2,in_flight=5"}) {
        LayerWork want;
        for (const LayerRun& run : m.runs) {
          const Attention& a = m.attentions[static_cast<std::size_t>(run.attention)];
          const FeedForward& f = m.ffns[static_cast<std::size_t>(run.ffn)];
          double pairs = 0, rows = 0;
          for (const auto* segments : {&batch.decode, &batch.prefill}) {
            for (const Segment& s : *segments) {
              rows += 2.0 * static_cast<double>(s.count * s.fresh);
              for (long long q = s.cached; q < s.length(); ++q)
                pairs += 2.0 * s.count * static_cast<double>(q - a.reach.first(q) + 1);
            }
          }
          want.attention += run.count * pairs * (a.q_heads / 4.0) * (key_width(a) + value_width(a));
          want.ffn += run.count * rows * m.hidden * (f.dense() ? 2.0 * f.inner / 4 : f.experts);
        }
        const LayerWork work = work_of(lowered(c, plan));
        EXPECT_NEAR(work.attention / want.attention, 1, 1e-12) << model << " " << plan;
        EXPECT_NEAR(work.ffn / want.ffn, 1, 1e-12) << model << " " << plan;
      }
    }
  }
}

// A reach of all tokens is full attention, decoding and in prefills of any cut.
TEST(LayerTimes, AReachOfTheWholeSequenceIsFullAttention) {
  for (const char* model : kModels) {
    for (const Setting& on : kSettings) {
      for (const Batch& batch :
           {Batch{{{19'999, 1, 3}, {700, 1}}, {}}, prefill_batch({{0, 6'000}, {9'000, 300}}),
            Batch{{{19'999, 1, 3}}, {{5'000, 512}}}}) {
        Case full = study(model, on, batch), wide = full;
        change_attentions(full, [](Attention& a) {
          a.reach = {};
          a.sinks = false;
        });
        change_attentions(wide, [](Attention& a) {
          if (a.reach.local()) a.reach.tokens = 20'000;
          a.sinks = false;
        });
        ASSERT_TRUE(has_local_attention(wide.model));
        expect_same_times(wide, full, 1e-12);
      }
    }
  }
}

// Kinds in another order are the same work: alternating, or one half after the other.
TEST(LayerTimes, TheOrderOfTheKindsDoesNotMatter) {
  for (const char* model : kModels) {
    for (const Setting& on : kSettings) {
      for (const Batch& batch : {Batch{{{30'000, 1, 4}}, {}}, prefill_batch({{3'000, 2'000}})}) {
        const Case c = study(model, on, batch);
        Case sorted = c;
        std::sort(sorted.model.runs.begin(), sorted.model.runs.end(),
                  [](const LayerRun& a, const LayerRun& b) {
                    return std::pair(a.attention, a.ffn) < std::pair(b.attention, b.ffn);
                  });
        ASSERT_NE(sorted.model.runs, c.model.runs);
        Evaluator one(c), other(sorted);
        for (const Plan& p : plans_of(c)) {
          if (p.pp > 1) continue;  // the fullest stage has other layers
          EXPECT_NEAR(one.simulate(p) / other.simulate(p), 1, 1e-12) << model << " " << to_string(p);
          EXPECT_LE(one.bound(p), one.simulate(p) * (1 + 1e-12)) << model << " " << to_string(p);
        }
      }
    }
  }
}

// Windows: never faster with more tokens. Chunks: not while none begins.
TEST(LayerTimes, DecodeTimeRisesWithTheContext) {
  for (const char* model : kModels) {
    for (const char* system : {"gb200-nvl72", "h100-hgx"}) {
      Case c = study(model, {system, false}, decode_batch(2));
      const bool chunks = model == std::string("llama-4-maverick");
      for (const Plan& p : plans_of(c)) {
        SCOPED_TRACE(std::string(model) + " on " + system + ": " + to_string(p));
        Seconds last;
        std::mt19937 random(3);
        const long long end = chunks ? 5 * 8'192 : 3'000'000;
        for (long long context = chunks ? 4 * 8'192 + 1 : 8; context <= end;
             context += std::uniform_int_distribution<long long>(1, chunks ? 700 : context / 2)(random)) {
          c.batch = decode_batch(context);
          Evaluator e(c);
          const Seconds t = e.simulate(p);
          EXPECT_GE(t * (1 + 1e-12), last) << context;
          EXPECT_LE(e.bound(p), t * (1 + 1e-12));
          last = t;
        }
      }
    }
  }
}

// Where all layers have windows, a longer context is only a longer way to them.
TEST(LayerTimes, WindowsAloneTakeAsLongAtAnyContext) {
  for (const char* model : {"gpt-oss-120b", "mimo-v2-flash", "gemma-3-27b"}) {
    for (const Setting& on : kSettings) {
      Case c = study(model, on, decode_batch(1'000'000));
      change_attentions(c, [](Attention& a) { a.reach = {ReachKind::window, 512}; });
      Case twice = c, full = c;
      twice.batch = decode_batch(2'000'000);
      change_attentions(full, [](Attention& a) { a.reach = {}; });
      Evaluator one(c), other(twice), all(full);
      for (const Plan& p : plans_of(c)) {
        SCOPED_TRACE(std::string(model) + " on " + on.system + ": " + to_string(p));
        EXPECT_NEAR(other.simulate(p) / one.simulate(p), 1, 0.01);
        EXPECT_LT(one.simulate(p), all.simulate(p));
        EXPECT_LE(other.bound(p), other.simulate(p) * (1 + 1e-12));
        EXPECT_EQ(memory_use(c, p).kv, memory_use(twice, p).kv);
      }
    }
  }
}

TEST(LayerTimes, StrategiesWithoutLocalAttentionRefuseIt) {
  SearchSpace space;
  with_hopb_chunks(space, {1, 2});
  std::vector<std::string> refusing;
  for (const char* model : {"gpt-oss-120b", "llama-4-scout", "gemma-3-27b", "mimo-v2-flash"}) {
    refusing.clear();
    for (const Strategy* s : strategies()) {
      int plans = 0, refused = 0;
      for (const Batch& batch :
           {decode_batch(50'000), prefill_batch({{0, 8'192}}), Batch{{{50'000, 1}}, {{0, 8'192}}}}) {
        const Case local = study(model, kSettings[0], batch);
        Case full = local;
        change_attentions(full, [](Attention& a) {
          a.reach = {};
          a.sinks = false;
        });
        for (const int gpus : {2, 8, 16}) {
          std::vector<Plan> of_full, of_local;
          s->enumerate(full, gpus, space, of_full);
          s->enumerate(local, gpus, space, of_local);
          for (Plan& p : of_full) {
            p.batch = std::max(p.batch, least_batch(full, p));
            ASSERT_EQ(check_plan(full, p).value_or(""), "") << to_string(p);
            ++plans;
            const auto why = check_plan(local, p);
            if (!why) continue;
            ++refused;
            const std::string text = std::string(s->name) +
                                     " does not run layers with windows, chunks or sinks, which " + model +
                                     " has: ";
            EXPECT_EQ(why->substr(0, text.size()), text);
            // What it names instead is in the table, and takes the case.
            const std::string other = why->substr(text.size());
            const auto named = find_strategy(other.substr(0, other.find(' ')));
            ASSERT_TRUE(named) << other;
            EXPECT_TRUE(strategy(*named).takes(local)) << other;
          }
          EXPECT_EQ(of_local.size(), s->local_attention ? of_full.size() : 0) << s->name;
        }
      }
      EXPECT_EQ(refused, s->local_attention ? 0 : plans) << s->name << " " << model;
      if (refused > 0) refusing.emplace_back(s->name);
    }
  }
  EXPECT_THAT(refusing, testing::UnorderedElementsAre("ring_decode", "star", "apb", "sparse"));
}

TEST(LayerTimes, KvRunaheadIsOfOneKindOfAttention) {
  Case c = study("llama-3.1-8b", kSettings[0], prefill_batch({{0, 8'192}}));
  const char* plan = "kv_runahead:cp=4,tpa=1,tpf=1,batch=1";
  EXPECT_EQ(refusal(c, plan), "");
  std::vector<Attention> attentions(static_cast<std::size_t>(c.model.layers()), c.model.attentions.front());
  attentions.back().kv_heads = 4;
  set_layers(c.model, attentions, std::vector<FeedForward>(attentions.size(), c.model.ffns.front()));
  EXPECT_EQ(refusal(c, plan), "kv_runahead is for models whose layers have one kind of attention");
  EXPECT_EQ(refusal(c, "ring_pass_kv:cp=4,tpa=1,tpf=1,batch=1"), "");
}

std::string thresholds_refusal(const Case& c) {
  Study s;
  s.study = c;
  s.question = ThresholdGrid{};
  try {
    study_thresholds(s, 1, [](std::size_t, std::size_t) {});
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(LayerTimes, ThresholdsAreOfOneFullKind) {
  for (const char* model : {"gpt-oss-120b", "gemma-3-27b"}) {
    Case c = study(model, kSettings[0], prefill_batch({{0, 8'192}}));
    const std::string why = ": thresholds are of models whose layers all have full attention of one kind";
    EXPECT_THAT(thresholds_refusal(c), testing::HasSubstr(model + why));
    // Of one kind, but a window.
    change_attentions(c, [](Attention& a) { a.reach = {ReachKind::window, 128}; });
    EXPECT_THAT(thresholds_refusal(c), testing::HasSubstr(model + why));
  }
}

}  // namespace
}  // namespace shardline
