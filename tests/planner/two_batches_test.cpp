// Two halves of a batch whose messages to experts lie beside the other's kernels [P23].
#include "planner/layers/two_batches.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "planner/engines/deploy.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/layers/share.hpp"
#include "planner/search/block_times.hpp"
#include "planner/search/search.hpp"
#include "planner/serving/served_plan.hpp"
#include "sim/base/error.hpp"
#include "tests/planner/launchable.hpp"

namespace shardline {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Plan with_halves(const std::string& text) { return parse_plan(text + ",overlap=two_batch"); }

Case r1(const std::string& engine, Batch batch, const char* system = "h200-hgx") {
  Case c = decode_case(kR1, system, 8192);
  c.precision = all_bf16();
  c.precision.weights = Dtype::fp8_block;
  c.precision.math = Dtype::fp8;
  c.batch = std::move(batch);
  if (!engine.empty()) c.engine = profile(engine);
  c.system.host = {};
  return c;
}

// Seconds of one half's layer, by what runs when.
struct Parts {
  double prepare = 0, attend = 0, dispatch = 0, experts = 0, shared = 0, combine = 0, behind = 0;
};

// Written down a second time, from the ops of a plan that has half the requests and no halves of its own.
// `slower`: what taken processors make of products that arithmetic holds up.
Parts parts_of(const Case& c, const std::string& text) {
  Evaluator e(c);
  e.simulate(parse_plan(text));
  const Schedule& s = e.schedule();
  Parts p;
  double* at = &p.prepare;
  for (const Block& b : s.blocks) {
    if (std::strcmp(b.name, "attention") != 0 && std::strcmp(b.name, "expert FFN") != 0) continue;
    for (OpIndex i = b.first; i < b.last; ++i) {
      Op op = s.ops[i];
      if (is_gemm(op.kind)) op.launches = std::max(1.0, op.launches);
      const double time = e.cost().time(op).value;
      if (is_attention(op.kind)) at = &p.attend;
      if (op.kind == OpKind::dispatch || op.kind == OpKind::combine) {
        (op.kind == OpKind::dispatch ? p.dispatch : p.combine) += time;
        at = op.kind == OpKind::dispatch ? &p.experts : &p.behind;
      } else {
        (at == &p.experts && std::strncmp(op.name, "shared", 6) == 0 ? p.shared : *at) += time;
      }
    }
  }
  return p;
}

// What a schedule's blocks take that are not woven, and how many layers are.
double others(Evaluator& e, int& layers) {
  const Schedule s = e.schedule();
  const std::vector<double> runs = executions(s);
  PassScratch scratch(e.cost());
  double sum = 0;
  for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
    if (std::strcmp(s.blocks[b].name, "two batches") == 0) layers = static_cast<int>(runs[b]) + 1;
    if (std::strncmp(s.blocks[b].name, "two batches", 11) == 0) continue;
    sum += runs[b] * simulate_block(s, s.blocks[b], e.cost(), scratch);
  }
  return sum;
}

TEST(TwoBatches, SwappedHalvesTakeTheLongerOfKernelsAndMessageInEachPair) {
  for (const int each : {4, 32, 64}) {
    const Case c = r1("", decode_batch(8192));
    const Parts p = parts_of(c, "dp_ep:dp=8,ep=8,batch=" + std::to_string(each));
    EXPECT_GT(std::min({p.prepare, p.attend, p.dispatch, p.experts, p.shared, p.combine, p.behind}), 0);
    const double a = p.prepare + p.attend, d = p.dispatch, m = p.combine;
    Evaluator e(c);
    const double time = e.simulate(with_halves("dp_ep:dp=8,ep=8,batch=" + std::to_string(2 * each))).value;
    int layers = 0;
    const double rest = others(e, layers);
    EXPECT_EQ(layers, 58);
    const double first = a + std::max(a, d);
    const double middle = std::max(p.experts, d) + std::max(p.shared + p.experts, m) +
                          std::max(p.shared + p.behind + a, m) + std::max(p.behind + a, d);
    const double last = std::max(p.experts, d) + std::max(p.shared + p.experts, m) +
                        std::max(p.shared + p.behind, m) + p.behind;
    EXPECT_NEAR(time, rest + first + (layers - 1) * middle + last, 1e-9 * time) << each;
    const double bound = e.bound(with_halves("dp_ep:dp=8,ep=8,batch=" + std::to_string(2 * each))).value;
    EXPECT_NEAR(bound, time, 1e-9 * time) << each;  // nothing is shared
  }
}

TEST(TwoBatches, LaggingHalvesTakeTheLongerOfKernelsAndMessageInEachPair) {
  Case c = r1("sglang", decode_batch(8192));
  Case half = c;
  half.graph_parts = 2;
  const Parts p = parts_of(half, "dp_ep:dp=8,ep=8,batch=32");
  Evaluator e(c);
  const double time = e.simulate(with_halves("dp_ep:dp=8,ep=8,batch=64")).value;
  int layers = 0;
  const double rest = others(e, layers);
  const double sent = std::max(p.shared + p.behind + p.prepare, p.dispatch);
  const double back = std::max(p.attend, p.combine);
  const double first = p.prepare + p.attend + std::max(p.shared + p.prepare, p.dispatch);
  const double last = 2 * p.experts + back + std::max(p.shared + p.behind, p.dispatch) + p.combine + p.behind;
  EXPECT_NEAR(time, rest + first + (layers - 1) * 2 * (p.experts + back + sent) + last, 1e-9 * time);
  EXPECT_NE(
      time,
      Evaluator(r1("vllm", decode_batch(8192))).simulate(with_halves("dp_ep:dp=8,ep=8,batch=64")).value);
}

// Of all products and attentions, as two halves one after the other do; and of all messages.
TEST(TwoBatches, HalvesDoWhatTheyDoAlone) {
  for (const Batch& batch :
       {decode_batch(8192), prefill_batch({{0, 4096}}), prefill_batch({{1000, 3001, 3}})}) {
    const Case c = r1("", batch);
    std::map<std::string, double> whole, alone;
    const auto count = [](const Case& of, const Plan& plan, std::map<std::string, double>& sums) {
      const Schedule s = lowered(of, to_string(plan));
      const std::vector<double> runs = executions(s);
      for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
        if (std::strcmp(s.blocks[b].name, "head") == 0) continue;
        for (OpIndex i = s.blocks[b].first; i < s.blocks[b].last; ++i) {
          const Op& op = s.ops[i];
          sums[std::string(op.name) + " flops"] += runs[b] * flops(op).value;
          sums[std::string(op.name) + " bytes"] += runs[b] * message_bytes(op).value;
          sums[std::string(op.name) + " kv"] += runs[b] * kv_bytes(op).value;
        }
      }
    };
    Case sparse = c;  // layers with experts alone
    cut_layers(sparse, 6, 0);
    set_routing(sparse, Routing{});
    Plan plan = parse_plan("dp_ep:dp=8,ep=8,batch=7");
    plan.set(kOverlap, Overlap::two_batch);
    count(sparse, plan, whole);
    for (int which = 0; which < 2; ++which) {
      Case half = sparse;
      half.batch = half_of(sparse, plan, which).batch;
      count(half, parse_plan("dp_ep:dp=8,ep=8,batch=1"), alone);
    }
    EXPECT_GT(whole.size(), 20u);
    for (const auto& [name, sum] : alone) EXPECT_NEAR(whole[name], sum, 1e-9 * sum) << name;
    EXPECT_EQ(whole.size(), alone.size());
  }
}

TEST(TwoBatches, HalvesHaveAllTokensAndPairs) {
  Case c = r1("", prefill_batch({{100, 700, 2}, {0, 301, 1}}));
  c.batch.decode = {{4095, 1, 5}};
  const Plan plan = with_halves("dp_ep:dp=8,ep=8,batch=3");
  const auto pairs = [](const std::vector<Segment>& all) {
    long long sum = 0;
    for (const Segment& s : all) {
      for (long long t = 1; t <= s.fresh; ++t) sum += s.count * (s.cached + t);
    }
    return sum;
  };
  const Case first = half_of(c, plan, 0), second = half_of(c, plan, 1);
  EXPECT_EQ(requests_in(first.batch.decode), 15);
  EXPECT_EQ(requests_in(second.batch.decode), 0);
  const long long tokens = 15 + 3 * 1701;
  EXPECT_EQ(15 + first.fresh_tokens(), tokens / 2);
  EXPECT_EQ(first.fresh_tokens() + second.fresh_tokens(), 3 * 1701);
  EXPECT_EQ(pairs(first.batch.prefill) + pairs(second.batch.prefill), 3 * pairs(c.batch.prefill));
}

TEST(TwoBatches, NeverLongerThanOneHalfAfterTheOther) {
  for (const char* system : {"h200-hgx", "gb200-nvl72"}) {
    for (const char* engine : {"", "vllm", "sglang"}) {
      for (const bool prompts : {false, true}) {
        for (const int batch : {2, 16, 64, 256}) {
          SCOPED_TRACE(std::string(system) + engine + (prompts ? " prompts " : " ") + std::to_string(batch));
          const Case c = r1(engine, prompts ? prefill_batch({{0, 64}}) : decode_batch(8192), system);
          const std::string text = "dp_ep:dp=8,ep=8,batch=";
          Evaluator e(c);
          Plan plan = with_halves(text + std::to_string(batch));
          const double time = e.simulate(plan).value, bound = e.bound(plan).value;
          int layers = 0;
          const double rest = others(e, layers);
          Case half = c;
          half.graph_parts = 2;
          const Parts p = parts_of(half, text + std::to_string(batch / 2));
          const double alone =
              p.prepare + p.attend + p.dispatch + p.experts + p.shared + p.combine + p.behind;
          const double kernels = alone - p.dispatch - p.combine;
          const int sms = c.system.device.multiprocessors;
          ASSERT_GT(sms, 20);
          const double taken = prompts ? static_cast<double>(sms) / (sms - 20) : 1;
          EXPECT_LE(time, rest + 2 * layers * (alone + (taken - 1) * kernels) * (1 + 1e-9));
          EXPECT_GE(time * (1 + 1e-9), rest + 2 * layers * kernels);
          EXPECT_LE(bound, time * (1 + 1e-9));
        }
      }
    }
  }
}

TEST(TwoBatches, MessagesOfPromptsTakeProcessorsFromWhatArithmeticHoldsUp) {
  const Case c = r1("", prefill_batch({{0, 8192}}));
  Plan plan = with_halves("dp_ep:dp=8,ep=8,batch=1");
  const Schedule s = lowered(c, to_string(plan));
  const double part = 1 - 20.0 / c.system.device.multiprocessors;
  CostModel cost(c.system);
  std::size_t slower = 0;
  for (const Op& op : s.ops) {
    if (op.sms == 1) continue;
    EXPECT_EQ(op.sms, part) << op.name;
    Op alone = op;
    alone.sms = 1;
    EXPECT_GE(cost.time(op), cost.time(alone));
    EXPECT_NEAR(cost.alone(cost.price(op)).value, cost.time(op).value, 1e-9 * cost.time(op).value);
    slower += cost.time(op) > cost.time(alone) ? 1 : 0;
  }
  EXPECT_GT(slower, 4u);
  for (const Op& op : lowered(r1("", decode_batch(8192)), "dp_ep:dp=8,ep=8,batch=64,overlap=two_batch").ops)
    EXPECT_EQ(op.sms, 1) << op.name;
}

TEST(TwoBatches, AGraphHoldsBothHalves) {
  const Case c = r1("vllm", decode_batch(8192));
  // 20 requests are padded to 24.
  for (const Op& op : ops_named(lowered(c, "dp_ep:dp=8,ep=8,batch=20,overlap=two_batch"), "router"))
    EXPECT_EQ(shape<GemmShape>(op).rows, 12);
}

TEST(TwoBatches, BlocksAreTheEvaluatorsToTheBit) {
  for (const char* engine : {"", "vllm", "sglang"}) {
    const Case c = r1(engine, decode_batch(8192));
    Evaluator direct(c), other(c);
    const std::vector<int> batches{1, 2, 3, 64, 65};
    BlockTimes times(other, std::make_shared<KnownBlocks>(batches));
    Plan p = with_halves("dp_ep:dp=8,ep=8,batch=2");
    times.start(p);
    for (std::size_t i = 1; i < batches.size(); ++i) {
      p.batch = batches[i];
      EXPECT_EQ(times.bound(i).value, direct.bound(p).value) << p.batch;
      EXPECT_EQ(times.simulate(i).value, direct.simulate(p).value) << p.batch;
    }
  }
}

TEST(TwoBatches, WhatCannotBeHalved) {
  const Case c = r1("", decode_batch(8192));
  EXPECT_EQ(refusal(c, "dp_ep:dp=8,ep=8,batch=2,overlap=two_batch"), "");
  EXPECT_THAT(refusal(c, "dp_ep:dp=8,ep=8,batch=1,overlap=two_batch"), HasSubstr("two tokens"));
  EXPECT_THAT(refusal(c, "tensor:tpa=8,ep=8,batch=2,overlap=two_batch"), HasSubstr("overlap is for dp_ep"));
  Case local = decode_case(kOss, kGb, 8192);
  EXPECT_THAT(refusal(local, "dp_ep:dp=8,ep=8,batch=2,overlap=two_batch"),
              HasSubstr("one kind of attention"));
}

std::string refused(const std::string& engine, const char* model, const std::string& plan,
                    void (*change)(Case&) = nullptr) {
  const Case c = case_of(engine, {model, "h200-hgx", "", change});
  const auto refusal = does_not_start(c, parse_plan(plan));
  return refusal ? refusal->rule : "";
}

TEST(TwoBatches, EnginesThatStartThem) {
  const std::string plan = "dp_ep:dp=8,ep=8,batch=64,overlap=two_batch";
  EXPECT_EQ(refused("vllm", kR1, plan), "");
  EXPECT_EQ(refused("vllm", kQwen, plan), "");
  EXPECT_EQ(refused("trtllm", kR1, "dp_ep:dp=8,ep=8,batch=64,dense_tp=1"), "");
  EXPECT_EQ(refused("trtllm", kR1, "dp_ep:dp=8,ep=8,batch=64,dense_tp=1,overlap=two_batch"), "two_batches");
  EXPECT_EQ(refused("sglang", kR1, plan + ",dense_tp=1", experts_in_blocks), "");
  EXPECT_EQ(refused("sglang", kQwen, plan, experts_in_blocks), "");
  EXPECT_EQ(refused("sglang", kQwen, plan, [](Case& c) { experts_in_blocks(c), c.model.qk_norm = false; }),
            "two_batch_model");
  EXPECT_EQ(refused("sglang", kQwen, plan, [](Case& c) { experts_in_blocks(c), mixes(c); }),
            "two_batch_step");
  EXPECT_EQ(refused("vllm", kQwen, plan, mixes), "expert_tokens");
}

TEST(TwoBatches, AreTriedWhereTheEngineHasThemOrTheyAreAskedFor) {
  const auto tried = [](const std::string& engine, const SearchSpace& space) {
    const Case c = r1(engine, decode_batch(8192));
    std::vector<Plan> plans;
    strategy("dp_ep").enumerate(c, 8, space, plans);
    std::pair<int, int> counts;
    for (const Plan& p : plans) {
      EXPECT_EQ(check_plan(c, p), std::nullopt);
      if (p[kExpertTokens] == ExpertTokens::gather) continue;  // nothing to overlap
      ++(overlaps_batches(p) ? counts.first : counts.second);
    }
    return counts;
  };
  SearchSpace asked;
  asked.options = {{&kOverlap, {0}}};
  EXPECT_EQ(tried("", {}).first, 0);
  EXPECT_EQ(tried("trtllm", {}).first, 0);
  for (const char* engine : {"vllm", "sglang"}) {
    EXPECT_EQ(tried(engine, {}).first, tried(engine, {}).second);
    EXPECT_GT(tried(engine, {}).first, 0);
  }
  EXPECT_GT(tried("", asked).first, 0);
  EXPECT_EQ(tried("", asked).second, 0);
}

TEST(TwoBatches, FlagsThatStartThem) {
  const auto flags = [](const std::string& engine, Batch batch, const std::string& plan) {
    const Case c = r1(engine, std::move(batch));
    const auto all = deployments(c, parse_plan(plan));
    return all.size() == 1 ? options_text(all.front()) : "";
  };
  const std::string plan = "dp_ep:dp=8,ep=8,batch=64,overlap=two_batch";
  EXPECT_THAT(
      flags("vllm", decode_batch(8192), plan),
      AllOf(HasSubstr("--enable-dbo --all2all-backend deepep_low_latency"), Not(HasSubstr("threshold"))));
  EXPECT_THAT(flags("vllm", decode_batch(8192), "dp_ep:dp=8,ep=8,batch=8,overlap=two_batch"),
              HasSubstr("--dbo-decode-token-threshold 8"));
  EXPECT_THAT(flags("vllm", prefill_batch({{0, 300}}), "dp_ep:dp=8,ep=8,batch=1,overlap=two_batch"),
              AllOf(HasSubstr("--all2all-backend deepep_high_throughput"),
                    HasSubstr("--dbo-prefill-token-threshold 300")));
  EXPECT_THAT(flags("sglang", decode_batch(8192), plan),
              HasSubstr("--enable-two-batch-overlap --moe-a2a-backend deepep"));
  EXPECT_THAT(flags("sglang", decode_batch(8192), "dp_ep:dp=8,ep=8,batch=301,overlap=two_batch"),
              HasSubstr("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=151 "));
  EXPECT_THAT(flags("sglang", decode_batch(8192), "dp_ep:dp=8,ep=8,batch=64"), Not(HasSubstr("two-batch")));
  const Case c = r1("trtllm", decode_batch(8192));
  EXPECT_THAT(deployments(c, parse_plan(plan)).front().unsaid, HasSubstr("two halves"));
}

TEST(TwoBatches, KeysOfAProfile) {
  EXPECT_EQ(profile("vllm")->two_batches, TwoBatches::swapped);
  EXPECT_EQ(profile("sglang")->two_batches, TwoBatches::lagging);
  EXPECT_EQ(profile("trtllm")->two_batches, TwoBatches::none);
  for (const char* keys : {"{decode: sideways, why: w}", "{why: w}", "{decode: swapped}"}) {
    try {
      parse_engine("x.yaml", std::string("name: x\ntwo_batches: ") + keys + "\n");
      ADD_FAILURE() << keys;
    } catch (const UserError& e) {
      EXPECT_THAT(e.what(), HasSubstr("two_batches"));
    }
  }
}

TEST(TwoBatches, AServerWithOneUserRunsTheWhole) {
  const Case c = r1("sglang", decode_batch(8192));
  ServedEvaluator evaluator(c, AllReduceRule::fastest);
  const ServedWorkload load{1024, 256, 8, true, 0};
  const ServedPlan halves = evaluator.of(with_halves("dp_ep:dp=8,ep=8,dense_tp=1,batch=2"), load);
  const ServedPlan whole = evaluator.of(parse_plan("dp_ep:dp=8,ep=8,dense_tp=1,batch=1"), load);
  EXPECT_GT(whole.served.tpot.value, 0);
  EXPECT_EQ(halves.times.decode.value, whole.times.decode.value);
  EXPECT_NE(halves.times.prompt.value, whole.times.prompt.value);
}

}  // namespace
}  // namespace shardline
