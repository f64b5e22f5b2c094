// planner/serving/pools: prompts and answers on GPUs of their own [P22].
#include "planner/serving/pools.hpp"

#include <gtest/gtest.h>

#include <random>

#include "planner/engines/launchable.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/search/memory.hpp"
#include "planner/search/search.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/sweep.hpp"

namespace shardline {
namespace {

Study study(const std::string& strategies, const std::string& more = "") {
  return parse_scenario("q.yaml",
                        "name: q\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\nengine: vllm\n"
                        "precision: {weights: bf16, kv: bf16, math: bf16}\nstrategies: [" +
                            strategies +
                            "]\ngpus: [1, 2, 4, 8]\nbatch: [1, 4, 16, 64]\n"
                            "workload: {input: 8Ki tokens, output: 512 tokens}\n" +
                            more,
                        shipped_catalogs())
      .studies[0];
}

TEST(Pools, ThePrefillPoolIsTheBestOfAllPlans) {
  const Study s = study("tensor, pipeline");
  const std::vector<PrefillPool> pools = prefill_pools(s, 2);
  ASSERT_FALSE(pools.empty());
  const PrefillPool* const best = &pools.front();
  ServedEvaluator evaluator(s.study, AllReduceRule::fastest);
  for (const char* text : {"tensor:batch=1", "tensor:tpa=2,tpf=2,batch=1", "tensor:tpa=8,tpf=8,batch=1"}) {
    const Plan plan = parse_plan(text);
    EXPECT_EQ(evaluator.prompts_of_step(plan, 8192), 1);
    EXPECT_EQ(evaluator.prompts_of_step(plan, 100), 81);
    const Seconds prompt = evaluator.prompt_alone(plan, 8192);
    EXPECT_LE(1 / (prompt.value * plan.gpus()), best->requests_per_s_gpu * (1 + 1e-12)) << text;
  }
  EXPECT_EQ(prefill_pools(s, 1).front().plan, best->plan);
}

// vLLM hands no caches over between stages, SGLang to as many stages as have prefilled, or one. A search for
// the best of each pool alone would find stages on both sides.
TEST(Pools, OnlyPlansThatTheEngineHandsCachesBetweenArePaired) {
  const auto of = [&](const char* engine) {
    Study s = study("tensor, pipeline");
    s.sweep().search.gpus = {8};  // where eight stages prefill faster than eight ranks with messages
    s.study.engine =
        std::make_shared<const EngineProfile>(load_engine({engine, ""}, shipped_catalogs().engines));
    return s;
  };
  const Study vllm = of("vllm"), sglang = of("sglang"), trtllm = of("trtllm");
  EXPECT_GT(prefill_pools(vllm, 1).front().plan.pp, 1);
  const std::vector<PoolPair> one = pool_pairs(vllm, 1);
  ASSERT_FALSE(one.empty());
  for (const PoolPair& p : one) {
    EXPECT_EQ(p.prefill.plan.pp, 1);
    EXPECT_EQ(p.decode.plan.pp, 1);
  }
  for (const PoolPair& p : pool_pairs(sglang, 1))
    EXPECT_TRUE(p.decode.plan.pp == 1 || p.decode.plan.pp == p.prefill.plan.pp);
  const Plan staged = parse_plan("pipeline:pp=4,batch=1"), other = parse_plan("pipeline:pp=2,batch=1"),
             whole = parse_plan("tensor:batch=1");
  const auto refused = [](const Study& s, const Plan& prefill, const Plan& decode) {
    return does_not_pair(*s.study.engine, prefill, decode).has_value();
  };
  EXPECT_TRUE(refused(vllm, staged, whole) && refused(vllm, whole, staged) && !refused(vllm, whole, whole));
  EXPECT_TRUE(!refused(sglang, staged, whole) && !refused(sglang, staged, staged) &&
              refused(sglang, staged, other));
  EXPECT_FALSE(refused(trtllm, staged, other));
}

// The pool of most requests takes its time; under a target another one is paired.
TEST(Pools, ATargetOfTtftIsMetByAnotherPrefillPool) {
  Study s = study("tensor");
  const std::vector<PoolPair> free = pool_pairs(s, 1);
  ASSERT_FALSE(free.empty());
  s.sweep().search.most_ttft = free.front().ttft * 0.6;
  const std::vector<PoolPair> aimed = pool_pairs(s, 1);
  ASSERT_FALSE(aimed.empty());
  for (const PoolPair& p : aimed) {
    EXPECT_LE(p.ttft, s.sweep().search.most_ttft);
    EXPECT_NE(p.prefill.plan, free.front().prefill.plan);
  }
}

TEST(Pools, RatesMatchAndTokensAreShared) {
  const Study s = study("tensor");
  const std::vector<PoolPair> pairs = pool_pairs(s, 2);
  ASSERT_FALSE(pairs.empty());
  for (const PoolPair& p : pairs) {
    // Of 1 + x GPUs one decodes: the prompts of its requests keep x busy.
    const double requests = p.output_per_s_gpu * (1 + p.prefill_gpus) / 512;
    EXPECT_NEAR(requests, p.prefill_gpus * p.prefill.requests_per_s_gpu, 1e-9 * requests);
    EXPECT_NEAR(requests * 511, value(Metric::throughput, p.decode), 1e-6);
    EXPECT_EQ(p.decode.time, Evaluator(s.study, AllReduceRule::fastest).simulate(p.decode.plan));
    const double rate = requests * p.decode.plan.gpus();  // of a replica that decodes
    EXPECT_NEAR((p.ttft - p.prefill.prompt - p.handoff - p.decode.time).value,
                s.study.engine->host.path.value + static_cast<double>(p.decode.all_waiting()) / rate, 1e-6);
  }
}

// Who finds no room in the pool that decodes waits until as many have left.
TEST(Pools, UsersBeyondTheRoomWait) {
  Study s = study("tensor");
  s.sweep().search.batches = {16384};
  s.sweep().search.gpus = {1, 2};
  const std::vector<PoolPair> pairs = pool_pairs(s, 2);
  ASSERT_FALSE(pairs.empty());
  for (const PoolPair& p : pairs) {
    const Plan& plan = p.decode.plan;
    EXPECT_EQ(plan.batch + p.decode.waiting, 16384);
    EXPECT_EQ(plan.batch, largest_batch(with_room(s.study), plan, 16384));
    EXPECT_EQ(p.decode.time, Evaluator(s.study, AllReduceRule::fastest).simulate(plan));
    const double rate = plan.batch / (p.decode.time.value * 511);  // requests/s of a replica
    EXPECT_NEAR((p.ttft - p.prefill.prompt - p.handoff - p.decode.time - s.study.engine->host.path).value,
                p.decode.waiting / rate, 1e-6 * p.ttft.value);
  }
}

TEST(Pools, TheHandOffMovesTheCacheOnceOverTheNarrowerSide) {
  const Case c = study("tensor").study;
  const Plan one = parse_plan("tensor:batch=1"), four = parse_plan("tensor:tpa=4,tpf=4,batch=1"),
             eight = parse_plan("tensor:tpa=8,tpf=8,batch=1");
  const double bytes = 8192.0 * 32 * 2 * 8 * 128 * 2;
  const NvlinkSpec& nvlink = c.system.fabric.nvlink;
  EXPECT_NEAR((handoff_time(c, one, four, 8192) - nvlink.latency).value,
              bytes / (nvlink.bandwidth.value * nvlink.efficiency), 1e-9);
  EXPECT_NEAR((handoff_time(c, four, four, 8192) - nvlink.latency).value,
              bytes / (4 * nvlink.bandwidth.value * nvlink.efficiency), 1e-9);
  // Two nodes: the network, by four NICs.
  EXPECT_GT(handoff_time(c, eight, four, 8192), handoff_time(c, four, four, 8192) * 4);
}

TEST(Pools, ASweepHasThemBesideWhatOnePoolServes) {
  const SweepAnswer answer = answer_sweep(
      study("tensor, pipeline"), {}, [](auto, auto) {}, [] { return true; });
  ASSERT_FALSE(answer.pools.empty());
  ASSERT_FALSE(answer.frontier.empty());
  for (std::size_t i = 1; i < answer.pools.size(); ++i) {
    EXPECT_GT(answer.pools[i].decode.time, answer.pools[i - 1].decode.time);
    EXPECT_GT(answer.pools[i].output_per_s_gpu, answer.pools[i - 1].output_per_s_gpu);
  }
  // Undisturbed steps are no slower than those with prompts beside them.
  EXPECT_LE(answer.pools.front().decode.time, answer.frontier.back().time * (1 + 1e-12));
}

// [P22] Against every pair of numbers of replicas.
TEST(Pools, WholeReplicasAreTheSmallestThatAnswerEnough) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> rate(0.2, 30);
  std::uniform_int_distribution<int> power(0, 3), gpus(1, 70);
  int enough = 0, fewer = 0, none = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const Replica prefill{1 << power(random), rate(random)}, decode{1 << power(random), rate(random)};
    const int most = gpus(random);
    const double matched = 1 / (prefill.gpus / prefill.requests_per_s + decode.gpus / decode.requests_per_s);
    int fewest = 0;
    double best = 0;
    for (int a = 1; a * prefill.gpus < most; ++a) {
      for (int b = 1; a * prefill.gpus + b * decode.gpus <= most; ++b) {
        const int all = a * prefill.gpus + b * decode.gpus;
        const double got = std::min(a * prefill.requests_per_s, b * decode.requests_per_s) / all;
        ASSERT_LE(got, matched * (1 + 1e-12));
        best = std::max(best, got);
        if (got >= 0.95 * matched && (fewest == 0 || all < fewest)) fewest = all;
      }
    }
    const WholePools w = whole_pools(prefill, decode, most);
    if (best == 0) {
      EXPECT_EQ(w.gpus, 0);
      ++none;
      continue;
    }
    ASSERT_GT(w.gpus, 0);
    EXPECT_LE(w.gpus, most);
    EXPECT_EQ(w.gpus, w.prefill * prefill.gpus + w.decode * decode.gpus);
    const double all = w.requests_per_s_gpu * w.gpus;
    EXPECT_NEAR(all, w.prefill_busy * w.prefill * prefill.requests_per_s, 1e-9);
    EXPECT_NEAR(all, w.decode_busy * w.decode * decode.requests_per_s, 1e-9);
    EXPECT_EQ(std::max(w.prefill_busy, w.decode_busy), 1);
    if (fewest > 0) {
      EXPECT_EQ(w.gpus, fewest) << prefill.requests_per_s << " " << decode.requests_per_s;
      ++enough;
    } else {
      EXPECT_NEAR(w.requests_per_s_gpu, best, 1e-9);
      ++fewer;
    }
  }
  EXPECT_GT(std::min({enough, fewer, none}), 50);
}

TEST(Pools, AnswersInWholeReplicasAreThoseOfTheSlowerPool) {
  const SweepAnswer answer = answer_sweep(
      study("tensor"), {}, [](auto, auto) {}, [] { return true; });
  ASSERT_FALSE(answer.pools.empty());
  for (const PoolPair& p : answer.pools) {
    ASSERT_GT(p.whole.gpus, 0);
    EXPECT_LE(p.whole_output_per_s_gpu, p.output_per_s_gpu * (1 + 1e-12));
    EXPECT_GE(p.whole_output_per_s_gpu, 0.95 * p.output_per_s_gpu);
    const double prompts = p.whole.prefill * p.prefill.plan.gpus() * p.prefill.requests_per_s_gpu;
    EXPECT_NEAR(p.whole_output_per_s_gpu * p.whole.gpus, 512 * prompts * p.whole.prefill_busy, 1e-6);
    // Errors of both pools, by their parts of the GPUs; of whole replicas those of the slower one.
    const ErrorTerms &decode = answer.pool_decoders.of(p.decode.plan).errors, both = pair_errors(answer, p);
    ASSERT_FALSE(p.prefill.errors.all().empty());
    const ErrorRange a = time_error(decode), b = time_error(p.prefill.errors), ab = time_error(both);
    EXPECT_LE(ab.high, std::max(a.high, b.high));
    EXPECT_GT(ab.high, 0);
    EXPECT_EQ(whole_errors(answer, p), p.whole.prefill_busy < 1 ? decode : p.prefill.errors);
  }
}

// TensorRT-LLM has Helix in generation servers alone: no prompts on their GPUs, whatever the strategy could.
TEST(Pools, WhatAnswersAloneHasPoolsAndNoServedPlans) {
  const Study s =
      parse_scenario("q.yaml",
                     "name: q\nsystem: gb200-nvl72\nmodels: [deepseek-r1]\nengine: trtllm\n"
                     "precision: {weights: fp4, kv: fp8, math: fp4}\nstrategies: [tensor, helix]\n"
                     "gpus: [8]\nbatch: [1, 8]\nworkload: {input: 64Ki tokens, output: 1Ki tokens}\n",
                     shipped_catalogs())
          .studies[0];
  const StrategyId helix = strategy_id("helix"), tensor = strategy_id("tensor");
  EXPECT_FALSE(serves_prompts(s.study, helix));
  EXPECT_TRUE(serves_prompts(s.study, tensor));
  const SweepAnswer answer = answer_sweep(
      s, {}, [](auto, auto) {}, [] { return true; });
  ASSERT_EQ(answer.found.without_plans.size(), 1u);
  EXPECT_EQ(answer.found.without_plans[0].first, helix);
  EXPECT_FALSE(answer.found.frontiers.at(tensor).points().empty());
  EXPECT_TRUE(std::any_of(answer.pools.begin(), answer.pools.end(),
                          [&](const PoolPair& p) { return p.decode.plan.strategy == helix; }));
}

}  // namespace
}  // namespace shardline
