// Models whose layers keep states under TensorRT-LLM [R23]: what memory has for states and for blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "planner/engines/launch_files.hpp"
#include "planner/plan/plan.hpp"
#include "planner/search/cache_sizes.hpp"
#include "planner/search/memory.hpp"
#include "planner/studies/service_knobs.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Nemotron 3 Super on 8 H200: of 88 layers 40 keep states of 128 heads of 64 x 128 in float32 and 3 rows of
// 8,192 + 2 x 8 x 128 channels in BF16, 8 have 2 KV heads of 128 in BF16.
Study nemotron() {
  PlanQuestion q;
  q.model = "nemotron-3-super-120b-a12b";
  q.system = "h200-hgx";
  q.gpus = 8;
  q.input = 8192;
  q.output = 1024;
  return study_of_line("trtllm", q);
}
constexpr double kState = 40 * (128.0 * 64 * 128 * 4 + 3.0 * (8192 + 2 * 8 * 128) * 2);
constexpr long long kMean = 8192 + 1024;

TrtllmKnobs knobs_of(const Study& study, const char* plan, const std::vector<std::string>& knobs = {}) {
  return std::get<TrtllmKnobs>(service_knobs(study.study, possible_plan(study, plan), knobs, kMean).of);
}

// A rank of TP 8 has an eighth of a state and a KV head of 128, 4,096 bytes a token in 8 layers; of attention
// DP all of both, 8,192 bytes.
TEST(ServedStates, R23BlocksHaveWhatStatesLeave) {
  const Study study = nemotron();
  const auto left = [&](const char* plan, double state, double token) {
    const TrtllmKnobs few = knobs_of(study, plan, {"max_batch_size=40"}),
                      many = knobs_of(study, plan, {"max_batch_size=240"});
    EXPECT_EQ(few.max_batch_size, 40U);
    EXPECT_EQ(few.state_slots, 41U);
    EXPECT_FALSE(few.enable_block_reuse);
    EXPECT_NEAR(static_cast<double>(few.blocks) - many.blocks, 200 * state / (32 * token), 1) << plan;
    // As many requests as have room with their states, where nobody says how many: one more has none.
    const TrtllmKnobs fit = knobs_of(study, plan);
    const double room = 40 * state + few.blocks * 32 * token, each = state + kMean * token;
    EXPECT_EQ(fit.max_batch_size, std::floor(room / each + 1e-4)) << plan;
    EXPECT_EQ(fit.state_slots, fit.max_batch_size + 1);
    EXPECT_GE(fit.blocks * 32.0, static_cast<double>(fit.max_batch_size) * kMean) << plan;
  };
  left("tensor:tpa=8,ep=8", kState / 8, 4096);
  left("dp_ep:dp=8,ep=8", kState, 8192);
  // No more than the engine's own 2,048: of requests of 1,000 tokens 3,700 would fit.
  const auto shorter = service_knobs(study.study, possible_plan(study, "tensor:tpa=8,ep=8"), {}, 1000);
  EXPECT_EQ(shorter.requests(), 2048U);
}

// Of a plan with as many requests, each of as many tokens as blocks have for it, the caches are what the
// engine has for them, to a block of each; and it has a state of each.
TEST(ServedStates, R23MemoryIsThatOfThePlan) {
  const Study study = nemotron();
  for (const std::string base : {"tensor:tpa=8,ep=8", "dp_ep:dp=8,ep=8"}) {
    const TrtllmKnobs k = knobs_of(study, base.c_str(), {"max_batch_size=96"});
    Plan plan = possible_plan(study, base);
    Case c = study.study;
    c.batch = decode_batch(kMean);
    const MemoryUse one = memory_use(c, plan);
    const double room =
        c.engine->room_for_kv(c.system.device, one.weights, one.activations + one.buffers, one.server).value;
    plan.batch = 96;
    EXPECT_EQ(state_places(c, plan), 96);
    const auto kv = [&](long long tokens) {
      c.batch = decode_batch(tokens);
      return memory_use(c, plan).kv.value;
    };
    const long long tokens = static_cast<long long>(k.blocks) * 32 / 96;
    EXPECT_LE(kv(tokens), room) << base;
    EXPECT_GT(kv(tokens + 2), room) << base;
  }
}

// A server that does both says the requests of its plan and no reuse, so that the engine divides its memory
// as the plan does.
TEST(ServedStates, R23LaunchFilesReuseNoBlocks) {
  const Study study = nemotron();
  const Launch launch =
      launch_files(study.study, parse_plan("tensor:tpa=8,ep=8,batch=96"), *study.study.engine, "s");
  ASSERT_EQ(launch.refused, "");
  std::string yaml;
  for (const LaunchFile& f : launch.files) {
    if (f.name == "s.yaml") yaml = f.text;
  }
  EXPECT_THAT(yaml, AllOf(HasSubstr("\nmax_batch_size: 96\n"), HasSubstr("\n  enable_block_reuse: false\n")));
}

TEST(ServedStates, R23WhatStatesTakeIsSaid) {
  const Study study = nemotron();
  const Plan plan = possible_plan(study, "dp_ep:dp=8,ep=8");
  const auto text_of = [&](const std::vector<std::string>& knobs) {
    return fault([&] { service_knobs(study.study, plan, knobs, kMean); });
  };
  // 2,048 states of 170 MB.
  const std::string large = text_of({"max_batch_size=2048"});
  EXPECT_THAT(large, HasSubstr("states of max_batch_size 2048 requests take 348.6 GB of the 93.56 GB"));
  const TrtllmKnobs fit = knobs_of(study, "dp_ep:dp=8,ep=8");
  EXPECT_THAT(large, HasSubstr("max_batch_size=" + std::to_string(fit.max_batch_size)));
  EXPECT_EQ(text_of({"max_batch_size=" + std::to_string(fit.max_batch_size)}), "");
  const auto notes =
      play_notes(study.study, plan, ServiceKnobs{knobs_of(study, "dp_ep:dp=8,ep=8", {"max_batch_size=100"})});
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes.front().what, HasSubstr("sets states of max_batch_size 100 requests aside, whether they "
                                            "run or not: 17.02 GB of each GPU, 170.2 MB a request"));
  const ServiceKnobs reuse{knobs_of(study, "dp_ep:dp=8,ep=8", {"enable_block_reuse=true"})};
  EXPECT_THAT(fault([&] { scheduler_of(reuse, {}); }), HasSubstr("saves one of each"));
}

}  // namespace
}  // namespace shardline
