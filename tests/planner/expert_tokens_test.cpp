// How tokens of several attention groups reach experts: dispatch and combine, or all-gather and
// reduce-scatter, as engines are told (moe_a2a).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "planner/engines/deploy.hpp"
#include "planner/engines/dispatch_room.hpp"
#include "planner/engines/launch_files.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/share.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/search/memory.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/error.hpp"
#include "tests/planner/launchable.hpp"

namespace shardline {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kGathers = "dp_ep:dp=8,ep=8,batch=16,moe_a2a=gather";
constexpr const char* kSends = "dp_ep:dp=8,ep=8,batch=16";

Case r1(const std::string& engine, Batch batch, const char* system = "h200-hgx") {
  Case c = decode_case(kR1, system, 8192);
  c.precision = all_bf16();
  c.precision.weights = Dtype::fp8_block;
  c.precision.math = Dtype::fp8;
  c.precision.dispatch = Dtype::fp8;
  c.batch = std::move(batch);
  if (!engine.empty()) c.engine = profile(engine);
  return c;
}

// Messages of one layer's experts, in order.
std::vector<Op> messages(const Case& c, const std::string& plan) {
  Evaluator e(c);
  e.simulate(parse_plan(plan));
  const Schedule& s = e.schedule();
  std::vector<Op> out;
  for (const Block& b : s.blocks) {
    if (std::strcmp(b.name, "expert FFN") != 0) continue;
    for (OpIndex i = b.first; i < b.last; ++i) {
      if (s.ops[i].lane == Lane::communication) out.push_back(s.ops[i]);
    }
    break;
  }
  return out;
}

double bytes(const Op& op) { return std::get<ExchangeShape>(op.shape).bytes.value; }

TEST(ExpertTokens, VllmGathersQuantisedTokensAndReduceScattersOutputs) {
  const Case c = r1("vllm", decode_batch(8192));
  const std::vector<Op> m = messages(c, kGathers);
  ASSERT_EQ(m.size(), 2u);
  EXPECT_EQ(m[0].kind, OpKind::all_gather);
  EXPECT_EQ(m[0].group.size, 8);
  EXPECT_NEAR(bytes(m[0]), 16 * 7168 * bytes_per_dispatched_element(Dtype::fp8), 1e-6);  // of this rank
  EXPECT_EQ(m[0].dtype, Dtype::fp8);
  EXPECT_EQ(m[1].kind, OpKind::reduce_scatter);
  EXPECT_NEAR(bytes(m[1]), 8 * 16 * 7168 * 2.0, 1e-6);  // of all tokens
}

TEST(ExpertTokens, SglangGathersHiddenStatesAndSumsThoseOfPrompts) {
  const std::vector<Op> decoding = messages(r1("sglang", decode_batch(8192)), kGathers);
  ASSERT_EQ(decoding.size(), 2u);
  EXPECT_EQ(decoding[0].kind, OpKind::all_gather);
  EXPECT_NEAR(bytes(decoding[0]), 16 * 7168 * 2.0, 1e-6);
  EXPECT_EQ(decoding[1].kind, OpKind::reduce_scatter);
  const std::vector<Op> prompts =
      messages(r1("sglang", prefill_batch({{0, 500}})), "dp_ep:dp=8,ep=8,batch=1,moe_a2a=gather");
  ASSERT_EQ(prompts.size(), 2u);
  for (const Op& op : prompts) {
    EXPECT_EQ(op.kind, OpKind::all_reduce);
    EXPECT_NEAR(bytes(op), 8 * 500 * 7168 * 2.0, 1e-6);
  }
}

// Ranks of a group have the same tokens: each sends its part, and gets the others' back at the end.
TEST(ExpertTokens, RanksOfAGroupDivideItsTokens) {
  const std::vector<Op> m =
      messages(r1("vllm", decode_batch(8192)), "dp_ep:dp=4,tpa=2,ep=8,batch=16,moe_a2a=gather");
  ASSERT_EQ(m.size(), 3u);
  EXPECT_NEAR(bytes(m[0]), 8 * 7168 * bytes_per_dispatched_element(Dtype::fp8), 1e-6);
  EXPECT_NEAR(bytes(m[1]), 4 * 16 * 7168 * 2.0, 1e-6);
  EXPECT_EQ(m[2].kind, OpKind::all_gather);
  EXPECT_EQ(m[2].group.size, 2);
}

// Rows of the router and columns of the shared experts of one layer.
std::pair<Count, Count> beside(const Case& c, const std::string& plan) {
  Evaluator e(c);
  e.simulate(parse_plan(plan));
  const Schedule& s = e.schedule();
  std::pair<Count, Count> out;
  for (const Block& b : s.blocks) {
    if (std::strcmp(b.name, "expert FFN") != 0) continue;
    for (OpIndex i = b.first; i < b.last; ++i) {
      if (std::strcmp(s.ops[i].name, "router") == 0) out.first = std::get<GemmShape>(s.ops[i].shape).rows;
      if (std::strcmp(s.ops[i].name, "shared experts down") == 0)
        out.second = std::get<GemmShape>(s.ops[i].shape).k;
    }
    break;
  }
  return out;
}

// Of a group of two ranks with 16 requests each rank of vLLM routes half of them, beside whole shared experts
// (2,048 wide); SGLang routes those of all four groups on every rank where it gathers them, with shared
// experts over all ranks, and its part behind DeepEP. Bare kernels share them in the group.
TEST(ExpertTokens, WhatStandsBesideExpertsIsTheEngines) {
  const std::string gathers = "dp_ep:dp=4,tpa=2,ep=8,batch=16,moe_a2a=gather",
                    sends = "dp_ep:dp=4,tpa=2,ep=8,batch=16";
  const auto of = [&](const char* engine, const std::string& plan) {
    return beside(r1(engine, decode_batch(8192)), plan);
  };
  EXPECT_EQ(of("vllm", gathers), std::pair(Count{8}, Count{2048}));
  EXPECT_EQ(of("vllm", sends), std::pair(Count{8}, Count{2048}));
  EXPECT_EQ(of("sglang", gathers), std::pair(Count{64}, Count{256}));
  EXPECT_EQ(of("sglang", sends), std::pair(Count{8}, Count{2048}));
  EXPECT_EQ(of("", sends), std::pair(Count{16}, Count{1024}));
  // Memory holds what a rank computes with.
  const auto shared = [&](const char* engine, const std::string& plan) {
    const Case c = r1(engine, decode_batch(8192));
    return shared_expert_ranks(c, parse_plan(plan));
  };
  EXPECT_EQ(shared("vllm", gathers), 1);
  EXPECT_EQ(shared("sglang", gathers), 8);
  EXPECT_EQ(shared("sglang", sends), 1);
  EXPECT_EQ(shared("", sends), 2);
  EXPECT_EQ(shared("vllm", "tensor:tpa=8,ep=8,batch=16"), 8) << "one group";
}

TEST(ExpertTokens, AllTokensOfTheStageAreInMemoryOnce) {
  const Case c = r1("vllm", decode_batch(8192));
  const double more =
      activation_bytes(c, parse_plan(kGathers)).value - activation_bytes(c, parse_plan(kSends)).value;
  EXPECT_GE(more, 0);
  EXPECT_LE(more, 2 * 8 * 16 * 7168 * 2.0);
}

// The rule of an engine that refuses the plan.
std::string refused(Case c, const std::string& plan) {
  const auto refusal = does_not_start(c, parse_plan(plan));
  return refusal ? refusal->rule : "";
}

TEST(ExpertTokens, AServerOfVllmHasOneBackend) {
  Case c = r1("vllm", decode_batch(8192));
  EXPECT_EQ(refused(c, kSends), "");
  EXPECT_EQ(refused(c, kGathers), "");
  c.served = {8192, 1024};
  EXPECT_EQ(refused(c, kSends), "expert_tokens");
  EXPECT_EQ(refused(c, kGathers), "");
  c.disaggregated = true;
  EXPECT_EQ(refused(c, kSends), "");
  c = r1("sglang", decode_batch(8192));
  c.served = {8192, 1024};
  EXPECT_EQ(refused(c, std::string(kSends) + ",dense_tp=1"), "");
  EXPECT_EQ(refused(c, std::string(kGathers) + ",dense_tp=1"), "");
}

TEST(ExpertTokens, TensorrtLlmGathersBeyondAnNvlinkDomain) {
  const std::string wide = "dp_ep:dp=16,ep=16,batch=16,dense_tp=1";
  for (const auto& [system, inside] :
       std::vector<std::pair<const char*, bool>>{{"h200-hgx", false}, {"gb200-nvl72", true}}) {
    Case c = r1("trtllm", decode_batch(8192), system);
    c.kv_block = tensorrt_llm_block(c);
    EXPECT_EQ(refused(c, wide), inside ? "" : "expert_tokens") << system;
    EXPECT_EQ(refused(c, wide + ",moe_a2a=gather"), inside ? "expert_tokens" : "") << system;
  }
}

TEST(ExpertTokens, BothWaysAreTriedWhereTheEngineHasThem) {
  const auto tried = [](const std::string& engine, int gpus) {
    const Case c = r1(engine, decode_batch(8192));
    std::vector<Plan> plans;
    strategy("dp_ep").enumerate(c, gpus, {}, plans);
    std::pair<int, int> counts;
    for (const Plan& p : plans) {
      EXPECT_EQ(check_plan(c, p), std::nullopt);
      ++(p[kExpertTokens] == ExpertTokens::gather ? counts.first : counts.second);
    }
    return counts;
  };
  for (const char* engine : {"vllm", "sglang"}) {
    EXPECT_GT(tried(engine, 8).first, 0) << engine;
    EXPECT_GT(tried(engine, 8).second, 0) << engine;
  }
  EXPECT_EQ(tried("", 8).first, 0);
  EXPECT_EQ(tried("trtllm", 8).first, 0);
  EXPECT_EQ(tried("trtllm", 16).second, 0);
  EXPECT_GT(tried("trtllm", 16).first, 0);
}

TEST(ExpertTokens, WhatHasNothingToGather) {
  const Case c = r1("vllm", decode_batch(8192));
  const auto reason = [&](const char* plan) { return check_plan(c, parse_plan(plan)).value_or(""); };
  EXPECT_EQ(reason(kGathers), "");
  EXPECT_THAT(reason("dp_ep:dp=8,ep=8,batch=16,overlap=two_batch,moe_a2a=gather"),
              HasSubstr("not with moe_a2a=gather"));
  EXPECT_THAT(reason("dcp:tpa=8,dcp=2,ep=8,batch=16,moe_a2a=gather"), HasSubstr("dp and ep of 2 or more"));
  EXPECT_EQ(reason("dcp:dp=2,tpa=4,dcp=2,ep=8,batch=16,moe_a2a=gather"), "");
  EXPECT_THROW(parse_plan("tensor:tpa=8,ep=8,batch=2,moe_a2a=gather"), UserError);
}

// What is timed is what the command line starts.
TEST(ExpertTokens, FlagsNameTheBackend) {
  const auto flags = [](const Case& c, const std::string& plan) {
    const auto all = deployments(c, parse_plan(plan));
    return all.size() == 1 ? options_text(all.front()) : "";
  };
  Case vllm = r1("vllm", decode_batch(8192));
  EXPECT_THAT(flags(vllm, kSends), HasSubstr("--all2all-backend deepep_low_latency"));
  EXPECT_THAT(flags(vllm, kGathers), HasSubstr("--all2all-backend allgather_reducescatter"));
  EXPECT_THAT(flags(vllm, "tensor:tpa=8,ep=8,batch=16"), Not(HasSubstr("all2all")));
  vllm.served = {8192, 1024};
  EXPECT_THAT(flags(vllm, kSends), HasSubstr("--all2all-backend deepep_high_throughput"));
  vllm.batch = prefill_batch({{0, 500}});
  EXPECT_THAT(flags(vllm, "dp_ep:dp=8,ep=8,batch=1"), HasSubstr("deepep_high_throughput"));
  const Case sglang = r1("sglang", decode_batch(8192));
  EXPECT_THAT(flags(sglang, kSends), HasSubstr("--moe-a2a-backend deepep"));
  EXPECT_THAT(flags(sglang, kGathers), HasSubstr("--moe-a2a-backend none"));
  // 200 tokens of a group, which its two ranks divide.
  EXPECT_THAT(flags(sglang, "dp_ep:dp=8,ep=8,batch=200"),
              HasSubstr("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=200 "));
  EXPECT_THAT(flags(sglang, "dp_ep:dp=4,tpa=2,ep=8,batch=200"), Not(HasSubstr("MAX_DISPATCH")));
}

// DeepEP's formula (csrc/legacy/config.hpp), counted message by message: two buffers each to send, to receive
// and to signal.
TEST(ExpertTokens, P25BuffersOfFewTokensAreDeepEpsOwn) {
  for (const long long hidden : {2048LL, 4096LL, 7168LL}) {
    for (const long long experts : {128LL, 256LL}) {
      for (const long long tokens : {1LL, 128LL, 512LL, 8192LL}) {
        const long long scales = hidden / 128;
        const long long dispatch = 16 + std::max(hidden * 2, hidden + scales * 4),
                        combine = scales * 4 + hidden * 2;
        long long bytes = 0;
        for (int half = 0; half < 2; ++half) {
          bytes += std::max(tokens * dispatch, experts * tokens * combine);
          bytes += std::max(experts * tokens * dispatch, experts * tokens * combine);
          bytes += (experts * 4 + 127) / 128 * 128;
        }
        bytes = (bytes + 128) / 128 * 128;
        EXPECT_EQ(low_latency_bytes(tokens, hidden, experts).value, static_cast<double>(bytes));
      }
    }
  }
  // What vLLM's default budget of a step would take of DeepSeek-R1, and what a step of 256 requests does.
  EXPECT_NEAR(low_latency_bytes(8192, 7168, 256).value, 122.1e9, 0.1e9);
  EXPECT_NEAR(low_latency_bytes(256, 7168, 256).value, 3.8e9, 0.1e9);
  EXPECT_EQ(queue_pair_depth(511), 1024);
  EXPECT_EQ(queue_pair_depth(512), 2048);
  EXPECT_EQ(queue_pair_depth(1023), 2048);
}

// A server of the kernels of few tokens has the budget that its memory was reckoned with.
TEST(ExpertTokens, P25BudgetsAreTheRoomsThatWerePriced) {
  for (const int batch : {1, 100, 128, 200, 500, 700}) {
    Case c = r1("vllm", decode_batch(8192));
    c.served = {8192, 1024};
    c.disaggregated = true;
    const Plan plan = parse_plan(fmt::format("dp_ep:dp=16,ep=16,batch={}", batch));
    const long long room = dispatch_room(c, plan);
    EXPECT_GE(room, std::max(batch, 128));
    EXPECT_LE(room, std::max(batch + 16, 128));
    const ContextServer prompts = context_server(c, *c.engine, parse_plan("tensor:tpa=8,ep=8,batch=1"), 8192);
    const Launch launch = launch_pair({prompts.study, prompts.plan}, {c, plan}, *c.engine, "p");
    ASSERT_EQ(launch.refused, "");
    const std::string& generation = launch.servers.front().lines.front();
    EXPECT_THAT(generation, HasSubstr(fmt::format("--max-num-batched-tokens {} ", room)));
    EXPECT_THAT(generation, HasSubstr("deepep_low_latency"));
    EXPECT_EQ(generation.find("NVSHMEM_QP_DEPTH=2048") != std::string::npos, room > 511) << generation;
    const Bytes with = memory_use(c, plan).buffers;
    Case bare = c;
    bare.engine = nullptr;
    const Bytes hint = low_latency_bytes(room, 7168, 256);
    EXPECT_NEAR((with - memory_use(bare, plan).buffers - hint).value, double(1 << 30), 1.0);
    // Nothing of it without these kernels.
    const Plan gathers = parse_plan(fmt::format("dp_ep:dp=16,ep=16,batch={},moe_a2a=gather", batch));
    EXPECT_EQ(memory_use(c, gathers).buffers, memory_use(bare, gathers).buffers);
  }
}

TEST(ExpertTokens, KeysOfAProfile) {
  using Gathers = TokenExchange::Gathers;
  EXPECT_EQ(profile("vllm")->tokens_to_experts.gathers, Gathers::untold);
  EXPECT_TRUE(profile("vllm")->tokens_to_experts.of_server);
  EXPECT_TRUE(profile("sglang")->tokens_to_experts.sums_prompts);
  EXPECT_FALSE(profile("sglang")->tokens_to_experts.as_dispatched);
  EXPECT_EQ(profile("trtllm")->tokens_to_experts.gathers, Gathers::across);
  for (const char* keys : {"{gathered: never, why: w}", "{gathered: untold, sent: dispatched, why: w}"}) {
    try {
      parse_engine("x.yaml", std::string("name: x\nexpert_tokens: ") + keys + "\n");
      ADD_FAILURE() << keys;
    } catch (const UserError& e) {
      EXPECT_THAT(e.what(), HasSubstr("expert_tokens"));
    }
  }
}

}  // namespace
}  // namespace shardline
