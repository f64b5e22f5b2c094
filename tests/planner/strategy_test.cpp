// Every row of the strategy table, on every model kind: what enumerate gives passes check, work is conserved,
// bounds are bounds, time and memory rise with the batch, and folding changes nothing.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <cmath>

#include "models/model/catalog.hpp"
#include "planner/layers/step.hpp"
#include "planner/plan/timed.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/engine/fold.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

SearchSpace wide_space() {
  SearchSpace s;
  with_hopb_chunks(s, {1, 2, 3, 8});
  s.duplicate_kv = true;
  return s;
}

// A model of few layers keeps unfolded graphs small; widths stay those of the real one.
Case small_case(const std::string& model, long long context = 100'000) {
  Case c = decode_case(model, "gb200-nvl72", context);
  cut_layers(c, 5, has_dense(c.model) ? 2 : 0);
  return c;
}

const std::vector<std::string> kModels{"deepseek-r1", "llama-3.1-405b", "qwen3-235b-a22b", "falcon-7b"};

template <class F>
void for_every_plan(const Case& c, const std::vector<int>& gpus, F f) {
  for (const Strategy* s : strategies()) {
    for (const int n : gpus) {
      std::vector<Plan> plans;
      s->enumerate(c, n, wide_space(), plans);
      for (const Plan& p : plans) {
        SCOPED_TRACE(to_string(p));
        f(*s, n, p);
      }
    }
  }
}

TEST(Strategies, EnumeratedPlansPassCheckAndUseTheGpus) {
  for (const std::string& model : kModels) {
    SCOPED_TRACE(model);
    const Case c = small_case(model);
    std::size_t count = 0;
    for_every_plan(c, {1, 2, 6, 8, 64, 72}, [&](const Strategy& s, int n, const Plan& p) {
      ++count;
      EXPECT_EQ(p.strategy, id_of(s));
      EXPECT_EQ(p.gpus(), n);
      EXPECT_EQ(check_plan(c, p).value_or(""), "");
      EXPECT_EQ(parse_plan(to_string(p)), p);
    });
    EXPECT_GT(count, 50u);
  }
}

TEST(Strategies, TableRowsMatchTheirIds) {
  for (const Strategy* s : strategies()) {
    EXPECT_EQ(to_string(id_of(*s)), s->name);
    EXPECT_EQ(&strategy(std::string(s->name)), s);
    EXPECT_EQ(&strategy(id_of(*s)), s);
  }
}

TEST(Strategies, RowsAreComplete) {
  for (const Strategy* s : strategies()) EXPECT_THAT(check_row(*s), ::testing::IsEmpty());
  Strategy broken = *strategies().front();
  broken.prefill_buffers = nullptr;
  broken.partials = PartialOutputs::all_gather;
  static constexpr OptionOf<int> kTwice({.key = "tpa", .help = "already a degree"});
  static constexpr const Option* kOptions[]{&kTwice};
  broken.options = kOptions;
  EXPECT_THAT(check_row(broken), ::testing::SizeIs(3));
}

// Everything that executors and timing see of a schedule, in words.
std::string text_of(const Schedule& s) {
  std::string text = fmt::format("{} ranks, {} in flight, {} rounds, classes {}x{}\n", s.ranks_per_stage,
                                 s.in_flight, s.rounds, s.classes, s.class_stride);
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    const Op& op = s.ops[i];
    for (int k = 0; k < s.classes; ++k)
      text +=
          fmt::format("{} lane {} member {}; ", describe(s.op_of_class(i, k)), to_string(op.lane), op.member);
    for (const OpIndex d : s.dependencies_of(op)) text += fmt::format("after {} ", d.value);
    text += '\n';
  }
  for (const Stage& stage : s.stages) {
    text += fmt::format("{} times:", stage.copies);
    for (const Repeat& r : s.program_of(stage)) {
      for (const BlockIndex b : s.blocks_of(r)) text += fmt::format(" {}x{}", r.times, b.value);
    }
  }
  return text;
}

// A new row that silently behaves like another is the worst fault that a table can have.
TEST(Strategies, NoTwoLowerToEqualSchedules) {
  std::size_t plans = 0;
  std::set<std::string> seen, all;
  for (const Strategy* s : strategies()) all.insert(s->name);
  for (const StepKind kind : {StepKind::decode, StepKind::prefill}) {
    for (const std::string& model : catalog_names(source_path("models/catalog"))) {
      if (!untimed(load_model(model, source_path("models/catalog"))).empty()) continue;
      Case c = small_case(model);
      if (kind == StepKind::prefill) c.batch = prefill_batch({{0, 4'099}});
      std::map<std::string, std::string> known;
      for_every_plan(c, {2, 8, 16}, [&](const Strategy& s, int, const Plan& p) {
        Schedule schedule;
        lower(schedule, c, p);
        const auto [at, added] = known.emplace(text_of(schedule), s.name);
        if (!added && at->second != s.name)
          ADD_FAILURE() << model << ": " << to_string(p) << " lowers to a schedule of " << at->second;
        seen.insert(s.name);
        ++plans;
      });
    }
  }
  EXPECT_GT(plans, 300u);
  EXPECT_EQ(seen, all);
}

// Whether some plan of the case lowers to another schedule when the option changes from one value to another.
bool has_effect(const Case& c, const Strategy& s, const Option& option, int from, int to) {
  SearchSpace space = wide_space();
  space.options = {{&option, {from}}};
  std::vector<Plan> plans;
  for (const int gpus : {8, 16}) enumerate_plans(c, s, gpus, space, plans);
  for (Plan p : plans) {
    p.batch = 16;
    Plan other = p;
    other.options.set(option, to);
    if (check_plan(c, p) || check_plan(c, other)) continue;
    Schedule a, b;
    lower(a, c, p);
    lower(b, c, other);
    if (text_of(a) != text_of(b)) return true;
  }
  return false;
}

// An option that a row declares and no lowering reads would be accepted everywhere and mean nothing.
TEST(Strategies, EveryOptionChangesSomeSchedule) {
  int options = 0;
  for (const Strategy* s : strategies()) {
    for (const Option* option : s->options) {
      if (option->lists) continue;  // KvRunahead.*
      bool effect = false;
      for (const char* model : {"deepseek-r1", "llama-3.1-405b"}) {
        Case c = small_case(model, 100'003);
        if (c.model.drafts) {  // of the kinds that are left of it
          c.model.drafts = DraftModules{1, c.model.attentions.front(), c.model.ffns.back()};
          c.acceptance = std::make_shared<const AcceptanceCurve>(AcceptanceForm{0.8, 0.9});
        }
        if (!s->decodes || !option->decodes) c.batch = prefill_batch({{0, 8'192}});
        // Chunks of a few tokens would make thousands of rounds.
        const int from = !option->words.empty() ? 0 : option == &kPrefillChunk ? 2'048 : 2;
        effect = effect || has_effect(c, *s, *option, from, std::max(1, 2 * from));
      }
      EXPECT_TRUE(effect) << s->name << " " << option->key;
      ++options;
    }
  }
  EXPECT_GT(options, 15);
}

// What a row does of its own in attention must not be lost where a sweep shares blocks between plans.
TEST(Strategies, ViewsOfOwnAttentionKeepTheirStrategyAndOptions) {
  const Case c = small_case("deepseek-r1");
  int own = 0;
  for_every_plan(c, {8}, [&](const Strategy& s, int, const Plan& p) {
    if (!s.decodes || (!s.decode_attention && !s.cache_share)) return;
    const Plan view = block_view(c, p, {BlockKind::attention});
    EXPECT_EQ(view.strategy, p.strategy);
    EXPECT_EQ(view.options, p.options);
    ++own;
  });
  EXPECT_GT(own, 10);
}

// FLOPs of one pass over all ranks and stages.
double total_flops(const Schedule& s) {
  double sum = 0;
  const std::vector<double> runs = executions(s);
  for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
    for (OpIndex i = s.blocks[b].first; i < s.blocks[b].last; ++i) sum += flops(s.ops[i]).value * runs[b];
  }
  return sum * s.ranks_per_stage;
}

TEST(Strategies, AllRanksTogetherDoAtLeastTheUsefulWork) {
  for (const std::string& model : kModels) {
    SCOPED_TRACE(model);
    const Case c = small_case(model);
    Schedule schedule;
    for_every_plan(c, {1, 4, 8, 64}, [&](const Strategy&, int, const Plan& p) {
      lower(schedule, c, p);
      const double tokens = static_cast<double>(p.batch) * p.dp;
      const double useful = tokens * flops_per_token(c.model, static_cast<double>(c.longest())).value;
      EXPECT_GE(total_flops(schedule), useful * (1 - 1e-12));
    });
  }
}

TEST(Strategies, EvenShardingDoesExactlyTheUsefulWork) {
  // Llama-405B divides evenly over 8 = TPA: no replication anywhere.
  const Case c = small_case("llama-3.1-405b", 131'072);
  Plan p;
  p.tpa = p.tpf = 8;
  p.batch = 4;
  Schedule schedule;
  lower(schedule, c, p);
  EXPECT_NEAR(total_flops(schedule) / (4 * flops_per_token(c.model, 131'072).value), 1, 1e-12);
}

TEST(Strategies, KvBytesOfAllRanksAreTheCache) {
  // Every cached token is read once: sum over KVP ranks and heads, with KV heads divided evenly.
  const Case c = small_case("llama-3.1-405b", 100'001);
  for (const int kvp : {1, 2, 4, 8}) {
    double elements = 0;
    for (int r = 0; r < kvp; ++r)
      elements += static_cast<double>(kv_tokens_on_shard(c.longest(), kvp, 16, r));
    EXPECT_EQ(elements, 100'001) << kvp;
  }
  for (const long long tokens : {1LL, 15LL, 16LL, 17LL, 999'999LL}) {
    for (const int shards : {1, 3, 8, 64}) {
      for (const int block : {1, 16, 32}) {
        long long sum = 0, most = 0, least = tokens;
        for (int r = 0; r < shards; ++r) {
          const long long n = kv_tokens_on_shard(tokens, shards, block, r);
          sum += n;
          most = std::max(most, n);
          least = std::min(least, n);
        }
        EXPECT_EQ(sum, tokens);
        EXPECT_LE(most - least, block);
        EXPECT_EQ(most, kv_tokens_on_shard(tokens, shards, block, 0));  // the shard that costs charge
      }
    }
  }
}

TEST(Strategies, RoundRobinOwnersAreThoseOfTheTokenRule) {
  // Token t lives on rank (t div 16) mod KVP: count them one by one.
  for (const int shards : {1, 4, 7}) {
    std::vector<long long> owned(static_cast<std::size_t>(shards), 0);
    for (long long t = 0; t < 1000; ++t) {
      for (int r = 0; r < shards; ++r)
        EXPECT_EQ(kv_tokens_on_shard(t, shards, 16, r), owned[static_cast<std::size_t>(r)]);
      ++owned[static_cast<std::size_t>((t / 16) % shards)];
    }
  }
}

TEST(Strategies, BoundNeverExceedsTheSimulation) {
  for (const std::string& model : kModels) {
    SCOPED_TRACE(model);
    const Case c = small_case(model);
    Evaluator e(c);
    for_every_plan(c, {2, 8, 48}, [&](const Strategy&, int, Plan p) {
      for (const int batch : {least_batch(c, p), 7, 64}) {
        if (batch < least_batch(c, p)) continue;
        p.batch = batch;
        const Seconds bound = e.bound(p), simulated = e.simulate(p);
        EXPECT_LE(bound, simulated);
        EXPECT_GT(bound, simulated * 0.5);  // and is worth computing
      }
    });
  }
}

// By parameters; fitted times need not rise: calibrated_plans_test.cpp.
TEST(Strategies, TimeAndMemoryRiseWithTheBatch) {
  for (const std::string& model : kModels) {
    SCOPED_TRACE(model);
    Case c = small_case(model);
    c.system.calibration = {};
    Evaluator e(c);
    for_every_plan(c, {1, 4, 16, 64}, [&](const Strategy&, int, Plan p) {
      Seconds ttl, bound;
      Bytes memory;
      for (int batch = least_batch(c, p); batch <= 300; batch += 1 + batch / 2) {
        p.batch = batch;
        const Seconds t = e.simulate(p), b = e.bound(p);
        const Bytes m = memory_use(c, p).total();
        // Ranks of a ring with equal work end at times that the engine adds up in another order.
        EXPECT_GE(t * (1 + 1e-12), ttl);
        EXPECT_GE(b, bound);
        EXPECT_GE(m, memory);
        ttl = t;
        bound = b;
        memory = m;
      }
    });
  }
}

TEST(Strategies, FoldedEqualsUnfolded) {
  for (const std::string& model : kModels) {
    SCOPED_TRACE(model);
    const Case c = small_case(model);
    CostModel cost(c.system);
    PassScratch scratch(cost);
    Schedule schedule;
    for_every_plan(c, {1, 4, 12}, [&](const Strategy&, int n, Plan p) {
      p.batch = std::max(least_batch(c, p), 5);
      lower(schedule, c, p);
      const PassTime folded = simulate_pass(schedule, cost, scratch);
      TaskGraph graph;
      lower_unfolded(schedule, cost, graph);
      const Timeline unfolded = simulate(graph, cost.machine(n));
      EXPECT_NEAR(unfolded.makespan() / folded.latency, 1, 1e-12);
    });
  }
}

TEST(Strategies, PipelinePeriodIsThatOfCirculatingMicrobatches) {
  // Stages as single tasks with their real times, `pp` microbatches for many tokens: the period settles at
  // token_time.
  const Case c = small_case("llama-3.1-405b");
  for (const int pp : {2, 3, 5}) {
    SCOPED_TRACE(pp);
    Plan p;
    p.strategy = strategy_id("pipeline");
    p.pp = p.in_flight = pp;
    p.tpa = p.tpf = 4;
    p.batch = 2;
    Evaluator e(c);
    const Seconds ttl = e.simulate(p);
    const Schedule schedule = e.schedule();
    PassScratch scratch(e.cost());
    std::vector<Seconds> busy, hop;
    for (const Stage& stage : schedule.stages) {
      Schedule one = schedule;
      one.stages = {{stage.first, stage.last, 1}};
      const PassTime t = simulate_pass(one, e.cost(), scratch);
      for (int k = 0; k < stage.copies; ++k) busy.push_back(t.busiest), hop.push_back(t.latency - t.busiest);
    }
    ASSERT_EQ(busy.size(), static_cast<std::size_t>(pp));
    TaskGraph graph;
    std::vector<TaskId> last_of_stage(busy.size(), 0), last_of_batch(busy.size(), 0);
    std::vector<bool> used(busy.size(), false);
    const int rounds = 40;
    std::vector<TaskId> ends;
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t s = 0; s < busy.size(); ++s) {
        for (std::size_t m = 0; m < busy.size(); ++m) {
          std::vector<TaskId> deps;
          if (round > 0 || s > 0) deps.push_back(last_of_batch[m]);
          if (used[s]) deps.push_back(last_of_stage[s]);
          last_of_stage[s] = graph.add(busy[s], {}, deps);
          used[s] = true;
          last_of_batch[m] = graph.add(hop[s], {}, {last_of_stage[s]});
        }
      }
      ends.push_back(last_of_batch[0]);
    }
    const Timeline t = simulate(graph, Machine{});
    const Seconds period = (t.spans[ends.back()].end - t.spans[ends[ends.size() - 21]].end) / 20.0;
    EXPECT_NEAR(period / ttl, 1, 1e-9);
  }
}

TEST(Strategies, FasterHardwareIsNeverSlower) {
  const Case slow = small_case("deepseek-r1");
  Case fast = slow;
  fast.system.device.memory_bandwidth *= 1.5;
  fast.system.fabric.nvlink.bandwidth *= 2.0;
  fast.system.device.kernel_cost *= 0.5;
  Evaluator a(slow), b(fast);
  for_every_plan(slow, {8, 16}, [&](const Strategy&, int, Plan p) {
    p.batch = std::max(least_batch(slow, p), 16);
    EXPECT_LT(b.simulate(p), a.simulate(p));
  });
}

}  // namespace
}  // namespace shardline
