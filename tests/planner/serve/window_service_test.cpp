// Requests on plans of models with windows under SGLang [R22]: pools, launch files, what is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/search/cache_sizes.hpp"
#include "planner/search/memory.hpp"
#include "planner/studies/service_launch.hpp"
#include "planner/studies/window_pools.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {
namespace {

using ::testing::AllOf, ::testing::HasSubstr, ::testing::Not;

constexpr const char* kPlan = "tensor:tpa=2,tpf=2";

Study study_of(const char* model) {
  PlanQuestion line = small_line();
  line.model = model;
  return study_of_line("sglang", line);
}

ServiceAnswer played(const Study& study, const std::vector<std::string>& knobs) {
  ServiceQuestion q = question(study, kPlan);
  q.rate = 20;
  q.requests = 200;
  q.knobs = knobs;
  return serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
}

// gpt-oss: 12 layers of each kind with 4 heads of 64 on each of two ranks, keys and values in BF16: 12 x
// 1,024 bytes of a token in each pool. Both fill what memory has room for, and one token more would not fit;
// the part is what launch files say for as many requests of 2,176 tokens as fit.
TEST(WindowService, R22PoolsFillTheMemoryThatLaunchFilesSplit) {
  const Study study = study_of("gpt-oss-20b");
  const Case& c = study.study;
  const Plan plan = possible_plan(study, kPlan);
  const ServiceKnobs knobs = service_knobs(c, plan, {}, 2176);
  const auto& k = std::get<SglangKnobs>(knobs.of);
  EXPECT_EQ(k.sliding_window, 127U);  // and a token itself
  EXPECT_EQ(knobs.blocks(), k.max_total_tokens);
  EXPECT_EQ(knobs.window_blocks(), static_cast<std::uint32_t>(k.max_total_tokens * k.swa_full_tokens_ratio));
  Case one = c;
  one.batch = decode_batch(2176);
  const MemoryUse use = memory_use(one, plan);
  KeptOf server = use.server;
  server.requests = c.engine->graphs.back();
  const double room =
      c.engine->room_for_kv(c.system.device, use.weights, use.activations + use.buffers, server).value;
  const double token = 12 * 1024 * (1 + k.swa_full_tokens_ratio);
  EXPECT_LE(k.max_total_tokens * token, room);
  EXPECT_GT((k.max_total_tokens + 1) * token, room);
  Plan many = plan;
  many.batch = largest_batch(one, plan, 4096);
  EXPECT_GT(many.batch, 100);
  EXPECT_NEAR(k.swa_full_tokens_ratio, window_thousandths(one, many) / 1000.0, 0.01);
  // A part that is given, of a pool that is given.
  const ServiceKnobs given =
      service_knobs(c, plan, {"swa_full_tokens_ratio=0.25", "max_total_tokens=100001"}, 2176);
  EXPECT_EQ(given.blocks(), 100'001U);
  EXPECT_EQ(given.window_blocks(), 25'000U);
}

TEST(WindowService, R22LaunchFilesSayThePlayedPools) {
  const Study study = study_of("gpt-oss-20b");
  for (const bool turned : {false, true}) {
    const std::vector<std::string> knobs{"swa_full_tokens_ratio=0.5", "swa_eviction_interval=64"};
    const ServiceAnswer a = played(study, turned ? knobs : std::vector<std::string>{});
    EXPECT_EQ(a.load.refused, 0U);
    const double part = std::get<SglangKnobs>(a.knobs.of).swa_full_tokens_ratio;
    std::string text;
    for (const LaunchFile& f : launch_of_service(study, a, "1").files) text += f.text;
    EXPECT_THAT(text, HasSubstr(turned ? "--swa-full-tokens-ratio 0.5"
                                       : fmt::format("--swa-full-tokens-ratio {:.3f}", part)));
    EXPECT_EQ(text.find("--swa-full-tokens-ratio"), text.rfind("--swa-full-tokens-ratio"));
    EXPECT_EQ(text.find("SGLANG_SWA_EVICTION_INTERVAL") != std::string::npos, turned);
  }
}

// Fewer windows than requests want: some wait, or lose theirs, and TPOT or TTFT are longer for it.
TEST(WindowService, R22FewWindowsAreFelt) {
  const Study study = study_of("gpt-oss-20b");
  const auto mean = [&](const char* part) {
    const ServiceAnswer a = played(study, {"max_total_tokens=200000", part, "chunked_prefill_size=2048"});
    EXPECT_EQ(a.load.answered, 200U);
    return a.load.latencies[static_cast<std::size_t>(Latency::e2e)].mean;
  };
  EXPECT_GT(mean("swa_full_tokens_ratio=0.05"), 1.2 * mean("swa_full_tokens_ratio=1"));
}

// Of each attention group on its own rank, where a token is of all 8 heads: 12 x 2,048 bytes in each pool.
TEST(WindowService, R22AttentionGroupsHavePoolsOfTheirOwn) {
  const Study study = study_of("gpt-oss-20b");
  const Plan plan = possible_plan(study, "dp_ep:dp=2,ep=2");
  EXPECT_EQ(no_play(study.study, plan), std::nullopt);
  const ServiceKnobs two = service_knobs(study.study, plan, {"swa_full_tokens_ratio=0.5"}, 2176),
                     one = service_knobs(study.study, possible_plan(study, kPlan),
                                         {"swa_full_tokens_ratio=0.5"}, 2176);
  EXPECT_NEAR(two.blocks(), 0.5 * one.blocks(), 0.05 * one.blocks());
  EXPECT_EQ(two.window_blocks(), two.blocks() / 2);
  ServiceQuestion q = question(study, "dp_ep:dp=2,ep=2");
  q.rate = 20;
  q.requests = 200;
  const ServiceAnswer a = serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
  EXPECT_EQ(a.load.answered, 200U);
}

TEST(WindowService, R22WhatIsNotPlayedIsNamed) {
  const Study oss = study_of("gpt-oss-20b");
  const auto of_plan = [&](const char* plan) {
    return no_play(oss.study, possible_plan(oss, plan)).value_or("");
  };
  EXPECT_EQ(of_plan(kPlan), "");
  const auto of_knob = [&](const Study& study, const char* knob) {
    return fault([&] { played(study, {knob}); });
  };
  EXPECT_THAT(of_knob(oss, "disable_radix_cache=true"),
              AllOf(HasSubstr("disable_radix_cache"), HasSubstr("is not played yet")));
  EXPECT_THAT(of_knob(study_of("llama-3.1-8b"), "swa_eviction_interval=4"),
              HasSubstr("has no layers with windows that SGLang keeps in a pool of their own"));
  EXPECT_EQ(sliding_window(study_of("mimo-v2-flash").study), 128U);  // its config's own number
}

}  // namespace
}  // namespace shardline
