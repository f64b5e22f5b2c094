// A step is a batch: decoding requests and prefills in any mixture, from one set of layer functions.
#include "models/ir/batch.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "planner/layers/cache_attention.hpp"
#include "planner/search/memory.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

const char* const kModels[] = {"llama-3.1-405b", "deepseek-r1",   "qwen3-235b-a22b", "gpt-oss-120b",
                               "gemma-3-27b",    "mimo-v2-flash", "llama-4-maverick"};

Case study(const std::string& model, const Batch& batch) {
  Case c = decode_case(model, "gb200-nvl72", 1);
  c.system.calibration = {};
  c.batch = batch;
  return c;
}

// Some plans of every strategy that has mixed steps.
std::vector<Plan> mixing_plans(const Case& c, std::size_t each) {
  SearchSpace space;
  with_hopb_chunks(space, {1, 3});
  std::vector<Plan> all;
  for (const Strategy* s : strategies()) {
    if (!s->mixes) continue;
    std::vector<Plan> own;
    for (const int gpus : {4, 8, 16, 64}) {
      std::vector<Plan> plans;
      s->enumerate(c, gpus, space, plans);
      std::shuffle(plans.begin(), plans.end(), std::mt19937(11));
      plans.resize(std::min(plans.size(), each));
      own.insert(own.end(), plans.begin(), plans.end());
    }
    // DCP divides the query heads of a KV head: Llama 4 has 5 of them.
    const bool indivisible = s->name == std::string("dcp") && c.model.name == "llama-4-maverick";
    EXPECT_TRUE(!own.empty() || !has_experts(c.model) || indivisible) << s->name << " " << c.model.name;
    for (Plan& p : own) {
      p.batch = std::max(p.batch, least_batch(c, p));
      EXPECT_EQ(check_plan(c, p).value_or(""), "") << to_string(p);
    }
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

const Batch kMixed{{{99'999, 1, 24}, {4'000, 1, 8}}, {{30'720, 2'048}, {0, 1'024, 2}}};

std::string text_of(const Schedule& s) {
  std::string text;
  for (const Op& op : s.ops) text += describe(op) + " " + op.name + "\n";
  return text;
}

TEST(Batch, NoRequestsOfAKindAreNone) {
  const Batch decode{{{99, 1, 3}}, {{7, 5, 0}}}, prefill{{{99, 1, 0}}, {{7, 5, 2}}};
  EXPECT_EQ(decode.kind(), StepKind::decode);
  EXPECT_EQ(prefill.kind(), StepKind::prefill);
  EXPECT_EQ(kMixed.kind(), StepKind::mixed);
  EXPECT_EQ(requests_in(kMixed.decode), 32);
  for (const char* model : kModels) {
    const Case mixed = study(model, kMixed);
    for (const Plan& p : mixing_plans(mixed, 6)) {
      SCOPED_TRACE(to_string(p));
      for (const bool of_decode : {true, false}) {
        Batch alone = kMixed, beside_none = kMixed;
        (of_decode ? alone.prefill : alone.decode).clear();
        for (Segment& s : of_decode ? beside_none.prefill : beside_none.decode) s.count = 0;
        Schedule a, b;
        lower(a, study(model, alone), p);
        lower(b, study(model, beside_none), p);
        EXPECT_EQ(text_of(a), text_of(b));
        EXPECT_EQ(memory_use(study(model, alone), p).total(),
                  memory_use(study(model, beside_none), p).total());
      }
    }
  }
}

TEST(Batch, GroupsAreTheirRequestsOneByOne) {
  Batch apart;
  for (int i = 0; i < 24; ++i) apart.decode.push_back({99'999, 1});
  for (int i = 0; i < 8; ++i) apart.decode.push_back({4'000, 1});
  apart.prefill = {{30'720, 2'048}, {0, 1'024}, {0, 1'024}};
  for (const char* model : kModels) {
    const Case a = study(model, kMixed), b = study(model, apart);
    for (const Plan& p : mixing_plans(a, 8)) {
      Schedule x, y;
      lower(x, a, p);
      lower(y, b, p);
      EXPECT_EQ(text_of(x), text_of(y)) << to_string(p);
      EXPECT_EQ(memory_use(a, p).total(), memory_use(b, p).total()) << to_string(p);
    }
  }
}

TEST(Batch, FoldedEqualsUnfolded) {
  for (const char* model : kModels) {
    const Case c = study(model, kMixed);
    CostModel cost(c.system);
    PassScratch scratch(cost);
    Schedule schedule;
    for (const Plan& p : mixing_plans(c, 5)) {
      SCOPED_TRACE(to_string(p));
      lower(schedule, c, p);
      const PassTime folded = simulate_pass(schedule, cost, scratch);
      TaskGraph graph;
      lower_unfolded(schedule, cost, graph);
      EXPECT_NEAR(simulate(graph, cost.machine(p.gpus())).makespan() / folded.latency, 1, 1e-12);
      EXPECT_LE(bound_pass(schedule, cost, scratch).latency, folded.latency * (1 + 1e-12));
    }
  }
}

// What all ops of the stages do, weights apart: they are read once whoever needs them.
struct Work {
  double gemms = 0, pairs = 0, kv = 0, messages = 0;
};
Work work_of(const Case& c, const Plan& p) {
  Schedule s;
  lower(s, c, p);
  const std::vector<double> runs = executions(s);
  Work w;
  for (std::size_t i = 0; i < s.blocks.size(); ++i) {
    for (OpIndex o = s.blocks[i].first; o < s.blocks[i].last; ++o) {
      const Op& op = s.ops[o];
      if (is_gemm(op.kind)) w.gemms += runs[i] * flops(op).value;
      if (is_attention(op.kind)) {
        w.pairs += runs[i] * flops(op).value;
        w.kv += runs[i] * kv_bytes(op).value;
      }
      if (is_communication(op.kind)) w.messages += runs[i] * message_bytes(op).value;
    }
  }
  return w;
}

// Rows divide evenly everywhere, so that a step of both kinds does exactly the work of both steps.
TEST(Batch, AMixedStepDoesTheWorkOfBoth) {
  Batch decode = kMixed, prefill = kMixed;
  decode.prefill.clear();
  prefill.decode.clear();
  for (const char* model : kModels) {
    const Case both = study(model, kMixed);
    for (Plan p : mixing_plans(both, 10)) {
      SCOPED_TRACE(to_string(p));
      p.batch = 2;
      if (check_plan(both, p)) continue;
      const Work a = work_of(study(model, decode), p), b = work_of(study(model, prefill), p),
                 m = work_of(both, p);
      EXPECT_NEAR(m.gemms / (a.gemms + b.gemms), 1, 1e-9);
      EXPECT_NEAR(m.pairs / (a.pairs + b.pairs), 1, 1e-12);
      EXPECT_NEAR(m.kv / (a.kv + b.kv), 1, 1e-12);
      EXPECT_NEAR(m.messages, a.messages + b.messages, 1e-9 * m.messages);
    }
  }
}

// Whatever a segment has more of, a step takes no less time and no less memory.
TEST(Batch, TimeAndMemoryRiseWithEverySegment) {
  std::mt19937 random(5);
  const auto draw = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  for (const char* model : kModels) {
    if (model == std::string("llama-4-maverick")) continue;  // a chunk that begins hides those before it
    const std::vector<Plan> plans = mixing_plans(study(model, kMixed), 6);
    for (const Plan& p : plans) {
      SCOPED_TRACE(to_string(p));
      Batch batch{{{draw(1'000, 50'000), 1, draw(1, 9)}}, {}};
      Seconds time;
      Bytes memory;
      for (int step = 0; step < 14; ++step) {
        const Case c = study(model, batch);
        Evaluator e(c);
        const Seconds t = e.simulate(p);
        const MemoryUse use = memory_use(c, p);
        EXPECT_GE(t * (1 + 1e-12), time) << "step " << step;
        EXPECT_LE(e.bound(p), t * (1 + 1e-12));
        EXPECT_GE(use.total(), memory) << "step " << step;
        time = t;
        memory = use.total();
        switch (step % 7) {
          case 0:  // the first prefill beside decoding requests
            batch.prefill.push_back({0, draw(1, 300)});
            break;
          case 1:
            batch.prefill.back().fresh += draw(1, 2'000);
            break;
          case 2:
            batch.prefill.back().cached += draw(1, 20'000);
            break;
          case 3:
            ++batch.prefill.back().count;
            break;
          case 4:
            batch.decode.push_back({draw(1, 90'000), 1});
            break;
          case 5:
            batch.decode.front().cached += draw(1, 9'000);
            break;
          default:
            ++batch.decode.front().count;
        }
      }
    }
  }
}

// A kernel ends with its last request: many short ones beside a long one take no less than that one alone.
TEST(Batch, UnequalRequestsTakeNoLessThanTheLongest) {
  for (const char* model : {"llama-3.1-405b", "deepseek-r1"}) {
    Case c = study(model, {{{499'999, 1}, {999, 1, 15}}, {}});
    c.system = catalog_system("gb200-nvl72");
    const Plan p = parse_plan("tensor:tpa=8,tpf=8,batch=1");
    const auto attends = [&](const Batch& batch) {
      c.batch = batch;
      Schedule s;
      lower(s, c, p);
      CostModel cost(c.system);
      for (const Op& op : s.ops) {
        if (op.kind == OpKind::attend_decode) return cost.time(op);
      }
      return Seconds(0);
    };
    const Seconds uneven = attends(c.batch), longest = attends({{{499'999, 1}}, {}});
    const Seconds mean = attends({{{(500'000 + 15 * 1'000) / 16 - 1, 1, 16}}, {}});
    EXPECT_NEAR(uneven / std::max(longest, mean), 1, 1e-3) << model;
    EXPECT_TRUE(model != std::string("llama-3.1-405b") || longest > mean * 1.2) << "the mean says less";
  }
}

// Whoever is listed first, and under HOP-B however the requests are cut: the same work, and more of it takes
// no less.
TEST(Batch, TheOrderOfRequestsDoesNotMatter) {
  Case c = study("llama-3.1-405b", {{{199'999, 1}, {999, 1, 2}}, {}});
  Case reversed = c;
  reversed.batch.decode = {{999, 1, 2}, {199'999, 1}};
  for (const char* plan : {"ring_decode:cp=2,tpa=8,tpf=8,batch=1", "ring_decode:cp=4,tpa=8,tpf=8,batch=2",
                           "tensor:tpa=8,tpf=8,batch=2", "helix:kvp=2,tpa=8,tpf=16,batch=1"}) {
    Evaluator a(c), b(reversed);
    EXPECT_NEAR(a.simulate(parse_plan(plan)) / b.simulate(parse_plan(plan)), 1, 1e-12) << plan;
  }
  Evaluator e(reversed);
  Seconds last;
  for (int batch = 1; batch < 9; ++batch) {
    Plan p = parse_plan("ring_decode:cp=4,tpa=8,tpf=8,batch=1");
    p.batch = batch;
    const Seconds t = e.simulate(p);
    EXPECT_GE(t * (1 + 1e-12), last) << batch;
    last = t;
  }
}

TEST(Batch, ChunksOfAnUnevenBatchPayForTheLongestOnce) {
  Case c = study("llama-3.1-8b", {{{999, 1, 3}, {199'999, 1}}, {}});
  c.system = catalog_system("gb200-nvl72");
  const auto attention = [&](const char* plan) {
    Schedule s;
    lower(s, c, parse_plan(plan));
    CostModel cost(c.system);
    Seconds sum;
    for (const Op& op : s.ops) {
      if (op.kind == OpKind::attend_decode) sum += cost.time(op);
    }
    return sum;
  };
  const Seconds whole = attention("helix:kvp=2,tpa=4,tpf=8,batch=2"),
                cut = attention("helix:kvp=2,tpa=4,tpf=8,batch=2,chunks=4");
  // Chunks that hold a long request take their own time, the others their share of the longest.
  EXPECT_GE(cut, whole);
  EXPECT_LE(cut, whole * 1.2);
  // As many chunks as requests, whatever repeats them.
  EXPECT_EQ(refusal(c, "helix:kvp=2,tpa=4,tpf=8,batch=1,chunks=4"), "");
  EXPECT_EQ(refusal(c, "helix:kvp=2,tpa=4,tpf=8,batch=1,chunks=5"), "chunks 5 exceeds the batch 4");
}

// pairs_on_member() against a count of every pair.
TEST(Batch, PairsOnTheFullestShardAreCounted) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const CacheShare share{
        1, 1, {1 + static_cast<int>(random() % 5), 1}, 1 + static_cast<int>(random() % 7), ValueUp::before};
    const Segment s{static_cast<long long>(random() % 60), static_cast<long long>(random() % 50)};
    Count pairs = 0;
    for (long long q = s.cached; q < s.length(); ++q) {
      for (long long k = 0; k <= q; ++k) pairs += k / share.block % share.sharers.size == 0;
    }
    EXPECT_EQ(pairs_on_member(share, 0, {}, s), pairs);
  }
}

TEST(Batch, StrategiesWithoutMixedStepsSaySo) {
  const Case c = study("llama-3.1-405b", kMixed);
  EXPECT_EQ(refusal(c, "ring_decode:cp=4,tpa=8,tpf=8,batch=1"),
            "ring_decode has no steps that decode and prefill");
  EXPECT_EQ(refusal(c, "kv_shard:kvp=4,tpa=8,tpf=8,batch=1"),
            "kv_shard has no steps that decode and prefill");
  EXPECT_EQ(refusal(c, "tensor:tpa=8,tpf=8,batch=1,prefill_chunk=512"),
            "prefill_chunk is for steps that prefill alone");
  EXPECT_EQ(refusal(c, "tensor:tpa=8,tpf=8,batch=1"), "");
  EXPECT_EQ(refusal(study("llama-3.1-405b", {{{99, 3}}, {}}), "tensor:tpa=8,tpf=8,batch=1"),
            "a decoding request has one new token, not 3");
}

}  // namespace
}  // namespace shardline
