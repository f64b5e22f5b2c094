// Helix as TensorRT-LLM runs it [P18] [P20] [P21]: without its overlap scheduler, so that steps wait for the
// host; with the options of the engine's own test of it; in blocks and types that MLA has there.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "planner/engines/checkpoints.hpp"
#include "planner/engines/deploy.hpp"
#include "planner/engines/launch_files.hpp"
#include "planner/engines/launch_rules.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/engines/transfer_buffers.hpp"
#include "planner/layers/host_work.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/search/memory.hpp"
#include "planner/search/search.hpp"
#include "tests/planner/launchable.hpp"

namespace shardline {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char *kHelixPlan = "helix:kvp=8,ep=8,batch=4,value_up=after",
                     *kTensorPlan = "tensor:tpa=8,ep=8,batch=4";

Study asked(const std::string& more, const Overrides& overrides = {}) {
  const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                          source_path("scenarios"), source_path("planner/engines")};
  return parse_scenario("q.yaml",
                        "name: q\nsystem: gb200-nvl72\nmodels: [deepseek-r1]\ncontext: 100000 tokens\n"
                        "strategies: [tensor, helix]\ngpus: [8]\nbatch: [1, 4, 16]\n" +
                            more,
                        catalogs, overrides)
      .studies.at(0);
}

const char* const kServed = "engine: trtllm\nprecision: {weights: fp4, kv: fp8, math: fp4}\n";

Seconds host_of(const Case& c, double requests) {
  return c.system.host.step + c.system.host.request * requests;
}

// Kernels and host one after the other, where those of other plans lie beside each other.
TEST(TrtllmHelix, P18ItsStepsWaitForTheHost) {
  Case c = asked(kServed).study;
  ASSERT_FALSE(c.engine->host_waited_for);
  const Plan helix = parse_plan(kHelixPlan), tensor = parse_plan(kTensorPlan);
  EXPECT_TRUE(waits_for_host(c, helix));
  EXPECT_FALSE(waits_for_host(c, tensor));
  const Seconds host = host_of(c, 4), with_helix = Evaluator(c).simulate(helix),
                with_tensor = Evaluator(c).simulate(tensor), bound = Evaluator(c).bound(helix);
  c.system.host = {};
  const Seconds kernels = Evaluator(c).simulate(helix), others = Evaluator(c).simulate(tensor);
  EXPECT_NEAR(with_helix.value, (kernels + host).value, 1e-12);
  EXPECT_NEAR(bound.value, (Evaluator(c).bound(helix) + host).value, 1e-12);
  EXPECT_NEAR(with_tensor.value, std::hypot(others.value, host.value), 1e-12);
  c.engine = nullptr;
  EXPECT_FALSE(waits_for_host(c, helix));
}

// Plans of both kinds share blocks of a sweep, and not the one that the host's op is in.
TEST(TrtllmHelix, P18ASweepFindsWhatASimulationDoes) {
  const Study s = asked(kServed);
  SearchOptions options = s.sweep().search;
  options.keep_all = true;
  const SearchResult found = search(s.study, options);
  int helix = 0;
  for (const Point& p : found.all) {
    EXPECT_EQ(p.time, Evaluator(s.study, options.all_reduce).simulate(p.plan)) << to_string(p.plan);
    helix += waits_for_host(s.study, p.plan) ? 1 : 0;
  }
  EXPECT_GT(helix, 3);
  EXPECT_GT(static_cast<int>(found.all.size()), helix + 3);
}

// Its context servers have the overlap scheduler off, too; a server that does both has not.
TEST(TrtllmHelix, P18ServersForPromptsWaitForTheHost) {
  const Case c = asked(kServed).study;
  const Plan plan = parse_plan("tensor:tpa=8,ep=8,batch=1");
  const ContextServer prompts = context_server(c, *c.engine, plan, 8'192);
  EXPECT_TRUE(waits_for_host(prompts.study, prompts.plan));
  Case prefill = prompts.study;
  prefill.disaggregated = false;
  EXPECT_FALSE(waits_for_host(prefill, plan));
  Case of_vllm = prompts.study;
  of_vllm.engine = profile("vllm");
  EXPECT_FALSE(waits_for_host(of_vllm, prompts.plan));
}

std::string text_of(const Launch& launch, const std::string& name) {
  for (const LaunchFile& f : launch.files) {
    if (f.name == name) return f.text;
  }
  ADD_FAILURE() << "no file " << name << ": " << launch.refused;
  return "";
}

// What the engine's own test sets on both sides.
TEST(TrtllmHelix, P20BothHalvesAreStartedAsTheEnginesTestStartsThem) {
  const Case c = asked(kServed).study;
  const Launch helix = launch_files(c, parse_plan(kHelixPlan), *c.engine, "s");
  for (const char* half : {"s_generation.yaml", "s_context.yaml"}) {
    EXPECT_THAT(
        text_of(helix, half),
        AllOf(HasSubstr("disable_overlap_scheduler: true\n"), HasSubstr("  enable_block_reuse: false\n"),
              HasSubstr("  enable_partial_reuse: false\n"), HasSubstr("  tokens_per_block: 32\n"),
              HasSubstr("  backend: UCX\n")))
        << half;
  }
  // Others keep what they had.
  Case prompts = c;
  prompts.batch = prefill_batch({{0, 8'192}});
  const Launch pair = launch_pair({prompts, parse_plan("tensor:tpa=8,ep=8,batch=1,prefill_chunk=8192")},
                                  {c, parse_plan(kTensorPlan)}, *c.engine, "p");
  EXPECT_THAT(
      text_of(pair, "p_generation.yaml"),
      AllOf(Not(HasSubstr("overlap_scheduler")), Not(HasSubstr("reuse")), HasSubstr("  backend: NIXL\n")));
  EXPECT_THAT(text_of(pair, "p_context.yaml"),
              AllOf(HasSubstr("disable_overlap_scheduler: true\n"), Not(HasSubstr("reuse"))));
}

TEST(TrtllmHelix, P20PromptsAreNotUnderHelix) {
  const Case c = decode_case("deepseek-r1", "gb200-nvl72", 32'768);
  const Plan helix = parse_plan(kHelixPlan), tensor = parse_plan(kTensorPlan);
  const auto no = does_not_pair(*profile("trtllm"), c, helix, tensor);
  ASSERT_TRUE(no);
  EXPECT_EQ(no->rule, "pair_helix");
  EXPECT_FALSE(does_not_pair(*profile("trtllm"), c, tensor, helix));
  EXPECT_FALSE(does_not_pair(*profile("trtllm"), c, tensor, tensor));
}

long long number_behind(const std::string& text, const std::string& key) {
  const auto at = text.find(key + ": ");
  EXPECT_NE(at, std::string::npos) << key << " in\n" << text;
  return at == std::string::npos ? -1 : std::stoll(text.substr(at + key.size() + 2));
}

// [P5] Whole blocks, one by one: what rank 0 of the sharers has of them, which is most.
TEST(TrtllmHelix, P5BuffersHoldARanksShareOfThePromptInWholeBlocks) {
  const Case c = asked(kServed).study;
  for (const long long length : {1LL, 31LL, 32LL, 33LL, 255LL, 256LL, 257LL, 100'001LL, 1'000'000LL}) {
    Case of = c;
    of.batch = decode_batch(length);
    for (const int kvp : {2, 4, 8}) {
      const Plan p = parse_plan(fmt::format("helix:kvp={0},ep={0},value_up=after", kvp));
      long long blocks_of_first = 0;
      for (long long token = 0; token < length; token += 32) blocks_of_first += token / 32 % kvp == 0 ? 1 : 0;
      EXPECT_EQ(transfer_tokens(of, p), blocks_of_first * 32) << length << " over " << kvp;
    }
    const long long whole = transfer_tokens(of, parse_plan("tensor:tpa=8,ep=8"));
    EXPECT_EQ(whole % 32, 0);
    EXPECT_GE(whole, length);
    EXPECT_LT(whole, length + 32);
    of.served = {length, 512};  // the answer's tokens are not handed on
    of.batch = decode_batch(length + 256);
    EXPECT_EQ(transfer_tokens(of, parse_plan("tensor:tpa=8,ep=8")), whole);
  }
}

// 61 layers of 512 + 64 values in FP8, to send and to receive, a block more each.
TEST(TrtllmHelix, P5BuffersOfTheTransceiverAreInTheMemory) {
  const Study million = asked(std::string(kServed) + "any_context: true\n");
  Case c = million.study;
  c.batch = decode_batch(1'000'000);
  const Plan helix = parse_plan(kHelixPlan), tensor = parse_plan(kTensorPlan);
  const Bytes own(2.0 * (125'024 + 32) * 61 * 576);
  EXPECT_NEAR(transfer_buffers(c, helix).value, own.value, 1);
  EXPECT_EQ(transfer_buffers(c, tensor), Bytes(0));  // a server that prefills and decodes
  Case ideal = c;
  ideal.engine = nullptr;
  EXPECT_EQ(transfer_buffers(ideal, helix), Bytes(0));
  EXPECT_NEAR((memory_use(c, helix).buffers - memory_use(ideal, helix).buffers).value, own.value, 1);
  Case half = c;
  half.disaggregated = true;
  EXPECT_NEAR(transfer_buffers(half, tensor).value, 2.0 * (1'000'000 + 32) * 61 * 576, 1);
  half.engine = profile("vllm");
  EXPECT_EQ(transfer_buffers(half, tensor), Bytes(0));
}

// The cache gets the part of what is free that the plan was priced with, and the buffers fit into the rest.
TEST(TrtllmHelix, P20TheEmittedPartLeavesRoomForTheBuffers) {
  Case c = asked(std::string(kServed) + "any_context: true\n").study;
  c.batch = decode_batch(1'000'000);
  const Plan helix = parse_plan(kHelixPlan);
  const Launch launch = launch_files(c, helix, *c.engine, "s");
  const std::string generation = text_of(launch, "s_generation.yaml"),
                    context = text_of(launch, "s_context.yaml");
  EXPECT_EQ(number_behind(generation, "max_tokens_in_buffer"), 125'024);
  EXPECT_EQ(number_behind(context, "max_tokens_in_buffer"), 1'000'000);
  const MemoryUse use = memory_use(c, helix);
  const KeptOf of = kept_of(c, *c.engine, helix);
  const Bytes buffers = transfer_buffers(c, helix),
              free = c.system.device.memory - use.weights - c.engine->kept.set_aside(of),
              room = c.engine->room_for_kv(c.system.device, use.weights, use.activations + use.buffers, of);
  const std::string key = "free_gpu_memory_fraction: ";
  const double part = std::stod(generation.substr(generation.find(key) + key.size()));
  EXPECT_LT(part, 0.8);
  EXPECT_GE((free * part).value + 1e-4 * free.value, room.value);
  EXPECT_LE((free * part + buffers + use.activations).value, free.value);
  // All ranks of the context server hold all latents, twice in its buffers beside the cache.
  EXPECT_LT(std::stod(context.substr(context.find(key) + key.size())), 0.9);
}

// A default that differs between versions is said.
TEST(TrtllmHelix, P20GroupsAreToldNotToTakeDeepEp) {
  const Case c = asked(kServed).study;
  EXPECT_THAT(text_of(launch_files(c, parse_plan("dp_ep:dp=8,ep=8,batch=4"), *c.engine, "s"), "s.sh"),
              HasSubstr("export TRTLLM_CAN_USE_DEEP_EP=0\n"));
  EXPECT_THAT(text_of(launch_files(c, parse_plan(kTensorPlan), *c.engine, "s"), "s.sh"),
              Not(HasSubstr("DEEP_EP")));
}

std::string refused(const std::string& more, const Overrides& overrides = {}) {
  try {
    asked(more, overrides);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

// What the user says is held to or refused, never replaced.
TEST(TrtllmHelix, P21AUsersBlockIsRefusedWhereMlaHasAnother) {
  const std::string text = refused(std::string(kServed) + "kv_block: 16 tokens\n");
  EXPECT_THAT(text, HasSubstr("q.yaml:10:11: TensorRT-LLM 1.3.0rc20 does not start: blocks of 16 "
                              "tokens of deepseek-r1, which has MLA, on "));
  EXPECT_THAT(
      text,
      HasSubstr("expected 32 tokens, as --set kv_block='32 tokens' on the command line, or no kv_block"));
  EXPECT_THAT(text, HasSubstr("MLA has kernels for blocks of 32 tokens on Blackwell, and of 64 on Hopper; "
                              "others take a power of two (NVI"));
  Overrides set;
  set.settings = {"kv_block=32 tokens"};
  EXPECT_EQ(asked(std::string(kServed) + "kv_block: 16 tokens\n", set).study.kv_block, 32);
  EXPECT_EQ(asked(std::string(kServed) + "kv_block: 32 tokens\n").study.kv_block, 32);
  EXPECT_EQ(asked(kServed).study.kv_block, 32);
}

// [P21] 64 on Hopper, 32 on Blackwell; other models choose.
TEST(TrtllmHelix, P21BlocksOfMla) {
  EXPECT_EQ(asked("kv_block: 16 tokens\n").study.kv_block, 16);
  EXPECT_EQ(block_of("trtllm", case_of("trtllm", {kR1, kH100, ""})), 64);
  EXPECT_EQ(block_of("trtllm", case_of("trtllm", {kR1, kGb, ""})), 32);
  EXPECT_EQ(block_of("trtllm", case_of("trtllm", {kL70, kH100, ""})), std::nullopt);
  EXPECT_EQ(block_of("vllm", case_of("vllm", {kR1, kH100, ""})), std::nullopt);
  const Case hopper = case_of("trtllm", {kR1, "h200-hgx", ""});
  Case prompts = hopper;
  prompts.batch = prefill_batch({{0, 8'192}});
  const Launch pair = launch_pair({prompts, parse_plan("tensor:tpa=8,ep=8,batch=1,prefill_chunk=8192")},
                                  {hopper, parse_plan("tensor:tpa=16,ep=16,batch=4")}, *hopper.engine, "p");
  for (const char* half : {"p_generation.yaml", "p_context.yaml"})
    EXPECT_THAT(text_of(pair, half), HasSubstr("  tokens_per_block: 64\n"));
}

// The headline of bare kernels has a cache that the engine has not: what to write is said.
TEST(TrtllmHelix, P21TheHeadlinesCacheIsRefusedWithWhatWorks) {
  const std::string headline = "precision: {weights: fp4, kv: fp4, math: fp4}\n";
  try {
    asked(headline, {{}, "trtllm"});
    ADD_FAILURE() << "a cache in NVFP4 under MLA starts";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(),
                AllOf(HasSubstr("deepseek-r1 has MLA, whose cache it does not keep in NVFP4"),
                      HasSubstr("expected fp8 or bf16, as --set precision.kv=fp8 on the command line")));
  }
  EXPECT_NO_THROW(asked("precision: {weights: fp4, kv: fp8, math: fp4}\n", {{}, "trtllm"}));
}

// DeepSeek-R1-FP4 keeps attention in BF16.
TEST(TrtllmHelix, P20TypesOfNoPublishedCheckpointAreSaid) {
  EXPECT_EQ(stored_otherwise(asked(kServed).study), "attention bf16, output projection bf16");
  const Case own =
      asked(
          "engine: trtllm\nprecision: {weights: fp4, kv: fp8, math: fp4, attention_weights: bf16, "
          "attention_math: bf16}\n")
          .study;
  EXPECT_EQ(stored_otherwise(own), "");
  EXPECT_EQ(checkpoint_of(own), "nvidia/DeepSeek-R1-FP4");
  Case none = own;
  none.precision = all_bf16();
  EXPECT_EQ(checkpoint_of(none), "");
  EXPECT_EQ(stored_otherwise(none), "");
}

}  // namespace
}  // namespace shardline
