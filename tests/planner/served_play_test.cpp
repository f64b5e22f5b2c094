// calibrate/validate/served_play: measured loops, played request by request.
#include "calibrate/validate/served_play.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "planner/requests/step_times.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/serving/plan_steps.hpp"

namespace shardline {
namespace {

using ::testing::ElementsAre;

const HostTimes kHost{Seconds(1e-3), Seconds(5e-5), Seconds(0), Seconds(0.02)};

ServedRow row_of(const std::string& engine, double users) {
  ServedRow r;
  r.system = "h100-hgx";
  r.model = r.label = "qwen3-32b";
  r.precision = "{weights: bf16, kv: bf16, math: bf16}";
  r.engine = engine;
  r.version = engine == "vllm" ? "0.12.0" : engine == "trtllm" ? "1.0.0rc3" : "0.5.1.post1";
  r.plan = "tensor:tpa=8,tpf=8,batch=1";
  r.input = 1024;
  r.output = 64;
  r.users = users;
  r.gpus = 8;
  r.equal_lengths = true;
  r.rounds = 3;
  return r;
}

PlayedLoop played(const ServedRow& r, const HostTimes& host = kHost) {
  LoopPlayer player(load_engine(r.engine, "", shipped_catalogs().engines), host, shipped_catalogs());
  const auto loop = player.play(r);
  EXPECT_TRUE(loop.has_value());
  return loop.value_or(PlayedLoop{});
}

// What the steps of a row's server take, from the outside.
Seconds step(const ServedRow& r, const StepBatch& batch) {
  Case c =
      parse_scenario("served", served_scenario(r, shipped_catalogs()), shipped_catalogs()).studies[0].study;
  EngineProfile engine = as_started(load_engine(r.engine, "", shipped_catalogs().engines), r);
  engine.host = kHost;
  c.engine = std::make_shared<const EngineProfile>(engine);
  c.system.host.step = kHost.step;
  c.system.host.request = kHost.request;
  c.system.host.prompt_token = kHost.prompt_token;
  return PlanStepTimes(c, parse_plan(r.plan), AllReduceRule::fastest).of(batch);
}

StepBatch prompts(int count, std::uint32_t tokens) {
  StepBatch batch;
  for (int i = 0; i < count; ++i) batch.prompts.push_back({tokens, 0});
  return batch;
}

TEST(ServedPlay, OneUserWaitsForItsPathAndItsPrompt) {
  for (const char* engine : {"vllm", "trtllm", "sglang"}) {
    const ServedRow r = row_of(engine, 1);
    const PlayedLoop loop = played(r);
    EXPECT_EQ(loop.requests, 3u) << engine;
    EXPECT_NEAR(loop.ttft, (kHost.path + step(r, prompts(1, 1024))).value, 1e-9) << engine;
  }
}

// Two prompts that come together share a step, or wait one for the other, as the budget has it. Each begins
// the loop once: TTFT of the first round is p + T of both, or half of the two waits.
TEST(ServedPlay, BudgetOfAStepIsThatOfTheRow) {
  for (const char* engine : {"vllm", "trtllm"}) {
    ServedRow r = row_of(engine, 2);
    r.rounds = 1;
    r.whole_prompts = r.engine == "trtllm";
    r.step_tokens = 4096;
    EXPECT_NEAR(played(r).ttft, (kHost.path + step(r, prompts(2, 1024))).value, 1e-9) << engine;
    r.step_tokens = 1088;
    StepBatch second = prompts(1, 1024);
    second.decodes = 1;
    second.cached = second.longest = 1024;
    const double first = step(r, prompts(1, 1024)).value;
    const double apart = kHost.path.value + first + step(r, second).value / 2;
    if (r.whole_prompts) {
      EXPECT_NEAR(played(r).ttft, apart, 1e-9) << engine;
    } else {
      // 64 tokens of the second prompt are in the first step.
      EXPECT_NEAR(played(r).ttft, apart, 0.05 * apart) << engine;
    }
  }
}

TEST(ServedPlay, AskedForAreTheRoundsOfTheRow) {
  ServedRow r = row_of("trtllm", 128);
  r.output = 4;
  r.rounds = 2000.0 / 128;
  EXPECT_EQ(played(r).requests, 2000u);
}

TEST(ServedPlay, StartOptionsAreTheEngines) {
  const EngineProfile any;
  ServedRow r = row_of("vllm", 8);
  r.step_tokens = 1152;
  EngineProfile waits = any;
  waits.host_waited_for = true;
  EXPECT_THAT(start_knobs(r, waits), ElementsAre("async_scheduling=false", "max_num_batched_tokens=1152"));
  r.engine = "trtllm";
  r.whole_prompts = true;
  EXPECT_THAT(start_knobs(r, any), ElementsAre("enable_chunked_prefill=false", "max_num_tokens=1152"));
  r.engine = "sglang";
  r.mixes_prompts = true;
  EXPECT_THAT(start_knobs(r, any), ElementsAre("enable_mixed_chunk=true", "chunked_prefill_size=1152"));
}

// Attention groups behind one barrier are no single engine: never played as if they were.
TEST(ServedPlay, AttentionGroupsAndStagesAreNotPlayed) {
  LoopPlayer player(load_engine("vllm", "", shipped_catalogs().engines), kHost, shipped_catalogs());
  ServedRow r = row_of("vllm", 8);
  r.plan = "dp_ep:dp=8,batch=1";
  EXPECT_FALSE(player.play(r));
  r.plan = "pipeline:pp=2,tpa=4,tpf=4,in_flight=2,batch=1";
  EXPECT_FALSE(player.play(r));
}

// Each model by the host times of the others, and nothing is lost in silence.
TEST(ServedPlay, ModelsLeftOutArePlayedWithTheirOwnTimes) {
  const EngineProfile engine = load_engine("vllm", "", shipped_catalogs().engines);
  TimedRow good, groups;
  good.row = row_of("vllm", 2);
  groups.row = good.row;
  groups.row.plan = "dp_ep:dp=8,batch=1";
  const PlayedLoop loop = played(good.row);
  good.row.tpot = loop.tpot / 2;
  good.row.ttft = loop.ttft;
  ServedFit fit;
  fit.models.push_back({"qwen3-32b", kHost, {1, 1}, {1, 1}, {&good, &groups}});
  const PlayedFit out = play_left_out(fit, engine, shipped_catalogs());
  EXPECT_EQ(out.left_out, 1);
  ASSERT_EQ(out.models.size(), 1u);
  ASSERT_EQ(out.models[0].rows.size(), 1u);
  EXPECT_NEAR(out.models[0].tpot[0], 2, 1e-12);
  EXPECT_NEAR(out.models[0].ttft[0], 1, 1e-12);
}

}  // namespace
}  // namespace shardline
