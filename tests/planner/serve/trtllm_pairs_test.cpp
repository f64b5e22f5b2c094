// Pairs of TensorRT-LLM's servers as `serve` asks for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "planner/studies/request_service.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

// What is not played of them, and options of a server that decodes for another; buffers hold the longest
// prompt of the load.
TEST(TrtllmPairs, R21WhatIsSaidOfThem) {
  const Study study = study_of_line("trtllm");
  ServiceQuestion q = question(study);
  q.rate = 1e-3;
  q.requests = 2;
  q.prefill = PrefillQuestion{q.plan, 1, {}, 0};
  const ServiceAnswer a = serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
  const auto &answers = std::get<TrtllmKnobs>(a.knobs.of),
             &prompts = std::get<TrtllmKnobs>(a.prefill_knobs->of);
  EXPECT_EQ(answers.max_tokens_in_buffer, 2048U);
  EXPECT_EQ(prompts.max_tokens_in_buffer, 2048U);
  EXPECT_TRUE(prompts.disable_overlap_scheduler);
  EXPECT_FALSE(answers.disable_overlap_scheduler);
  EXPECT_FALSE(answers.reads_found);
  // 64 KiB of BF16 a token on each of two GPUs: two buffers of 65,536 tokens are 8.6 GB, 4,096 blocks of 16.
  q.knobs = {"max_tokens_in_buffer=65536"};
  const ServiceAnswer large = serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
  EXPECT_NEAR(static_cast<double>(a.knobs.blocks()) - large.knobs.blocks(),
              0.9 * 2 * (65'536 - 2048) / a.knobs.block(), 1000);
  q.knobs.clear();
  const auto fault_of = [&](auto change) {
    ServiceQuestion other = q;
    change(other);
    return fault([&] { serve_requests(study, other, [](std::uint64_t, std::uint64_t) {}); });
  };
  EXPECT_THAT(fault_of([](ServiceQuestion& o) { o.prefill->max_local = 100; }),
              HasSubstr("keeps a prompt on a server for answers only where text of it is cached"));
  EXPECT_THAT(fault_of([](ServiceQuestion& o) {
                o.failures = {{0, Seconds(1), Seconds(2), ReplicaPool::prefill}};
              }),
              HasSubstr("its front asks the same server again and then answers with an error"));
  EXPECT_THAT(fault_of([](ServiceQuestion& o) { o.knobs = {"max_tokens_in_buffer=1024"}; }),
              HasSubstr("a prompt of the load has 2048 tokens, which a buffer has to hold"));
  EXPECT_THAT(fault_of([](ServiceQuestion& o) { o.prefill->knobs = {"max_tokens_in_buffer=4096"}; }),
              HasSubstr("is of a server that decodes for another"));
  EXPECT_THAT(fault_of([](ServiceQuestion& o) {
                o.prefill.reset();
                o.knobs = {"max_tokens_in_buffer=4096"};
              }),
              HasSubstr("is of a server that decodes for another"));
  EXPECT_THAT(fault_of([](ServiceQuestion& o) { o.knobs = {"tokens_per_block=64"}; }),
              HasSubstr("a hand-off between blocks of one size is played"));
}

}  // namespace
}  // namespace shardline
