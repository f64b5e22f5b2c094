// planner/serving/pools: prompts and answers on GPUs of their own [P22].
#include "planner/serving/pools.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "planner/engines/launchable.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/search/memory.hpp"
#include "planner/search/search.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/sweep.hpp"
#include "tests/planner/pool_play.hpp"

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
    EXPECT_LE(1 / (prompt.value * plan.gpus()), best->server.most_per_s() / best->plan.gpus() * (1 + 1e-12))
        << text;
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
    return does_not_pair(*s.study.engine, s.study, prefill, decode).has_value();
  };
  EXPECT_TRUE(refused(vllm, staged, whole) && refused(vllm, whole, staged) && !refused(vllm, whole, whole));
  EXPECT_TRUE(!refused(sglang, staged, whole) && !refused(sglang, staged, staged) &&
              refused(sglang, staged, other));
  EXPECT_FALSE(refused(trtllm, staged, other));
}

// Fewer users share a server for prompts, or another plan prefills: the answer costs GPUs.
TEST(Pools, ATargetOfTtftIsMet) {
  Study s = study("tensor");
  const std::vector<PoolPair> free = pool_pairs(s, 1);
  ASSERT_FALSE(free.empty());
  const auto aim = [&](double part) {
    s.sweep().search.most_ttft = free.front().loop.ttft * part;
    return pool_pairs(s, 1);
  };
  // A hand-off takes part of it whoever else asks: far less is out of reach.
  for (const double part : {0.9, 0.8}) {
    const std::vector<PoolPair> aimed = aim(part);
    ASSERT_FALSE(aimed.empty());
    for (PoolPair p : aimed) {
      EXPECT_LE(p.loop.ttft, s.sweep().search.most_ttft);
      fit_whole(s, p);
      if (p.whole.gpus > 0) {
        EXPECT_LE(p.whole_loop.ttft, s.sweep().search.most_ttft);
      }
    }
    EXPECT_LT(aimed.front().output_per_s_gpu, free.front().output_per_s_gpu);
  }
  EXPECT_TRUE(aim(0.01).empty());
}

// A pair is a closed loop: whoever is not answered waits, is prefilled or is handed over.
TEST(Pools, UsersAreSomewhere) {
  const Study s = study("tensor");
  const std::vector<PoolPair> pairs = pool_pairs(s, 2);
  ASSERT_FALSE(pairs.empty());
  ServedWorkload load = *s.sweep().search.workload;
  for (const PoolPair& p : pairs) {
    // Of 1 + x GPUs one decodes.
    const double requests = p.output_per_s_gpu * (1 + p.prefill_gpus) / 512;
    EXPECT_NEAR(requests, p.prefill_gpus * p.prefill_requests_per_s_gpu(), 1e-9 * requests);
    // Decoding is no faster than its steps, and prompts no faster than the server's.
    EXPECT_LE(requests * 512, value(Metric::throughput, p.decode) * (1 + 1e-12));
    EXPECT_LE(p.loop.requests_per_s, p.prefill.server.most_per_s() * (1 + 1e-9));
    EXPECT_EQ(p.decode.time, Evaluator(s.study, AllReduceRule::fastest).simulate(p.decode.plan));
    EXPECT_GE(p.loop.ttft, p.path + p.prefill.server.prompt(1) + p.handoff + p.decode.time);
    const double beside = (p.path + p.loop.response + p.loop.room + p.handoff + p.decode.time).value;
    const double cycle = p.users / p.loop.requests_per_s;
    EXPECT_NEAR(cycle, beside + p.decode.time.value * (static_cast<double>(load.output) - 1),
                p.decode.time.value);
    EXPECT_GE(p.users, 1);
    EXPECT_LE(p.loop.together, p.users * (1 + 1e-9));
  }
}

// Any other number of users who share a server for prompts answers less per GPU.
TEST(Pools, TheRatioIsTheOneThatAnswersMost) {
  const Study s = study("tensor");
  for (const PoolPair& p : pool_pairs(s, 2)) {
    const double n = static_cast<double>(p.decode.plan.users());
    const AnswerServer answers{n, n, p.decode.time, 512};
    const double most = std::max(1.0, n * (128.0 - p.prefill.plan.gpus()) / p.decode.plan.gpus());
    for (double users = 1; users <= most; users *= 1.1) {
      const PoolLoop loop = pool_loop(p.prefill.server, answers, {users, p.path, p.handoff, kMeasuredRounds});
      const double gpus = p.prefill.plan.gpus() + users / n * p.decode.plan.gpus();
      if (users * p.prefill.plan.gpus() * 128 < n) continue;  // more servers for prompts than there are GPUs
      EXPECT_LE(512 * loop.requests_per_s / gpus, p.output_per_s_gpu * (1 + 1e-4)) << users << " " << p.users;
    }
  }
}

// Of so many users of the deployment and no others: their loop, played.
TEST(Pools, AFewUsersAreAPlayOfTheirLoop) {
  for (const int users : {1, 2, 3, 8, 64}) {
    const Study s = parse_scenario("q.yaml",
                                   "name: q\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\nengine: vllm\n"
                                   "precision: {weights: bf16, kv: bf16, math: bf16}\nstrategies: [tensor]\n"
                                   "gpus: [1, 2]\nworkload: {input: 1Ki tokens, output: 256 tokens, users: " +
                                       std::to_string(users) + "}\n",
                                   shipped_catalogs())
                        .studies[0];
    std::vector<PoolPair> pairs = pool_pairs(s, 2);
    ASSERT_FALSE(pairs.empty());
    PoolPair& p = pairs.front();
    fit_whole(s, p);
    SCOPED_TRACE(testing::Message() << users << " users, " << p.whole.prefill << " + " << p.whole.decode);
    EXPECT_EQ(p.prefill.step.prompts, 8);
    EXPECT_EQ(p.whole.decode, 1);
    EXPECT_EQ(p.decode.plan.users(), users);
    const double each = static_cast<double>(users) / p.whole.prefill;
    ASSERT_EQ(each, std::floor(each));
    const AnswerServer answers{each, each, p.decode.time, 256};
    const PoolLoad load{each, p.path, p.whole_handoff, 0};
    PoolPlay steady(p.prefill.server, answers, load), burst(p.prefill.server, answers, load);
    steady.steady(3000, each / p.whole.requests_per_s_gpu / p.whole.gpus);
    burst.burst();
    const double ttft = steady.ttft() + (burst.ttft() - steady.ttft()) / kMeasuredRounds;
    EXPECT_NEAR(p.whole_loop.ttft.value / ttft, 1, 0.04);
    EXPECT_NEAR(p.whole_loop.burst.value / burst.ttft(), 1, 0.02);
    EXPECT_NEAR(p.whole.requests_per_s_gpu * p.whole.gpus / p.whole.prefill / steady.requests_per_s(), 1,
                0.01);
    EXPECT_LE(p.whole_loop.together, each);
    const Seconds full = p.prefill.server.prompt(8);
    if (users < 4) {
      EXPECT_LT(p.whole_loop.response, full);
    }
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
    EXPECT_GT(p.loop.room + p.loop.response, Seconds(1));
    // Of the turns of answers behind each other one of a burst waits for half, one of a loop for all but its
    // own.
    EXPECT_GT(p.loop.burst, p.loop.room / 2);
  }
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

// A pair that the GPUs asked for do not hold is none.
TEST(Pools, P22PairsFitTheGpusAskedFor) {
  int smaller = 0;
  for (const int most : {2, 3, 4, 8}) {
    const Study s = study("tensor", fmt::format("constraints: {{pool_gpus: {}}}\n", most));
    EXPECT_EQ(most_pool_gpus(s), most);
    const SweepAnswer answer = answer_sweep(
        s, {}, [](auto, auto) {}, [] { return true; });
    ASSERT_FALSE(answer.pools.empty()) << most;
    for (const PoolPair& p : answer.pools) {
      EXPECT_LE(p.prefill.plan.gpus() + p.decode.plan.gpus(), most);
      ASSERT_GT(p.whole.gpus, 0);
      EXPECT_LE(p.whole.gpus, most);
      smaller += p.whole.gpus < most ? 1 : 0;
    }
  }
  EXPECT_TRUE(pool_pairs(study("tensor", "constraints: {pool_gpus: 1}\n"), 1).empty());
  // Plans of all GPUs are faster than any that leaves room for prompts, and hide none.
  const Study eight = study("tensor", "constraints: {pool_gpus: 8}\n");
  int largest = 0;
  for (const PoolPair& p : pool_pairs(eight, 1)) largest = std::max(largest, p.decode.plan.gpus());
  EXPECT_EQ(largest, 4);
  EXPECT_EQ(most_pool_gpus(study("tensor", "constraints: {pool_gpus: 100000}\n")), 128);
  EXPECT_GT(smaller, 0);
}

TEST(Pools, P22GpusOfPoolsAreOfAWorkload) {
  try {
    parse_scenario("q.yaml",
                   "name: q\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\nengine: vllm\ncontext: 8Ki tokens\n"
                   "strategies: [tensor]\ngpus: [1]\nbatch: [1]\nconstraints: {pool_gpus: 8}\n",
                   shipped_catalogs());
    ADD_FAILURE();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("q.yaml:9:26: constraints.pool_gpus is for sweeps with a workload"),
              std::string::npos)
        << e.what();
  }
}

struct Replica {
  int gpus = 1;
  double requests_per_s = 0;
};

// Against every pair of numbers of replicas.
void expect_smallest(const PoolLimits& limits, double matched, const PoolRate& rate, int& enough, int& none) {
  int fewest = 0;
  double best = 0;
  for (int b = 1; b <= limits.decoders; ++b) {
    for (int a = 1; a * limits.prefill_gpus + b * limits.decode_gpus <= limits.gpus; ++a) {
      const int all = a * limits.prefill_gpus + b * limits.decode_gpus;
      const double got = rate(a, b).value_or(0) / all;
      best = std::max(best, got);
      if (got >= 0.95 * matched && (fewest == 0 || all < fewest)) fewest = all;
    }
  }
  const WholePools w = whole_pools(limits, matched, rate);
  EXPECT_EQ(w.gpus > 0, best > 0);
  enough += fewest > 0;
  none += best == 0;
  if (best == 0) return;
  EXPECT_LE(w.gpus, limits.gpus);
  EXPECT_EQ(w.gpus, w.prefill * limits.prefill_gpus + w.decode * limits.decode_gpus);
  EXPECT_NEAR(w.requests_per_s_gpu, *rate(w.prefill, w.decode) / w.gpus, 1e-12);
  if (fewest > 0) {
    EXPECT_EQ(w.gpus, fewest);
  } else {
    EXPECT_NEAR(w.requests_per_s_gpu, best, 1e-9);
  }
}

TEST(Pools, P22WholeReplicasAreTheSmallestThatAnswerEnough) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> rate(0.2, 30);
  std::uniform_int_distribution<int> power(0, 3), gpus(1, 70), least(1, 3);
  int enough = 0, none = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    SCOPED_TRACE(trial);
    const Replica prefill{1 << power(random), rate(random)}, decode{1 << power(random), rate(random)};
    const double matched = 1 / (prefill.gpus / prefill.requests_per_s + decode.gpus / decode.requests_per_s);
    // A target of TTFT rules out too few for prompts.
    const int of_each = least(random);
    const auto both = [&](int a, int b) -> std::optional<double> {
      if (a * of_each < b) return std::nullopt;
      return std::min(a * prefill.requests_per_s, b * decode.requests_per_s);
    };
    expect_smallest({prefill.gpus, decode.gpus, gpus(random), 70}, matched, both, enough, none);
  }
  EXPECT_GT(std::min({enough, none, 3000 - enough - none}), 50);
}

// The same of closed loops, whose rates are no minimum of two.
TEST(Pools, P22WholeReplicasOfLoopsAreTheSmallest) {
  std::mt19937 random(8);
  std::uniform_real_distribution<double> part(0, 1);
  int enough = 0, none = 0;
  for (int trial = 0; trial < 40; ++trial) {
    SCOPED_TRACE(trial);
    PromptServer prefill;
    const double each = 0.02 + part(random);
    prefill.times = {{1, Seconds(0.02 + each)}, {4, Seconds(0.02 + 4 * each)}};
    const double n = 1 + std::floor(40 * part(random));
    const AnswerServer decode{n, n, Seconds(0.01), 100 + 1000 * part(random)};
    const PoolLimits limits{1 + trial % 4, 1 + trial % 3, 40, 40};
    const auto rate = [&](int a, int b) -> std::optional<double> {
      const double users = std::max(1.0, n * b / a);
      const PoolLoop loop = pool_loop(prefill, decode, {users, Seconds(0.02), Seconds(0.01), 0});
      return loop.requests_per_s * n * b / users;
    };
    double matched = 0;
    for (double y = 0.02; y < 20; y *= 1.05) {
      const double users = std::max(1.0, n / y);
      const PoolLoop loop = pool_loop(prefill, decode, {users, Seconds(0.02), Seconds(0.01), 0});
      matched =
          std::max(matched, loop.requests_per_s * n / users / (y * limits.prefill_gpus + limits.decode_gpus));
    }
    expect_smallest(limits, matched, rate, enough, none);
  }
  EXPECT_GT(enough, 20);
}

TEST(Pools, AnswersInWholeReplicasAreThoseOfTheirLoop) {
  const SweepAnswer answer = answer_sweep(
      study("tensor"), {}, [](auto, auto) {}, [] { return true; });
  ASSERT_FALSE(answer.pools.empty());
  for (const PoolPair& p : answer.pools) {
    ASSERT_GT(p.whole.gpus, 0);
    EXPECT_LE(p.whole_output_per_s_gpu, p.output_per_s_gpu * (1 + 1e-4));
    EXPECT_GE(p.whole_output_per_s_gpu, 0.95 * p.output_per_s_gpu);
    const double users = static_cast<double>(p.decode.plan.users() * p.whole.decode) / p.whole.prefill;
    if (users >= 1) {
      EXPECT_NEAR(p.whole_output_per_s_gpu * p.whole.gpus,
                  512 * p.whole_loop.requests_per_s * p.whole.prefill, 1e-6 * p.whole_output_per_s_gpu);
    }
    EXPECT_LE(p.whole_loop.prefill_busy, 1);
    EXPECT_LE(p.whole_loop.decode_busy, 1);
    // Errors of both pools, by their parts of the GPUs; of whole replicas those of the slower one.
    const ErrorTerms &decode = answer.pool_decoders.of(p.decode.plan).errors, both = pair_errors(answer, p);
    ASSERT_FALSE(p.prefill.errors.all().empty());
    const ErrorRange a = time_error(decode), b = time_error(p.prefill.errors), ab = time_error(both);
    EXPECT_LE(ab.high, std::max(a.high, b.high));
    EXPECT_GT(ab.high, 0);
    const bool decodes = p.whole_loop.decode_busy >= p.whole_loop.prefill_busy;
    EXPECT_EQ(whole_errors(answer, p), decodes ? decode : p.prefill.errors);
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
