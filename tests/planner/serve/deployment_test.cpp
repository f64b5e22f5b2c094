// The search for the cheapest deployment [P35]: against playing everything, its bounds against plays.
#include "planner/studies/deployment.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "planner/scenario/shipped.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/deployment_bounds.hpp"
#include "planner/studies/plan_answer.hpp"
#include "planner/studies/plan_load.hpp"
#include "planner/studies/simulated_plan.hpp"

namespace shardline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Study study_of(const std::string& model, const std::string& system, const std::string& engine, int gpus,
               long long input, long long output) {
  PlanQuestion q;
  q.model = model;
  q.system = system;
  q.engine = engine;
  q.gpus = gpus;
  q.input = input;
  q.output = output;
  return asked_plan(q, shipped_catalogs()).study;
}

DeploymentAnswer found(const Study& study, const DeploymentQuestion& q) {
  return cheapest_deployment(study, q, [](std::uint64_t, std::uint64_t) {});
}

std::string text_of(const PlayedDeployment& d) {
  const ServiceQuestion& q = d.answer.question;
  std::string out = fmt::format("{} x {} used {:a} goodput {:a}", q.replicas, to_string(q.plan), d.used,
                                d.answer.load.goodput);
  if (q.prefill) out += fmt::format(" behind {} x {}", q.prefill->replicas, to_string(q.prefill->plan));
  for (const std::string& knob : q.knobs) out += " " + knob;
  return out;
}

std::vector<std::string> texts(const std::vector<PlayedDeployment>& of) {
  std::vector<std::string> out;
  for (const PlayedDeployment& d : of) out.push_back(text_of(d));
  return out;
}

std::uint64_t sum(const DeploymentCertificate& c) {
  std::uint64_t out = c.met + c.dearer;
  for (const std::uint64_t n : c.ruled_out) out += n;
  return out;
}

struct RandomCase {
  std::string model, engine;
  DeploymentQuestion q;
  long long input, output;
};

RandomCase random_case(std::mt19937_64& rng) {
  const auto one_of = [&](auto... values) {
    const std::array all{values...};
    return all[rng() % all.size()];
  };
  RandomCase c;
  c.engine = one_of("vllm", "sglang", "trtllm");
  c.model = c.engine != "trtllm" && rng() % 2 == 0 ? "gpt-oss-20b" : "llama-3.1-8b";
  c.input = one_of(300, 2000, 6000);
  c.output = one_of(20, 150, 400);
  c.q.most_gpus = one_of(2, 4, 4);
  ServiceQuestion& load = c.q.load;
  load.input = c.input;
  load.output = c.output;
  load.lengths = one_of(LengthLaw::equal, LengthLaw::drawn);
  load.requests = 150 + rng() % 200;
  load.rate = one_of(0.5, 3.0, 10.0, 30.0, 100.0);
  load.seed = rng() % 1000;
  load.router = one_of(Router::round_robin, Router::least_kv);
  if (c.engine != "trtllm" && c.model == "llama-3.1-8b")
    c.q.pools = one_of(PoolsAsked::any, PoolsAsked::any, PoolsAsked::two);
  load.targets.push_back({Latency::ttft, one_of(0.5, 0.9, 0.99), Seconds(one_of(0.03, 0.1, 0.4, 2.0))});
  if (rng() % 4 > 0)
    load.targets.push_back({Latency::tpot, one_of(0.5, 0.9), Seconds(one_of(0.004, 0.008, 0.015, 0.04))});
  if (rng() % 4 == 0) load.targets.push_back({Latency::e2e, 0.9, Seconds(one_of(1.0, 4.0))});
  if (rng() % 4 == 0) load.targets.push_back({Latency::itl, 0.99, Seconds(one_of(0.01, 0.05))});
  if (c.engine == "vllm" && rng() % 3 == 0) c.q.knobs = knob_settings({"max_num_batched_tokens=512,8192"});
  return c;
}

// Answers are all of the work, or only gaps between tokens, which no request alone tells of.
RandomCase made_case(bool gaps) {
  RandomCase c{"llama-3.1-8b", "vllm", {}, 300, gaps ? 50 : 1500};
  c.q.most_gpus = 2;
  c.q.load.input = c.input;
  c.q.load.output = c.output;
  c.q.load.requests = 300;
  c.q.load.rate = gaps ? 1 : 200;
  c.q.load.targets =
      parse_targets("t", gaps ? "ttft p99 100 s, itl p99 1 ms" : "ttft p90 2 s, tpot p90 8 ms");
  return c;
}

// Pruned and exhaustive searches answer the same, and each candidate is counted once.
TEST(Deployment, P35PruningLeavesTheAnswer) {
  std::mt19937_64 rng(20);
  std::map<RuledOut, std::uint64_t> by;
  std::map<std::string, std::uint64_t> pairs, behind;  // of engines
  int met = 0;
  constexpr int kRandom = 30;
  for (int i = 0; i < kRandom + 2; ++i) {
    RandomCase c = i < kRandom ? random_case(rng) : made_case(i > kRandom);
    SCOPED_TRACE(fmt::format("{}: {} {} {}+{} {}/s {} GPUs", i, c.model, c.engine, c.input, c.output,
                             c.q.load.rate, c.q.most_gpus));
    const Study study = study_of(c.model, "h100-hgx", c.engine, c.q.most_gpus, c.input, c.output);
    const DeploymentAnswer pruned = found(study, c.q);
    c.q.exhaustive = true;
    const DeploymentAnswer all = found(study, c.q);
    EXPECT_EQ(texts(pruned.cheapest), texts(all.cheapest));
    EXPECT_EQ(pruned.nearest.has_value(), pruned.cheapest.empty());
    EXPECT_EQ(all.nearest.has_value(), all.cheapest.empty());
    if (pruned.nearest) {
      EXPECT_FALSE(pruned.nearest->answer.load.met);
      EXPECT_LE(pruned.nearest->gpus(), c.q.most_gpus);
    }
    EXPECT_EQ(sum(pruned.certificate), pruned.certificate.candidates);
    EXPECT_EQ(pruned.certificate.candidates, all.certificate.candidates);
    for (std::size_t r = 0; r < kRuledOut; ++r)
      by[static_cast<RuledOut>(r)] += pruned.certificate.ruled_out[r];
    met += pruned.cheapest.empty() ? 0 : 1;
    pairs[c.engine] += pruned.certificate.pairs;
    for (const PlayedDeployment& d : pruned.cheapest) behind[c.engine] += d.answer.question.prefill ? 1 : 0;
    EXPECT_EQ(pruned.no_pairs.empty(), pruned.certificate.pairs > 0);
  }
  for (const char* const engine : {"vllm", "sglang", "trtllm"}) {
    EXPECT_GT(pairs[engine], 0U) << engine;
    EXPECT_GT(behind[engine], 0U) << engine;
  }
  EXPECT_GE(met, 6);
  EXPECT_LE(met, 26);
  for (const auto& [reason, n] : by) EXPECT_GT(n, 0U) << to_string(reason);  // each was tried
}

// What a bound rules out misses when it is played, however few replicas were asked of.
TEST(Deployment, P35WhatABoundRulesOutMisses) {
  std::mt19937_64 rng(4);
  int ruled_out = 0;
  for (int i = 0; i < 60; ++i) {
    const RandomCase c = random_case(rng);
    const Study study = study_of(c.model, "h100-hgx", c.engine, 1, c.input, c.output);
    DeploymentQuestion q = c.q;
    q.most_gpus = 1;
    const auto step = [](std::uint64_t, std::uint64_t) {};
    const std::function<void(std::uint64_t, std::uint64_t)> asks = step;
    ServiceQuestion load = q.load;
    load.plan = possible_plan(study, "tensor:tpa=1,tpf=1");
    RequestService service(study, load, asks);
    const DeploymentBounds bounds(service, service.knobs({}), service.offered(), load,
                                  study.study.engine->host.path);
    for (const int replicas : {1, 2, 4}) {
      const auto reason = bounds.rules_out(replicas);
      const auto played = service.answer({replicas}, false);
      ASSERT_TRUE(played);
      if (reason) {
        EXPECT_FALSE(played->load.met) << to_string(*reason) << " " << replicas;
      }
      ruled_out += reason ? 1 : 0;
      for (const TargetResult& t : played->load.targets) {
        if (t.target.of == Latency::ttft) {
          EXPECT_GE(t.measured, bounds.least_ttft(t.target.quantile).value);
        }
        if (t.target.of == Latency::tpot) {
          EXPECT_GE(t.measured, bounds.least_tpot(t.target.quantile).value);
        }
      }
      // A play that gives up would have missed.
      const auto early = service.answer({replicas}, true);
      if (!early) {
        EXPECT_FALSE(played->load.met);
      }
      if (early) {
        EXPECT_EQ(early->load.seconds, played->load.seconds);
      }
    }
  }
  EXPECT_GT(ruled_out, 20);
}

// The same of each half of a pair, whatever the other half is.
TEST(Deployment, P35WhatABoundOfAHalfRulesOutMisses) {
  std::mt19937_64 rng(8);
  std::map<std::string, int> prompts, answers;  // of engines
  const std::function<void(std::uint64_t, std::uint64_t)> step = [](std::uint64_t, std::uint64_t) {};
  for (int i = 0; i < 80; ++i) {
    RandomCase c = random_case(rng);
    c.engine = i % 2 == 0 ? "vllm" : "sglang";
    c.model = "llama-3.1-8b";
    const Study study = study_of(c.model, "h100-hgx", c.engine, 4, c.input, c.output);
    ServiceQuestion load = c.q.load;
    load.plan = possible_plan(study, "tensor:tpa=1,tpf=1");
    RequestService decode(study, load, step, nullptr, ServerOf::half);
    RequestService prefill(study, load, step, nullptr, ServerOf::half);
    const auto bounds_of = [&](PairRole role, BoundedWork work) {
      return DeploymentBounds(decode, decode.knobs({}, role), decode.offered(), load,
                              study.study.engine->host.path, work);
    };
    const DeploymentBounds of_prefill = bounds_of(PairRole::prefills, BoundedWork::prompts);
    const DeploymentBounds of_decode = bounds_of(PairRole::decodes, BoundedWork::answers);
    RequestService::Pools pools;
    pools.prefill = &prefill;
    pools.rates = handoff_rates({study.study, load.plan}, {study.study, load.plan}, c.input);
    for (const auto& [a, b] : {std::pair(1, 1), {1, 3}, {3, 1}}) {
      pools.prefill_replicas = a;
      pools.replicas = b;
      const auto of_prompts = of_prefill.rules_out_prompts(a), of_answers = of_decode.rules_out_answers(b);
      if (!of_prompts && !of_answers) continue;
      const auto played = decode.answer(pools, false);
      ASSERT_TRUE(played);
      EXPECT_FALSE(played->load.met) << i << " " << a << "+" << b;
      prompts[c.engine] += of_prompts ? 1 : 0;
      answers[c.engine] += of_answers ? 1 : 0;
    }
  }
  for (const char* const engine : {"vllm", "sglang"}) {
    EXPECT_GT(prompts[engine], 10) << engine;
    EXPECT_GT(answers[engine], 10) << engine;
  }
}

// What was found is what serve plays.
void expect_served_alike(const Study& study, const DeploymentQuestion& q, const PlayedDeployment& found) {
  ServiceQuestion again = q.load;
  const ServiceQuestion& best = found.answer.question;
  again.plan = best.plan;
  again.replicas = best.replicas;
  again.prefill = best.prefill;
  again.knobs = best.knobs;
  const ServiceAnswer served = serve_requests(study, again, [](std::uint64_t, std::uint64_t) {});
  EXPECT_TRUE(served.load.met);
  EXPECT_EQ(served.load.seconds, found.answer.load.seconds);
  EXPECT_EQ(served.load.goodput, found.answer.load.goodput);
}

// Prompts on small replicas and answers on a large one need fewer GPUs than replicas that do both; what was
// found is what serve plays.
TEST(Deployment, P35PairsMayBeCheaper) {
  const Study study = study_of("llama-3.1-70b", "h100-hgx", "vllm", 32, 8192, 512);
  DeploymentQuestion q;
  q.most_gpus = 32;
  q.load.input = 8192;
  q.load.output = 512;
  q.load.rate = 4;
  q.load.requests = 500;
  q.load.targets = parse_targets("t", "ttft p90 2 s, tpot p90 35 ms");
  q.pools = PoolsAsked::one;
  const DeploymentAnswer one = found(study, q);
  q.pools = PoolsAsked::any;
  const DeploymentAnswer any = found(study, q);
  ASSERT_FALSE(one.cheapest.empty() || any.cheapest.empty());
  EXPECT_LT(any.cheapest.front().gpus(), one.cheapest.front().gpus());
  EXPECT_EQ(one.certificate.pairs, 0U);
  EXPECT_EQ(sum(any.certificate), any.certificate.candidates);
  const PlayedDeployment& best = any.cheapest.front();
  ASSERT_TRUE(best.answer.question.prefill);
  expect_served_alike(study, q, best);
}

// Under SGLang ranks that have prompts alone may share them. What was found is what serve plays.
TEST(Deployment, P35PromptsOfPairsMayBeSharedByRanks) {
  const Study study = study_of("deepseek-v3.2", "h200-hgx", "sglang", 32, 65536, 512);
  DeploymentQuestion q;
  q.most_gpus = 32;
  q.load.input = 65536;
  q.load.output = 512;
  q.load.rate = 0.1;
  q.load.requests = 100;
  q.load.targets = parse_targets("t", "ttft p90 10 s, tpot p90 30 ms");
  q.pools = PoolsAsked::two;
  const DeploymentAnswer found_pairs = found(study, q);
  EXPECT_GT(found_pairs.certificate.plans, 0U);
  EXPECT_EQ(sum(found_pairs.certificate), found_pairs.certificate.candidates);
  ASSERT_FALSE(found_pairs.cheapest.empty());
  int shared = 0;
  for (const PlayedDeployment& d : found_pairs.cheapest) {
    const ServiceQuestion& best = d.answer.question;
    ASSERT_TRUE(best.prefill);
    EXPECT_TRUE(strategy(best.plan.strategy).decodes);
    if (strategy(best.prefill->plan.strategy).decodes) continue;
    ++shared;
    expect_served_alike(study, q, d);
  }
  EXPECT_GT(shared, 0);
}

// 2,000 tokens in and 100 out.
DeploymentQuestion small_question(int gpus, double rate, std::uint64_t requests, const std::string& targets) {
  DeploymentQuestion q;
  q.most_gpus = gpus;
  q.load.input = 2000;
  q.load.output = 100;
  q.load.rate = rate;
  q.load.requests = requests;
  q.load.targets = parse_targets("t", targets);
  return q;
}

TEST(Deployment, P35TheSameForAnyNumberOfThreads) {
  const Study study = study_of("llama-3.1-8b", "h100-hgx", "vllm", 4, 2000, 100);
  DeploymentQuestion q = small_question(4, 12, 300, "ttft p90 300 ms, tpot p90 20 ms");
  std::vector<std::vector<std::string>> of_threads;
  for (const int threads : {1, 2, 5}) {
    q.threads = threads;
    const DeploymentAnswer a = found(study, q);
    of_threads.push_back(texts(a.cheapest));
    of_threads.back().push_back(fmt::format("{}", fmt::join(a.certificate.ruled_out, " ")));
  }
  EXPECT_FALSE(of_threads[0].empty());
  EXPECT_EQ(of_threads[0], of_threads[1]);
  EXPECT_EQ(of_threads[0], of_threads[2]);
}

// The best of many that were tried with one draw is played with others: of a target that it barely keeps some
// of these miss.
TEST(Deployment, P35TheFirstIsPlayedWithOtherDraws) {
  const Study study = study_of("llama-3.1-8b", "h100-hgx", "vllm", 4, 2000, 100);
  DeploymentQuestion q = small_question(4, 12, 300, "ttft p99 10 s, tpot p99 10 s");
  const DeploymentAnswer easy = found(study, q);
  ASSERT_TRUE(easy.others);
  EXPECT_EQ(easy.others->draws, 8);
  EXPECT_EQ(easy.others->kept, 8);
  EXPECT_LT(easy.others->used, 1);
  // As it is in the question's own draw.
  const TargetResult& own = easy.cheapest.front().answer.load.targets.front();
  q.load.targets.front().most = Seconds(own.measured * 1.0001);
  q.load.targets.resize(1);
  const DeploymentAnswer bare = found(study, q);
  ASSERT_TRUE(bare.others);
  ServiceQuestion again = bare.cheapest.front().answer.question;
  int kept = 0;
  for (int i = 0; i < 8; ++i) {
    ++again.seed;
    kept += serve_requests(study, again, [](std::uint64_t, std::uint64_t) {}).load.met ? 1 : 0;
  }
  EXPECT_EQ(bare.others->kept, kept);
  EXPECT_LT(kept, 8);
  EXPECT_GT(bare.others->used, 1);
}

// A setting of servers that decode for others is none of one pool, and of pairs those have it alone.
TEST(Deployment, P35SettingsOfOneHalfAreOfPairs) {
  const Study study = study_of("llama-3.1-8b", "h100-hgx", "sglang", 2, 2000, 100);
  DeploymentQuestion q = small_question(2, 4, 100, "ttft p90 1 s");
  q.knobs = knob_settings({"num_reserved_decode_tokens=100,512"});
  const DeploymentAnswer a = found(study, q);
  EXPECT_TRUE(a.knobs_refused.empty());
  EXPECT_EQ(a.certificate.plans, 0U);
  ASSERT_EQ(a.cheapest.size(), 2U);
  for (const PlayedDeployment& d : a.cheapest) {
    ASSERT_TRUE(d.answer.question.prefill);
    EXPECT_TRUE(d.answer.question.prefill->knobs.empty());
    EXPECT_EQ(d.answer.question.knobs.size(), 1U);
    expect_served_alike(study, q, d);
  }
  q.pools = PoolsAsked::one;
  EXPECT_THROW(found(study, q), UserError);
}

TEST(Deployment, P35KnobsAreAllCombinations) {
  EXPECT_THAT(knob_settings({}), ElementsAre(std::vector<std::string>{}));
  EXPECT_THAT(knob_settings({"a=1,2", "b=x"}),
              ElementsAre(ElementsAre("a=1", "b=x"), ElementsAre("a=2", "b=x")));
  EXPECT_THAT(knob_settings({"a"}), ElementsAre(ElementsAre("a")));  // its reader says what is wrong
}

TEST(Deployment, P35KnobsThatNoPlanHasAreAnError) {
  const Study study = study_of("llama-3.1-8b", "h100-hgx", "vllm", 1, 2000, 100);
  DeploymentQuestion q = small_question(1, 1, 20, "ttft p90 300 ms");
  q.knobs = {{"max_num_sequences=4"}};
  try {
    found(study, q);
    ADD_FAILURE();
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("max_num_seqs"));
  }
  q.knobs.push_back({});
  EXPECT_THAT(found(study, q).knobs_refused, ElementsAre(ElementsAre("max_num_sequences=4")));
}

}  // namespace
}  // namespace shardline
