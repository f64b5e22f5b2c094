// Launch files of pairs of pools that were played: each half is told its own scheduler, whatever knob was
// turned.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "planner/studies/service_launch.hpp"
#include "tests/planner/serve/served_line.hpp"
#include "tests/planner/told_options.hpp"

namespace shardline {
namespace {

using ::testing::Contains, ::testing::HasSubstr, ::testing::Not, ::testing::Pair;

struct Asked {
  std::vector<std::string> knobs, prefill_knobs;
  std::string prefill = "tensor:tpa=1,tpf=1";
  int replicas = 1, prefill_replicas = 1;
  Router router = Router::round_robin;
  long long max_local = 0;
};

ServiceAnswer played(const Study& study, const Asked& asked) {
  ServiceQuestion q = question(study);
  q.rate = 1e-3;
  q.requests = 2;
  q.knobs = asked.knobs;
  q.replicas = asked.replicas;
  q.router = asked.router;
  q.prefill = PrefillQuestion{possible_plan(study, asked.prefill), asked.prefill_replicas,
                              asked.prefill_knobs, asked.max_local};
  return serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
}

struct Halves {
  Values prompts, answers;
};
Halves told_both(const std::string& engine, const Asked& asked) {
  const Study study = study_of_line(engine);
  const Launch launch = launch_of_service(study, played(study, asked), "1");
  return {told_by(engine, launch, "1." + engine + "_context"),
          told_by(engine, launch, "1." + engine + "_generation")};
}

TEST(PairLaunch, P20CapsAreEachSchedulers) {
  for (const std::string engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    const Study study = study_of_line(engine);
    const ServiceAnswer a = played(study, {});
    const Launch launch = launch_of_service(study, a, "1");
    const bool vllm = engine == "vllm", sglang = engine == "sglang";
    const char* const most = vllm ? "--max-num-seqs" : sglang ? "--max-running-requests" : "max_batch_size";
    const char* const longest = vllm ? "--max-model-len" : sglang ? "--context-length" : "max_seq_len";
    const char* const tokens = vllm     ? "--max-num-batched-tokens"
                               : sglang ? "--chunked-prefill-size"
                                        : "max_num_tokens";
    const Values prompts = told_by(engine, launch, "1." + engine + "_context"),
                 answers = told_by(engine, launch, "1." + engine + "_generation");
    EXPECT_THAT(prompts, Contains(Pair(most, std::to_string(a.prefill_knobs->requests()))));
    EXPECT_THAT(answers, Contains(Pair(most, std::to_string(a.knobs.requests()))));
    for (const Values* v : {&prompts, &answers}) EXPECT_THAT(*v, Contains(Pair(longest, "2176")));
    EXPECT_THAT(prompts, Contains(Pair(tokens, std::to_string(a.prefill_knobs->step_tokens()))));
    if (sglang) {
      EXPECT_EQ(prompts.at("--page-size"), std::to_string(a.prefill_knobs->block()));
      EXPECT_EQ(answers.at("--page-size"), std::to_string(a.knobs.block()));
      EXPECT_FALSE(prompts.contains("--prefill-max-requests"));
    }
    for (const LaunchFile& f : launch.files) {
      EXPECT_THAT(f.text, Not(HasSubstr("batch=")));
      EXPECT_THAT(f.text, Not(HasSubstr("# Steps of")));
    }
  }
}

// A knob that is turned, and what either half is told of it; nullptr: nothing.
struct Turned {
  std::vector<std::string> knobs, prefill_knobs;
  const char* option;
  const char *prompts, *answers;
};

void expect_told(const std::string& engine, const std::vector<Turned>& all) {
  for (const Turned& t : all) {
    SCOPED_TRACE(fmt::format("{} {}", engine, t.option));
    const Halves both = told_both(engine, {t.knobs, t.prefill_knobs});
    const auto expect = [&](const Values& v, const char* value) {
      if (value == nullptr) {
        EXPECT_FALSE(v.contains(t.option));
        return;
      }
      ASSERT_TRUE(v.contains(t.option));
      EXPECT_TRUE(v.at(t.option) == value || (v.at(t.option).empty() && value == std::string("true")))
          << v.at(t.option);
    };
    expect(both.prompts, t.prompts);
    expect(both.answers, t.answers);
  }
}

// Every knob of either half that the other one does not have, or that its files say otherwise where no
// request was played.
TEST(PairLaunch, P20EveryKnobIsToldToItsHalfOfVllm) {
  expect_told("vllm", {{{"max_num_seqs=48"}, {"max_num_seqs=7"}, "--max-num-seqs", "7", "48"},
                       {{}, {"max_num_batched_tokens=4096"}, "--max-num-batched-tokens", "4096", "8192"},
                       {{"block_size=32"}, {"block_size=32"}, "--block-size", "32", "32"},
                       {{}, {"enable_prefix_caching=false"}, "--no-enable-prefix-caching", "true", nullptr},
                       {{"num_gpu_blocks=5000"}, {}, "--num-gpu-blocks-override", nullptr, "5000"},
                       {{"async_scheduling=false"}, {}, "--no-async-scheduling", nullptr, "true"}});
}

TEST(PairLaunch, P20EveryKnobIsToldToItsHalfOfSglang) {
  expect_told(
      "sglang",
      {{{}, {"chunked_prefill_size=4096"}, "--chunked-prefill-size", "4096", nullptr},
       {{}, {"chunked_prefill_size=0"}, "--chunked-prefill-size", "-1", nullptr},
       {{}, {"prefill_max_requests=3"}, "--prefill-max-requests", "3", nullptr},
       {{}, {"max_prefill_tokens=8192"}, "--max-prefill-tokens", "8192", nullptr},
       {{"max_running_requests=48"}, {"max_running_requests=9"}, "--max-running-requests", "9", "48"},
       {{"page_size=32"}, {"page_size=32"}, "--page-size", "32", "32"},
       {{"num_reserved_decode_tokens=100"}, {}, "--num-reserved-decode-tokens", nullptr, "100"},
       {{"disaggregation_decode_extra_slots=5"}, {}, "--disaggregation-decode-extra-slots", nullptr, "5"},
       {{}, {"init_new_token_ratio=0.5"}, "SGLANG_INIT_NEW_TOKEN_RATIO", "0.5", nullptr}});
}

TEST(PairLaunch, P20EveryKnobIsToldToItsHalfOfTrtllm) {
  expect_told(
      "trtllm",
      {{{"max_batch_size=48"}, {"max_batch_size=7"}, "max_batch_size", "7", "48"},
       {{}, {"max_num_tokens=4096"}, "max_num_tokens", "4096", "8192"},
       {{"tokens_per_block=64"}, {"tokens_per_block=64"}, "kv_cache_config.tokens_per_block", "64", "64"},
       {{}, {}, "disable_overlap_scheduler", "true", "false"},
       {{"disable_overlap_scheduler=true"},
        {"disable_overlap_scheduler=false"},
        "disable_overlap_scheduler",
        "false",
        "true"},
       {{"max_tokens_in_buffer=8192"}, {}, "cache_transceiver_config.max_tokens_in_buffer", "8192", "8192"},
       {{}, {}, "cache_transceiver_config.max_tokens_in_buffer", "2048", "2048"},
       {{"capacity_scheduler_policy=MAX_UTILIZATION"},
        {},
        "scheduler_config.capacity_scheduler_policy",
        nullptr,
        "MAX_UTILIZATION"}});
}

// TensorRT-LLM does not reckon with its buffers: the cache's part leaves room for those that were played.
TEST(PairLaunch, P20BuffersThatWerePlayedLieBesideTheCache) {
  const Study study = study_of_line("trtllm");
  const auto parts = [&](const std::vector<std::string>& knobs) {
    const Launch launch = launch_of_service(study, played(study, {knobs, {}}), "1");
    std::vector<double> out;
    for (const char* const half : {"1.trtllm_context", "1.trtllm_generation"})
      out.push_back(
          std::stod(told_by("trtllm", launch, half).at("kv_cache_config.free_gpu_memory_fraction")));
    return out;
  };
  const std::vector<double> small = parts({}), large = parts({"max_tokens_in_buffer=65536"});
  // 64 KiB of BF16 a token on each of two GPUs: two buffers of 65,536 tokens are 8.6 GB of some 65 GB.
  for (const std::size_t half : {0U, 1U}) {
    EXPECT_LT(large[half], small[half] - 0.05);
    EXPECT_GT(large[half], small[half] - 0.3);
  }
}

// It is no option of its own but a word of the connector's.
TEST(PairLaunch, P20ThePolicyOfFailedLoadsIsTheConnectors) {
  const Study study = study_of_line("vllm");
  for (const char* const policy : {"fail", "recompute"}) {
    ServiceAnswer a = played(study, {});
    a.question.knobs = {fmt::format("{}={}", kLoadFailurePolicy, policy)};
    const Launch launch = launch_of_service(study, a, "1");
    const Values v = told_by("vllm", launch, "1.vllm_generation");
    EXPECT_THAT(v.at("--kv-transfer-config"),
                HasSubstr(fmt::format(R"("kv_load_failure_policy":"{}")", policy)));
    EXPECT_FALSE(v.contains("--kv-load-failure-policy"));
  }
}

// What was played and is not told to the front is said.
TEST(PairLaunch, P20WhatTheFrontDoesNotDoIsSaid) {
  const Study study = study_of_line("vllm");
  const auto all = [&](const Asked& asked) {
    std::string text;
    for (const LaunchFile& f : launch_of_service(study, played(study, asked), "1").files) text += f.text;
    return text;
  };
  EXPECT_THAT(all({{}, {}, "tensor:tpa=1,tpf=1", 2, 2, Router::round_robin, 0}),
              Not(HasSubstr("were played")));
  EXPECT_THAT(all({{}, {}, "tensor:tpa=1,tpf=1", 2, 1, Router::least_kv, 0}),
              HasSubstr("played with router least_kv"));
  EXPECT_THAT(all({{}, {}, "tensor:tpa=1,tpf=1", 1, 1, Router::least_kv, 0}),
              Not(HasSubstr("played with router")));
  EXPECT_THAT(all({{}, {}, "tensor:tpa=1,tpf=1", 1, 1, Router::round_robin, 100}),
              HasSubstr("Prompts of at most 100 tokens"));
}

// As many servers as replicas of each pool, and ranks that share a prompt have one in a step.
TEST(PairLaunch, P20ReplicasAndContextParallelism) {
  const Study study = study_of_line("sglang");
  Asked asked;
  asked.replicas = 2;
  asked.prefill_replicas = 3;
  const Launch launch = launch_of_service(study, played(study, asked), "1");
  ASSERT_EQ(launch.servers.size(), 2U);
  EXPECT_THAT(launch.servers[0].title, HasSubstr("for answers, 2 servers"));
  EXPECT_THAT(launch.servers[1].title, HasSubstr("for prompts, 3 servers"));
}

// A plan that the engine does not start has no files, whichever half it is.
TEST(PairLaunch, P20RulesOfTheEngineHold) {
  const Study study = study_of_line("vllm");
  ServiceAnswer a = played(study, {});
  a.question.prefill->plan = parse_plan("ring_pass_kv:cp=2");
  const Launch launch = launch_of_service(study, a, "1");
  EXPECT_THAT(launch.files, testing::IsEmpty());
  EXPECT_NE(launch.refused, "");
}

}  // namespace
}  // namespace shardline
