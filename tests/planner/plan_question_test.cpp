// `shardline plan`: what stands in the scenario of a question, and that its answer is the sweep of that text.
#include "planner/studies/plan_question.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/engines/checkpoints.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/studies/line_settings.hpp"
#include "planner/studies/plan_answer.hpp"
#include "planner/studies/saved_question.hpp"

namespace shardline {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PlanQuestion question() {
  PlanQuestion q;
  q.model = "llama-3.1-8b";
  q.system = "h100-hgx";
  q.gpus = 4;
  q.input = 8192;
  q.output = 512;
  q.threads = 2;
  return q;
}

PlanAnswer answer(const PlanQuestion& q) {
  return answer_plan(q, shipped_catalogs(), [](std::uint64_t, std::uint64_t) {});
}

std::string fault(const PlanQuestion& q) {
  try {
    answer(q);
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(PlanQuestion, GpusAreHandedOutWholeBeyondATray) {
  const System hgx = load_system("h100-hgx", shipped_catalogs().systems);
  const System nvl = load_system("gb200-nvl72", shipped_catalogs().systems);
  EXPECT_THAT(default_gpus(hgx, 8, false), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(default_gpus(hgx, 6, false), ElementsAre(1, 2, 4));
  EXPECT_THAT(default_gpus(hgx, 6, true), ElementsAre(1, 2, 4, 6));
  EXPECT_THAT(default_gpus(hgx, 30, false), ElementsAre(1, 2, 4, 8, 16, 24));
  EXPECT_THAT(default_gpus(nvl, 72, false), ElementsAre(1, 2, 4, 8, 16, 32, 64, 72));
}

// Every default count is one that the engines' rule lets start.
TEST(PlanQuestion, DefaultGpusPassTheRuleOfTrays) {
  for (const char* name : {"h100-hgx", "gb200-nvl72"}) {
    const System system = load_system(name, shipped_catalogs().systems);
    const int tray = system.fabric.gpus_per_tray();
    for (int most = 1; most <= std::min(system.gpus(), 100); ++most) {
      for (const int n : default_gpus(system, most, false)) {
        EXPECT_LE(n, most);
        EXPECT_TRUE(n > tray ? n % tray == 0 : (n & (n - 1)) == 0) << name << " " << most << " " << n;
      }
    }
  }
}

TEST(PlanQuestion, TheEngineIsTheOneMeasuredClosest) {
  const auto engines = shipped_catalogs().engines;
  const auto of = [&](const char* model, const char* system) {
    return best_measured(model, system, engines);
  };
  const auto both = of("llama-3.1-70b", "h200-hgx");
  ASSERT_EQ(both.size(), 3u);
  for (std::size_t i = 1; i < both.size(); ++i) EXPECT_GE(both[i - 1].of_both, both[i].of_both);
  EXPECT_GT(both[0].of_both, 0);
  EXPECT_THAT(both[0].why("llama-3.1-70b", "h200-hgx"),
              HasSubstr("measured points of llama-3.1-70b in fp8 on h200-hgx"));
  const auto other = of("llama-3.1-70b", "gb200-nvl72");
  EXPECT_EQ(other[0].of_both, 0);
  EXPECT_THAT(other[0].why("llama-3.1-70b", "gb200-nvl72"), HasSubstr("none of them on gb200-nvl72"));
  // R1 was measured under SGLang and TensorRT-LLM, never under vLLM.
  EXPECT_EQ(of("deepseek-r1", "h200-hgx").back().profile.name, "vllm");
}

// The oracle is the sweep of the saved text.
TEST(PlanQuestion, TheAnswerIsTheSweepOfTheSavedScenario) {
  PlanQuestion served = question(), pinned = question(), ideal = question(), prefill = question();
  served.ttl = Seconds(0.010);
  pinned.users = 16;
  pinned.ttft = Seconds(1);
  ideal.engine = "ideal";
  ideal.ttl = Seconds(0.008);
  prefill.output = 0;
  prefill.engine = "vllm";
  prefill.ttft = Seconds(0.3);
  for (const PlanQuestion& q : {served, pinned, ideal, prefill}) {
    const PlanAnswer a = answer(q);
    SCOPED_TRACE(a.scenario);
    EXPECT_TRUE(a.met);
    const Scenario saved = parse_scenario("plan.yaml", a.scenario, shipped_catalogs());
    ASSERT_EQ(saved.studies.size(), 1u);
    const SweepAnswer sweep = answer_sweep(
        saved.studies[0], a.asked, [](std::uint64_t, std::uint64_t) {}, [] { return true; });
    if (a.by_copies) {  // users are shared among copies: each copy is a plan of the scenario
      SweepQuestion all = a.asked;
      all.keep_all = true;
      const SweepAnswer every = answer_sweep(
          saved.studies[0], all, [](std::uint64_t, std::uint64_t) {}, [] { return true; });
      for (const PlannedPoint& p : a.plans) {
        const auto same = [&](const Point& o) {
          return o.plan == p.point.plan && o.time == p.point.time && o.ttft == p.point.ttft;
        };
        const std::vector<Point>& found = every.found.all;
        EXPECT_TRUE(std::any_of(found.begin(), found.end(), same)) << to_string(p.point.plan);
        EXPECT_EQ(p.point.plan.users() * p.copies, q.users);
        EXPECT_EQ(p.meets, miss_of(a, p.point).part <= 0);
      }
      continue;
    }
    std::size_t met = 0;
    for (const PlannedPoint& p : a.plans) met += p.meets ? 1 : 0;
    ASSERT_EQ(sweep.meeting.size(), met);
    for (std::size_t i = 0; i < met; ++i) {
      EXPECT_EQ(a.plans[i].point.plan, sweep.meeting[i].plan);
      EXPECT_EQ(a.plans[i].point.time, sweep.meeting[i].time);
      EXPECT_EQ(a.plans[i].point.ttft, sweep.meeting[i].ttft);
    }
    EXPECT_LE(a.plans.size(), 5u);
    for (const PlannedPoint& p : a.plans) EXPECT_EQ(p.meets, miss_of(a, p.point).part <= 0);
  }
}

TEST(PlanQuestion, ASavedFileHasWhatSettingsChanged) {
  PlanQuestion q = question();
  q.rate = 2;
  q.settings = {"gpus=[2]", "constraints.pool_gpus=2", "degrees.tpa=[1, 2]", "device.memory.bandwidth=3 TB/s",
                "workload.lengths=equal"};
  const PlanAnswer a = asked_plan(q, shipped_catalogs());
  const std::string text = saved_scenario(a, shipped_catalogs(), " --slo 'ttft p99 2 s'");
  SCOPED_TRACE(text);
  EXPECT_THAT(text,
              HasSubstr("to be given to commands that read it: --set 'device.memory.bandwidth=3 TB/s'"));
  EXPECT_THAT(text, HasSubstr("to be given to serve, which reads it: --rate 2/s --slo 'ttft p99 2 s'"));
  const Scenario saved = parse_scenario("q.yaml", text, shipped_catalogs());
  const SearchOptions &own = a.study.sweep().search, &read = saved.studies.at(0).sweep().search;
  EXPECT_THAT(read.gpus, ElementsAre(2));
  EXPECT_EQ(read.gpus, own.gpus);
  EXPECT_EQ(read.pool_gpus, 2);
  EXPECT_EQ(read.pool_gpus, own.pool_gpus);
  EXPECT_THAT(text, HasSubstr("degrees: {tpa: [1, 2]}"));
  EXPECT_EQ(read.batches, own.batches);
  EXPECT_THAT(text, HasSubstr("lengths: equal"));
}

TEST(PlanQuestion, ASavedFileSaysTheUnitOfTokensThatASettingLeavesOut) {
  PlanQuestion q = question();
  q.output = 0;
  q.settings = {"requests=[{new: 4K}]"};
  const PlanAnswer a = asked_plan(q, shipped_catalogs());
  const std::string text = saved_scenario(a, shipped_catalogs());
  EXPECT_THAT(text, HasSubstr("requests: [{new: 4K tokens}]"));
  const Scenario saved = parse_scenario("q.yaml", text, shipped_catalogs());
  EXPECT_EQ(saved.studies.at(0).study.batch, a.study.study.batch);
}

TEST(PlanQuestion, TheSentenceSaysWhatSettingsChanged) {
  PlanQuestion q = question();
  const PlanDefaults d = asked_plan(q, shipped_catalogs()).defaults;
  const std::string plain = question_text(q, d);
  q.settings = {"gpus=[2]", "device.memory.bandwidth=3 TB/s", "batch=4"};
  const std::string set = question_text(q, asked_plan(q, shipped_catalogs()).defaults);
  EXPECT_THAT(set, HasSubstr("of h100-hgx with device.memory.bandwidth=3 TB/s: input"));
  EXPECT_TRUE(set.ends_with("; with gpus=[2] and batch=4")) << set;
  EXPECT_EQ(plain.find(" with "), plain.npos) << plain;
}

TEST(PlanQuestion, TheSentenceSaysWhatANodeIs) {
  const auto sentence = [](const char* system, int gpus, int nodes) {
    PlanQuestion q = question();
    q.system = system;
    q.gpus = gpus;
    q.nodes = nodes;
    const PlanAnswer a = asked_plan(q, shipped_catalogs());
    return question_text(a.question, a.defaults);
  };
  EXPECT_THAT(sentence("h200-hgx", 16, 2), HasSubstr("16 GPUs of h200-hgx (2 nodes of 8 GPUs): input"));
  EXPECT_THAT(sentence("h200-hgx", 16, 0), HasSubstr("16 GPUs of h200-hgx: input"));
  EXPECT_THAT(
      sentence("gb200-nvl72", 72, 1),
      HasSubstr("72 GPUs of gb200-nvl72 (1 node, an NVLink domain of 72 GPUs in 18 trays of 4): input"));
}
TEST(PlanQuestion, SettingsOfWhatTheLineSaysAreRefused) {
  for (const auto& [setting, says] :
       {std::pair{"workload.users=12", "--users 12 in its place"},
        std::pair{"workload.input=4K", "--input 4K in its place"},
        std::pair{"engine.version = 0.24.0", "for instance --engine vllm 0.24.0"},
        std::pair{"any_gpus=true", "--any-gpus lifts that rule"},
        std::pair{"models=[llama-3.1-70b]", "name another model"}}) {
    try {
      require_beside_line({"batch=4", setting});
      ADD_FAILURE() << setting << " is accepted";
    } catch (const UserError& e) {
      EXPECT_THAT(e.what(), HasSubstr(says));
      EXPECT_THAT(e.what(), HasSubstr("--set:1:1: "));
      EXPECT_THAT(e.what(), HasSubstr(" in a question of one line"));
    }
  }
  for (const char* const map :
       {"workload={input: 64K tokens, output: 1K tokens}", "constraints = {ttl: 5 ms}"}) {
    try {
      require_beside_line({map});
      ADD_FAILURE() << map << " is accepted";
    } catch (const UserError& e) {
      EXPECT_THAT(e.what(), HasSubstr("as a whole holds what a question of one line says by its options"));
      EXPECT_THAT(e.what(), HasSubstr("one by one"));
    }
  }
  EXPECT_NO_THROW(require_beside_line({"gpus=[2]", "workload.prefix=1K", "device.memory.bandwidth=4 TB/s"}));
}

TEST(PlanQuestion, NearMissesAreAnswers) {
  PlanQuestion q = question();
  q.gpus = 1;
  q.ttl = Seconds(0.005);
  const PlanAnswer a = answer(q);
  EXPECT_FALSE(a.met);
  ASSERT_FALSE(a.plans.empty());
  for (const Point& p : a.sweep.frontier) EXPECT_GE(p.time, a.plans.front().point.time);
  const Miss miss = miss_of(a, a.plans.front().point);
  EXPECT_EQ(miss.what, "TPOT");
  EXPECT_NEAR(miss.part, a.plans.front().point.time / q.ttl - 1, 1e-12);
  ASSERT_TRUE(a.wider);
  EXPECT_GT(a.wider->gpus, 1);
  EXPECT_EQ(a.wider->best.point.plan.gpus(), a.wider->gpus);
  EXPECT_EQ(a.wider->best.meets, a.wider->best.point.time <= q.ttl);
}

// A first token that comes too late is a near miss, too.
TEST(PlanQuestion, TheNearestTtft) {
  PlanQuestion q = question();
  q.gpus = 1;
  q.ttft = Seconds(0.02);
  const PlanAnswer a = answer(q);
  EXPECT_FALSE(a.met);
  ASSERT_FALSE(a.plans.empty());
  EXPECT_EQ(miss_of(a, a.plans[0].point).what, "TTFT");
  // Behind it stand plans that miss by more and answer more.
  for (std::size_t i = 1; i < a.plans.size(); ++i) {
    EXPECT_GE(a.plans[i].point.ttft, a.plans[i - 1].point.ttft);
    EXPECT_GT(a.tokens_per_s_gpu(a.plans[i]), a.tokens_per_s_gpu(a.plans[i - 1]));
  }
}

TEST(PlanQuestion, WhatDoesNotFitFitsMoreGpus) {
  PlanQuestion q = question();
  q.model = "llama-3.1-405b";
  q.gpus = 8;
  const PlanAnswer a = answer(q);
  EXPECT_FALSE(a.met);
  EXPECT_TRUE(a.plans.empty());
  ASSERT_TRUE(a.wider);
  EXPECT_GT(a.wider->gpus, 8);
}

// In bf16 405B parameters are more than 8 H100 hold; of the published checkpoints FP8's is the widest that
// fits, and its answer is that of its own question.
TEST(PlanQuestion, WhatDoesNotFitFitsInNarrowerTypes) {
  PlanQuestion q = question();
  q.model = "llama-3.1-405b";
  q.gpus = 8;
  const PlanAnswer a = answer(q);
  ASSERT_NE(a.narrower, nullptr);
  EXPECT_EQ(a.narrower->question.model, "nvidia/Llama-3.1-405B-Instruct-FP8");
  q.model = a.narrower->question.model;
  const PlanAnswer own = answer(q);
  ASSERT_FALSE(own.plans.empty());
  EXPECT_EQ(own.plans.front().point.plan, a.narrower->plans.front().point.plan);
  EXPECT_EQ(own.plans.front().point.time, a.narrower->plans.front().point.time);
  EXPECT_EQ(own.narrower, nullptr);
  // Two GPUs hold no checkpoint of it that is known; types of the user's own are no checkpoint's.
  q.gpus = 2;
  EXPECT_EQ(answer(q).narrower, nullptr);
  q.model = "llama-3.1-405b";
  q.gpus = 8;
  q.settings = {"precision.weights=bf16"};
  const PlanAnswer set = answer(q);
  EXPECT_TRUE(set.plans.empty());
  EXPECT_EQ(set.narrower, nullptr);
}

TEST(PlanQuestion, ARepositoryWithoutItsOwnerIsMeant) {
  PlanQuestion q = question();
  for (const char* name : {"llama-3.3-70b", "Llama-3.3-70B-Instruct"}) {
    q.model = name;
    EXPECT_THAT(fault(q),
                testing::AllOf(testing::HasSubstr("did you mean meta-llama/Llama-3.3-70B-Instruct?"),
                               testing::Not(testing::HasSubstr("did you mean llama-3.1-70b?"))));
  }
  q.model = "llama3-70b";
  EXPECT_THAT(fault(q), testing::HasSubstr("did you mean llama-3.1-70b?"));
}

TEST(PlanQuestion, BareKernelsHaveTheCheckpointOfTheMaker) {
  PlanQuestion q = question();
  q.engine = "ideal";
  const PlanAnswer a = answer(q);
  EXPECT_THAT(a.scenario, HasSubstr("models: [meta-llama/Llama-3.1-8B-Instruct]"));
  EXPECT_EQ(a.study.study.precision.weights, Dtype::bf16);
  EXPECT_THAT(a.defaults.strategies, Contains("helix"));
}

TEST(PlanQuestion, SaysWhatCannotBe) {
  PlanQuestion q = question();
  q.input = 200'000;
  EXPECT_THAT(fault(q),
              HasSubstr("input and output are 200,512 tokens, llama-3.1-8b is for 131,072 at most"));
  q.any_context = true;
  EXPECT_EQ(fault(q), "accepted");
  q = question();
  q.model = "llama3-70b";
  EXPECT_THAT(fault(q), HasSubstr("did you mean llama-3.1-70b?"));
  q = question();
  q.gpus = 100'000;
  EXPECT_THAT(fault(q), HasSubstr("h100-hgx has "));
}

// [P22] Also of pools, which a system would hold more of.
TEST(PlanQuestion, PairsOfPoolsFitItsGpus) {
  PlanQuestion q = question();
  q.engine = "vllm";
  q.gpus = 4;
  const PlanAnswer a = answer(q);
  EXPECT_THAT(a.scenario, HasSubstr("constraints: {pool_gpus: 4}"));
  ASSERT_FALSE(a.sweep.pools.empty());
  for (const PoolPair& p : a.sweep.pools) EXPECT_TRUE(p.whole.gpus > 0 && p.whole.gpus <= 4) << p.whole.gpus;
}

TEST(PublishedModel, EveryRepositoryOfTheCatalogueIsFound) {
  const auto models = shipped_catalogs().models;
  const Model own = published_model("meta-llama/Llama-3.1-70B-Instruct", models);
  EXPECT_EQ(own.name, "llama-3.1-70b");
  ASSERT_TRUE(own.checkpoint);
  EXPECT_EQ(own.checkpoint->dense_ffn, MatrixType(Dtype::bf16));
  EXPECT_TRUE(own.checkpoint->assumed.empty());
  const Model fp8 = published_model("nvidia/llama-3.1-70b-instruct-fp8", models);  // in either case
  EXPECT_EQ(fp8.checkpoint->attention, MatrixType(Dtype::fp8));
  EXPECT_EQ(fp8.checkpoint->head, MatrixType(Dtype::bf16));
  EXPECT_EQ(fp8.checkpoint->kv, Dtype::fp8);
  const Model r1 = published_model("nvidia/DeepSeek-R1-FP4", models);
  EXPECT_EQ(r1.checkpoint->attention, MatrixType(Dtype::bf16));
  EXPECT_EQ(r1.checkpoint->experts, MatrixType(Dtype::fp4));
  EXPECT_EQ(published_model("Qwen/Qwen3-32B", models).name, "qwen3-32b");
  EXPECT_EQ(published_model("meta-llama/Llama-3.1-70B", models).name, "llama-3.1-70b");
}

// What is named is what launch files serve.
TEST(PublishedModel, IsTheCheckpointThatIsServed) {
  for (const char* name : {"meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.1-70B-Instruct",
                           "nvidia/Llama-3.1-70B-Instruct-FP8"}) {
    const std::string text = fmt::format(
        "name: q\nsystem: h200-hgx\nengine: vllm\nmodels: [{}]\ncontext: 8K tokens\nstrategies: [tensor]\n"
        "gpus: [8]\nbatch: [4]\n",
        name);
    EXPECT_EQ(checkpoint_of(parse_scenario("q.yaml", text, shipped_catalogs()).studies[0].study), name);
  }
}

TEST(PublishedModel, NearestOfUnknownRepositories) {
  const auto says = [](const std::string& name) -> std::string {
    try {
      published_model(name, shipped_catalogs().models);
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(says("meta-lama/Llama-3.1-8B-Instruct"),
              HasSubstr("did you mean meta-llama/Llama-3.1-8B-Instruct?"));
  EXPECT_THAT(says("nvidia/Qwen3-235B-A22B-FP4"),
              HasSubstr("which matrices of nvidia/Qwen3-235B-A22B-FP4 are in fp4"));
  EXPECT_TRUE(looks_like_repository("a/b"));
  for (const char* none : {"a", "./a", "a/b/c", "a/b.json", "a/b.yaml", "/a", "a/", "a b/c"})
    EXPECT_FALSE(looks_like_repository(none)) << none;
}

}  // namespace
}  // namespace shardline
