// [P29] Steps that draft under an engine: sizes of its graphs, what steps with prompts do, what is served,
// and how it is told.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "planner/engines/draft_rules.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/search/memory.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/studies/service_knobs.hpp"
#include "tests/planner/launchable.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using namespace testing;

Case r1_on_hopper(const std::string& engine) {
  Case c = case_of(engine, {kR1, "h200-hgx", "", accepts_drafts});
  c.precision.weights = Dtype::fp8_block;
  c.precision.math = Dtype::fp8;
  return c;
}

double steps_of_few(const Case& c, const Plan& p, long long output) {
  return steps_of_answer(c.acceptance->at(p[kDrafts]), output - 1);
}

// vLLM's own way, size by size (config/compilation.py, adjust_cudagraph_sizes_for_spec_decode).
TEST(EngineDrafts, P29VllmsSizesAreMultiplesOfARequestsTokens) {
  const auto e = profile("vllm");
  for (long long k = 1; k <= 8; ++k) {
    std::set<long long> sizes;
    for (const long long size : e->graphs) {
      long long rounded = size;
      while (rounded % (1 + k) != 0) ++rounded;
      if (rounded <= 512) sizes.insert(rounded);
    }
    for (long long requests = 1; requests <= 600; ++requests) {
      const auto at = sizes.lower_bound(requests * (1 + k));
      EXPECT_EQ(e->has_graph(requests, 1 + k), at != sizes.end()) << requests << " with " << k;
      EXPECT_EQ(e->padded(requests, 1 + k), at == sizes.end() ? requests : *at / (1 + k)) << requests;
    }
  }
  EXPECT_EQ(e->padded(9), 16);
  EXPECT_EQ(e->padded(9, 4), 10);   // 36 tokens in a graph of 40
  EXPECT_EQ(e->padded(10, 3), 11);  // 30 in one of 32, which became 33
  EXPECT_TRUE(e->has_graph(256, 2));
  EXPECT_FALSE(e->has_graph(257, 2));
}

TEST(EngineDrafts, P29OthersHaveSizesOfRequests) {
  const auto sglang = profile("sglang"), trtllm = profile("trtllm");
  for (const long long each : {2, 4, 9}) {
    EXPECT_EQ(sglang->padded(9, each), 10);  // server_args.py:3348: less padding for small batches
    EXPECT_EQ(sglang->padded(3, each), 3);
    EXPECT_EQ(sglang->padded(257, each), 272);
    EXPECT_FALSE(sglang->has_graph(513, each));
    EXPECT_EQ(trtllm->padded(9, each), trtllm->padded(9));
  }
  EXPECT_EQ(sglang->padded(9), 12);
  EXPECT_EQ(sglang->padded(3), 4);
}

// Rows of a step are whole requests of its graph.
TEST(EngineDrafts, P29RowsArePaddedAsTheEngineDoes) {
  const Case c = r1_on_hopper("vllm");
  const auto rows = [&](const std::string& options) {
    const std::vector<Op> heads = ops_named(lowered(c, "tensor:tpa=8,tpf=8," + options), "lm head");
    return std::get<GemmShape>(heads.front().shape).rows;
  };
  EXPECT_EQ(rows("batch=10"), 16);
  EXPECT_EQ(rows("batch=10,drafts=2"), 33);
}

// Which passes a step with prompts has: under SGLang the first alone, the others are of the step that
// decodes.
TEST(EngineDrafts, P29StepsWithPromptsDraftAsTheEngineDoes) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    Case c = r1_on_hopper(engine);
    const Plan p = parse_plan("tensor:tpa=8,tpf=8,drafts=4");
    EXPECT_EQ(later_passes(c, p), 3);
    c.batch = prefill_batch({{0, 1000}});
    EXPECT_EQ(later_passes(c, p), std::string(engine) == "sglang" ? 0 : 3);
    Plan none = p;
    none.set(kDrafts, 0);
    Evaluator e(c);
    EXPECT_GT(e.simulate(p), e.simulate(none)) << "the module computes prompts, too";
  }
}

// The host works once a step, which yields several tokens: beside its kernels, or between them.
TEST(EngineDrafts, P29TheHostWorksOnceAStep) {
  const Plan none = parse_plan("tensor:tpa=8,tpf=8,batch=8"),
             some = parse_plan("tensor:tpa=8,tpf=8,batch=8,drafts=3");
  const auto hosts = [](const Case& c, const Plan& p) {
    Schedule s;
    lower(s, c, p);
    const std::vector<double> runs = executions(s);
    double out = 0;
    for (std::size_t b = 0; b < s.blocks.size(); ++b) {
      const Block& block = s.blocks[BlockIndex(static_cast<std::uint32_t>(b))];
      for (OpIndex i = block.first; i < block.last; ++i) out += s.ops[i].part == Part::host ? runs[b] : 0;
    }
    return out;
  };
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    Case c = r1_on_hopper(engine);
    Evaluator e(c);
    e.simulate(none);
    const Seconds beside = e.host_work();
    const Seconds step = e.simulate(some) * tokens_per_step(c, some);
    EXPECT_EQ(e.host_work(), beside);
    EXPECT_GE(step, beside);
    EngineProfile waits = *c.engine;
    waits.host_waited_for = true;
    c.engine = std::make_shared<const EngineProfile>(waits);
    EXPECT_EQ(hosts(c, none), 1);
    EXPECT_EQ(hosts(c, some), 1) << "a pass of the module has none of its own";
  }
}

// One layer more of weights and of the cache, in the pool of the others.
TEST(EngineDrafts, P29AModuleTakesMemoryUnderAnEngine) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    const Case c = r1_on_hopper(engine);
    const Plan none = parse_plan("tensor:tpa=8,tpf=8,batch=16"),
               some = parse_plan("tensor:tpa=8,tpf=8,batch=16,drafts=3");
    const MemoryUse without = memory_use(c, none), with = memory_use(c, some);
    EXPECT_GT(with.weights, without.weights);
    const double layers = c.model.layers();
    EXPECT_NEAR(with.kv / without.kv, (layers + 1) / layers, 1e-3);
    EXPECT_LE(largest_batch(c, some, 100'000), largest_batch(c, none, 100'000));
  }
}

// Users of a loop, step by step: a step computes one prompt while others wait (first), or decodes for all, of
// whom each gets the tokens that its drafts yield.
struct PlayedDrafts {
  double tpot = 0, requests_per_s = 0;
};
PlayedDrafts played_drafts(const AcceptedLength& length, int users, int output, double decode, double prompt,
                           double path) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> part;
  std::exponential_distribution<double> away(1 / path);
  struct User {
    double asks = 0, first = -1;
    int left = 0;  // tokens; 0: waits for its prompt, or is on its way
  };
  std::vector<User> all(static_cast<std::size_t>(users));
  for (User& u : all) u.asks = part(random) * output * decode;
  double now = 0, waited = 0, from = 0;
  long long answers = 0, counted = 0;
  while (counted < 4000) {
    const auto next = std::min_element(all.begin(), all.end(), [](const User& a, const User& b) {
      return (a.left > 0 ? 1e30 : a.asks) < (b.left > 0 ? 1e30 : b.asks);
    });
    const bool any = std::any_of(all.begin(), all.end(), [](const User& u) { return u.left > 0; });
    if (next->left == 0 && next->asks <= now) {
      now += prompt;
      next->first = now;
      next->left = output - 1;
      continue;
    }
    if (!any) {
      now = next->asks;
      continue;
    }
    now += decode;
    for (User& u : all) {
      if (u.left == 0) continue;
      int tokens = 1;
      const double drawn = part(random);
      while (tokens <= length.k && drawn < length.survival[static_cast<std::size_t>(tokens - 1)]) ++tokens;
      u.left = std::max(0, u.left - tokens);
      if (u.left > 0) continue;
      if (++answers > 1000) {
        if (counted == 0) from = now;
        ++counted;
        waited += (now - u.first) / (output - 1);
      }
      u.asks = now + away(random);
    }
  }
  return {waited / static_cast<double>(counted), static_cast<double>(counted) / (now - from)};
}

TEST(EngineDrafts, P29ServedTpotIsThatOfAPlay) {
  EngineProfile e;
  e.prefill = PrefillPolicy::first;
  e.host.path = Seconds(0.02);
  for (const int k : {1, 3, 7}) {
    for (const int users : {1, 8, 32}) {
      SCOPED_TRACE(fmt::format("{} drafts, {} users", k, users));
      const AcceptanceCurve curve(AcceptanceForm{0.8, 0.9});
      const AcceptedLength length = curve.at(k);
      constexpr int kOutput = 200;
      constexpr double kDecode = 0.01, kPrompt = 0.015;
      const double steps = steps_of_answer(length, kOutput - 1);
      ServedTimes times;
      times.room = users;
      times.decode = Seconds(kDecode);
      times.prompt = times.prompt_added = Seconds(kPrompt);
      ServedLoad load;
      load.input = 1000;
      load.output = 1 + steps;
      load.users = users;
      const Served served = steady_serving(e, load, times);
      const PlayedDrafts play = played_drafts(length, users, kOutput, kDecode, kPrompt, 0.02);
      EXPECT_NEAR(served.tpot.value * steps / (kOutput - 1) / play.tpot, 1, 0.03);
      EXPECT_NEAR(served.requests_per_s / play.requests_per_s, 1, 0.03);
    }
  }
}

// What is served of a plan: steps of its own, answers of fewer steps than tokens.
TEST(EngineDrafts, P29AServedPlanCountsSteps) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    Case c = r1_on_hopper(engine);
    ServedWorkload load;
    load.input = 1024;
    load.output = 512;
    load.users = 8;
    ServedEvaluator e(c, AllReduceRule::fastest);
    const Plan none = parse_plan("tensor:tpa=8,tpf=8"), some = parse_plan("tensor:tpa=8,tpf=8,drafts=3");
    const ServedPlan without = e.of(none, load), with = e.of(some, load);
    // The same step, asked of an evaluator.
    Case step = c;
    step.served = {load.input, load.output};
    step.batch = with.decode;
    Evaluator of_step(step);
    const double token = of_step.simulate(some).value, yielded = tokens_per_step(step, some);
    EXPECT_NEAR(with.times.decode.value / (token * yielded), 1, 1e-12);
    EXPECT_GT(with.times.decode, without.times.decode);
    // Prompts take longer, by what the module computes of them, and TPOT is no less than the step's.
    EXPECT_GT(with.times.prompt, without.times.prompt);
    const double steps = steps_of_few(c, some, load.output);
    EXPECT_GE(with.served.tpot.value, with.times.decode.value * steps / (load.output - 1) * (1 - 1e-12));
    EXPECT_GE(with.served.tpot.value, token);
    EXPECT_LT(with.served.tpot, without.served.tpot) << "3 drafts of which 2.6 tokens come pay at 8 users";
    // By Little's law: who decodes is there for as long as an answer takes.
    EXPECT_NEAR(with.served.decoding, with.served.requests_per_s * with.served.tpot.value * (load.output - 1),
                1e-6);
    // Nobody accepts: as many steps as tokens, each with its drafts.
    c.acceptance = std::make_shared<const AcceptanceCurve>(AcceptanceForm{1e-6, 1});
    ServedEvaluator vain(c, AllReduceRule::fastest);
    EXPECT_GT(vain.of(some, load).served.tpot, vain.of(none, load).served.tpot);
  }
}

// Equal answers take unequal numbers of steps, so that users who began together drift apart.
TEST(EngineDrafts, P29UsersOfEqualLengthsDriftApart) {
  const Case c = r1_on_hopper("sglang");
  ServedEvaluator e(c, AllReduceRule::fastest);
  ServedWorkload drawn, equal;
  drawn.input = equal.input = 1024;
  drawn.output = equal.output = 256;
  drawn.users = equal.users = 16;
  equal.equal_lengths = true;
  const Plan some = parse_plan("tensor:tpa=8,tpf=8,drafts=2"), none = parse_plan("tensor:tpa=8,tpf=8");
  EXPECT_EQ(e.of(some, equal).served.tpot, e.of(some, drawn).served.tpot);
  EXPECT_NE(e.of(none, equal).served.tpot, e.of(none, drawn).served.tpot);
}

TEST(EngineDrafts, P29EnginesAreToldOfDrafts) {
  const auto told = [](const std::string& engine, const std::string& plan, void (*change)(Case&) = nullptr) {
    Case c = r1_on_hopper(engine);
    if (change != nullptr) change(c);
    return options_text(deployments(c, parse_plan(plan)).front());
  };
  const auto ends = [](const std::string& text, const std::string& with) {
    return text.ends_with(with) ? std::string() : text;
  };
  EXPECT_EQ(ends(told("vllm", "tensor:tpa=8,tpf=8,batch=4,drafts=3"),
                 R"( --speculative-config '{"method":"mtp","num_speculative_tokens":3}')"),
            "");
  const std::string eagle =
      " --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 "
      "--speculative-num-draft-tokens 4";
  EXPECT_EQ(ends(told("sglang", "tensor:tpa=8,tpf=8,batch=4,drafts=3"), eagle), "");
  EXPECT_EQ(ends(told("sglang", "tensor:tpa=8,tpf=8,batch=4,drafts=3",
                      [](Case& c) { c.model.architecture = "MiMoForCausalLM"; }),
                 eagle + " --speculative-draft-model-path \"$MODEL\""),
            "");
  const std::string trtllm = told("trtllm", "tensor:tpa=8,tpf=8,batch=4,drafts=3");
  for (const char* part : {"speculative_config.decoding_type MTP", "speculative_config.max_draft_len 3",
                           "speculative_config.num_nextn_predict_layers 3"})
    EXPECT_NE(trtllm.find(part), std::string::npos) << trtllm;
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    EXPECT_EQ(told(engine, "tensor:tpa=8,tpf=8,batch=4").find("speculative"), std::string::npos);
    // What it does not start has no files.
    const Plan staged = parse_plan("pipeline:pp=2,tpa=4,tpf=4,drafts=3");
    const Deployment none = deployments(r1_on_hopper(engine), staged).front();
    EXPECT_NE(none.unsaid.find("pp=1, or no drafts"), std::string::npos) << engine << ": " << none.unsaid;
    EXPECT_EQ(options_text(none).find("speculative"), std::string::npos) << engine;
  }
}

TEST(EngineDrafts, P29ModelsWhoseModuleAnEngineLacks) {
  const Case m3 = case_of("sglang", {kM3, kGb, ""}), r1 = case_of("sglang", {kR1, kGb, ""});
  EXPECT_EQ(no_module_of(*m3.engine, m3.model),
            "SGLang 0.5.14 has no class for the module that drafts for minimax-m3");
  EXPECT_EQ(no_module_of(*profile("vllm"), m3.model), std::nullopt);
  EXPECT_EQ(no_module_of(*r1.engine, r1.model), std::nullopt);
  Model unnamed = m3.model, plain = m3.model;
  unnamed.architecture.clear();
  plain.drafts.reset();
  EXPECT_EQ(no_module_of(*m3.engine, unnamed), std::nullopt);
  EXPECT_EQ(no_module_of(*m3.engine, plain), std::nullopt);
}

// Requests one by one have drafts under every engine whose scheduler is played.
TEST(EngineDrafts, R16RequestsArePlayedWithDrafts) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    const Case c = r1_on_hopper(engine);
    EXPECT_EQ(no_play(c, parse_plan("tensor:tpa=8,tpf=8")), std::nullopt);
    EXPECT_EQ(no_play(c, parse_plan("tensor:tpa=8,tpf=8,drafts=2")), std::nullopt);
  }
}

}  // namespace
}  // namespace shardline
