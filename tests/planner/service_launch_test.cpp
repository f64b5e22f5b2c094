// Launch files of requests that were played: the engine is told the scheduler that was played, whatever knob
// was turned, and nothing of a plan's batch.
#include "planner/studies/service_launch.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/planner/serve/drafting_line.hpp"
#include "tests/planner/serve/served_line.hpp"
#include "tests/planner/told_options.hpp"

namespace shardline {
namespace {

using ::testing::Contains, ::testing::HasSubstr, ::testing::Not, ::testing::Pair;

ServiceAnswer played(const Study& study, const std::vector<std::string>& knobs, int replicas = 1,
                     Router router = Router::round_robin) {
  ServiceQuestion q = question(study);
  q.rate = 1e-3;
  q.requests = 2;
  q.knobs = knobs;
  q.replicas = replicas;
  q.router = router;
  return serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
}

Values told_of_knobs(const std::string& engine, const std::vector<std::string>& knobs) {
  const Study study = study_of_line(engine);
  return told(engine, launch_of_service(study, played(study, knobs), "1"));
}

TEST(ServiceLaunch, P20CapsAreTheSchedulers) {
  for (const char* const engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    const Study study = study_of_line(engine);
    const ServiceAnswer a = played(study, {});
    const Values v = told(engine, launch_of_service(study, a, "1"));
    const bool vllm = engine == std::string("vllm"), sglang = engine == std::string("sglang");
    const char* const most = vllm ? "--max-num-seqs" : sglang ? "--max-running-requests" : "max_batch_size";
    const char* const longest = vllm ? "--max-model-len" : sglang ? "--context-length" : "max_seq_len";
    const char* const tokens = vllm     ? "--max-num-batched-tokens"
                               : sglang ? "--chunked-prefill-size"
                                        : "max_num_tokens";
    const char* const graphs = vllm     ? "--max-cudagraph-capture-size"
                               : sglang ? "--cuda-graph-max-bs-decode"
                                        : "cuda_graph_config.max_batch_size";
    EXPECT_THAT(v, Contains(Pair(most, std::to_string(a.knobs.requests()))));
    EXPECT_THAT(v, Contains(Pair(longest, "2176")));  // 2,048 + 128
    EXPECT_THAT(v, Contains(Pair(tokens, std::to_string(a.knobs.step_tokens()))));
    EXPECT_THAT(v, Contains(Pair(graphs, std::to_string(std::min<long long>(study.study.engine->graphs.back(),
                                                                            a.knobs.requests())))));
  }
}

// Drafts are the plan's, and caps those of the scheduler that was played: in each of its attention groups
// TensorRT-LLM takes as many requests as a step verifies 1 + 3 tokens of.
TEST(ServiceLaunch, P20DraftsAndTheirCapsAreTold) {
  const Study study = drafting_study("trtllm");
  ServiceQuestion q = question(study, "dp_ep:dp=8,ep=8,drafts=3");
  q.rate = 1e-3;
  q.requests = 2;
  q.knobs = {"max_num_tokens=1026"};
  const ServiceAnswer a = drafting_answer(study, q);
  const Values v = told("trtllm", launch_of_service(study, a, "1"));
  EXPECT_THAT(v, Contains(Pair("speculative_config.decoding_type", "MTP")));
  EXPECT_THAT(v, Contains(Pair("speculative_config.max_draft_len", "3")));
  EXPECT_THAT(v, Contains(Pair("max_num_tokens", "1026")));
  EXPECT_THAT(v, Contains(Pair("max_batch_size", "256")));
}

// Every knob, turned away from its default.
struct Turned {
  const char* engine;
  const char* knob;  // or several
  const char* option;
  const char* value;
  const char* gone = "";  // an option that stands there otherwise
};

constexpr Turned kTurned[] = {
    {"vllm", "max_num_batched_tokens=4096", "--max-num-batched-tokens", "4096"},
    {"vllm", "max_num_seqs=48", "--max-num-seqs", "48"},
    {"vllm", "long_prefill_token_threshold=512", "--long-prefill-token-threshold", "512"},
    {"vllm", "block_size=32", "--block-size", "32"},
    {"vllm", "max_model_len=4096", "--max-model-len", "4096"},
    {"vllm", "num_gpu_blocks=5000", "--num-gpu-blocks-override", "5000"},
    {"vllm", "async_scheduling=false", "--no-async-scheduling", "true"},
    {"vllm", "enable_prefix_caching=false", "--no-enable-prefix-caching", "true"},
    {"vllm", "enable_prefix_caching=true", "--enable-prefix-caching", "true"},
    {"vllm", "scheduler_reserve_full_isl=false", "--no-scheduler-reserve-full-isl", "true"},
    {"vllm", "max_model_len=8192 enable_chunked_prefill=false", "--no-enable-chunked-prefill", "true",
     "--enable-chunked-prefill"},
    {"sglang", "chunked_prefill_size=4096", "--chunked-prefill-size", "4096"},
    {"sglang", "chunked_prefill_size=0", "--chunked-prefill-size", "-1"},
    {"sglang", "max_prefill_tokens=8192", "--max-prefill-tokens", "8192"},
    {"sglang", "prefill_max_requests=3", "--prefill-max-requests", "3"},
    {"sglang", "max_running_requests=48", "--max-running-requests", "48"},
    {"sglang", "page_size=16", "--page-size", "16"},
    {"sglang", "context_length=4096", "--context-length", "4096"},
    {"sglang", "max_total_tokens=100000", "--max-total-tokens", "100000"},
    {"sglang", "schedule_conservativeness=0.5", "--schedule-conservativeness", "0.5"},
    {"sglang", "init_new_token_ratio=0.5", "SGLANG_INIT_NEW_TOKEN_RATIO", "0.5"},
    {"sglang", "min_new_token_ratio_factor=0.2", "SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR", "0.2"},
    {"sglang", "new_token_ratio_decay_steps=300", "SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS", "300"},
    {"sglang", "clip_max_new_tokens_estimation=2048", "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION", "2048"},
    {"sglang", "retract_decode_steps=10", "SGLANG_RETRACT_DECODE_STEPS", "10"},
    {"sglang", "disable_overlap_schedule=true", "--disable-overlap-schedule", "true"},
    {"sglang", "enable_mixed_chunk=true", "--enable-mixed-chunk", "true"},
    {"sglang", "disable_radix_cache=true", "--disable-radix-cache", "true"},
    {"sglang", "enable_prefill_delayer=true", "--enable-prefill-delayer", "true"},
    {"sglang", "prefill_delayer_max_delay_passes=10 enable_prefill_delayer=true",
     "--prefill-delayer-max-delay-passes", "10"},
    {"sglang", "prefill_delayer_token_usage_low_watermark=0.2 enable_prefill_delayer=true",
     "--prefill-delayer-token-usage-low-watermark", "0.2"},
    {"sglang", "prefill_delayer_queue_min_ratio=0.3 enable_prefill_delayer=true",
     "--prefill-delayer-queue-min-ratio", "0.3"},
    {"sglang",
     "prefill_delayer_max_delay_ms=900 prefill_delayer_queue_min_ratio=0.3 "
     "enable_prefill_delayer=true",
     "--prefill-delayer-max-delay-ms", "900"},
    {"trtllm", "capacity_scheduler_policy=MAX_UTILIZATION", "scheduler_config.capacity_scheduler_policy",
     "MAX_UTILIZATION"},
    {"trtllm", "context_chunking_policy=EQUAL_PROGRESS", "scheduler_config.context_chunking_policy",
     "EQUAL_PROGRESS"},
    {"trtllm", "max_batch_size=48", "max_batch_size", "48"},
    {"trtllm", "max_num_tokens=4096", "max_num_tokens", "4096"},
    {"trtllm", "batch_wait_timeout_iters=3", "batch_wait_timeout_iters", "3"},
    {"trtllm", "batch_wait_max_tokens_ratio=0.5", "batch_wait_max_tokens_ratio", "0.5"},
    {"trtllm", "tokens_per_block=64", "kv_cache_config.tokens_per_block", "64"},
    {"trtllm", "max_seq_len=4096", "max_seq_len", "4096"},
    {"trtllm", "blocks=5000", "kv_cache_config.max_tokens", "160000"},
    {"trtllm", "disable_overlap_scheduler=true", "disable_overlap_scheduler", "true"},
    {"trtllm", "enable_chunked_prefill=false", "enable_chunked_prefill", "false"},
    {"trtllm", "enable_block_reuse=false", "kv_cache_config.enable_block_reuse", "false"},
};

TEST(ServiceLaunch, P20EveryKnobIsTold) {
  for (const Turned& t : kTurned) {
    SCOPED_TRACE(fmt::format("{} {}", t.engine, t.knob));
    std::vector<std::string> knobs;
    std::istringstream words(t.knob);
    for (std::string word; words >> word;) knobs.push_back(word);
    const Values v = told_of_knobs(t.engine, knobs);
    ASSERT_TRUE(v.contains(t.option));
    const std::string& value = v.at(t.option);
    EXPECT_TRUE(value == t.value || (value.empty() && t.value == std::string("true"))) << value;
    EXPECT_FALSE(v.contains(t.gone));
  }
}

// Of a knob that is turned twice the last is played.
TEST(ServiceLaunch, P20TheLastTurnOfAKnobIsTold) {
  EXPECT_FALSE(told_of_knobs("sglang", {"disable_radix_cache=true", "disable_radix_cache=false"})
                   .contains("--disable-radix-cache"));
  const Values v = told_of_knobs("vllm", {"enable_prefix_caching=false", "enable_prefix_caching=true"});
  EXPECT_TRUE(v.contains("--enable-prefix-caching"));
  EXPECT_FALSE(v.contains("--no-enable-prefix-caching"));
}

// SGLang divides its cap among its attention groups.
TEST(ServiceLaunch, P20CapsOfGroupsAreOfAllOfThem) {
  ServiceAnswer a;
  a.question.plan = parse_plan("dp_ep:dp=4,ep=4");
  SglangKnobs knobs;
  knobs.max_running_requests = 100;
  a.knobs.of = knobs;
  const ServedOptions served = served_options(study_of_line("sglang").study, a);
  const LaunchOption* most = find(served.options, "--max-running-requests");
  ASSERT_NE(most, nullptr);
  EXPECT_EQ(most->value, "400");
}

// Graphs and memory of them are of requests that the scheduler may have at once.
TEST(ServiceLaunch, P20FewRequestsHaveSmallGraphs) {
  const Values few = told_of_knobs("sglang", {"max_running_requests=16"}), many = told_of_knobs("sglang", {});
  EXPECT_EQ(few.at("--cuda-graph-max-bs-decode"), "16");
  EXPECT_GE(std::stod(few.at("--mem-fraction-static")), std::stod(many.at("--mem-fraction-static")));
}

TEST(ServiceLaunch, P20RoutersAreThoseThatWerePlayed) {
  const Study study = study_of_line("vllm");
  const auto front = [&](Router router) {
    const Launch launch = launch_of_service(study, played(study, {}, 2, router), "1");
    std::string all;
    for (const LaunchFile& f : launch.files) all += f.text;
    return all;
  };
  const std::string in_turn = front(Router::round_robin), least = front(Router::least_kv);
  EXPECT_THAT(in_turn, Not(HasSubstr("least_conn")));
  EXPECT_THAT(in_turn, Not(HasSubstr("played with router")));
  EXPECT_THAT(least, HasSubstr("least_conn"));
  EXPECT_THAT(least, HasSubstr("played with router least_kv"));
}

// A plan's batch caps nothing that is played: it is said, and the files do not have it.
TEST(ServiceLaunch, P20ABatchOfThePlanIsNotKept) {
  const Study study = study_of_line("vllm");
  ServiceQuestion q = question(study, "tensor:tpa=2,tpf=2,batch=7");
  q.rate = 1e-3;
  q.requests = 2;
  const ServiceAnswer a = serve_requests(study, q, [](std::uint64_t, std::uint64_t) {});
  ASSERT_FALSE(a.narrow.empty());
  EXPECT_THAT(a.narrow.back().what, HasSubstr("batch=7 of the plan is not kept"));
  const Launch launch = launch_of_service(study, a, "1");
  EXPECT_EQ(told("vllm", launch).at("--max-num-seqs"), std::to_string(a.knobs.requests()));
  for (const LaunchFile& f : launch.files) EXPECT_THAT(f.text, Not(HasSubstr("batch=")));
}

}  // namespace
}  // namespace shardline
