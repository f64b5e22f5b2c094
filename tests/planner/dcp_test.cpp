// Decode context parallelism against closed forms worked out from the engines' tensors, and against the
// strategies that it must agree with: TP in all that is not attention, Helix in what a rank attends to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "hardware/cost/kernel_cost.hpp"
#include "hardware/machine/frameworks.hpp"
#include "planner/engines/deploy.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/share.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/search/memory.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

Case in_bf16(const std::string& model, long long context) {
  Case c = decode_case(model, "gb200-nvl72", context);
  c.precision = all_bf16();
  return c;
}

const Op* find(const Schedule& s, std::string_view name) {
  for (const Op& op : s.ops) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

// Bytes that one rank sends in the exchanges of one layer's attention, by the name of the op.
std::map<std::string, double> sent(const Schedule& s) {
  std::map<std::string, double> out;
  for (const Op& op : s.ops) {
    if (op.part != Part::exchange || !is_communication(op.kind)) continue;
    const double n = op.group.size;
    const double share = op.kind == OpKind::all_gather       ? n - 1
                         : op.kind == OpKind::reduce_scatter ? (n - 1) / n
                                                             : 1;
    out[op.name] += message_bytes(op).value * share;
  }
  return out;
}

double total(const std::map<std::string, double>& bytes) {
  double sum = 0;
  for (const auto& [name, b] : bytes) sum += b;
  return sum;
}

// 128 heads on 8 ranks, absorbed queries of 576 numbers, outputs of 512.
TEST(Dcp, BytesOfDeepSeekAreThoseOfTheEngines) {
  const Case c = in_bf16("deepseek-r1", 100'000);
  for (const int batch : {1, 7}) {
    const std::string plan = "dcp:tpa=8,tpf=8,batch=" + std::to_string(batch) + ",dcp=8";
    const auto ag_rs = sent(lowered(c, plan)), a2a = sent(lowered(c, plan + ",exchange=a2a"));
    EXPECT_EQ(ag_rs, (std::map<std::string, double>{{"gather queries", batch * 129'024},
                                                    {"gather log-sum-exps", batch * 3'584},
                                                    {"reduce-scatter outputs", batch * 114'688}}));
    EXPECT_EQ(a2a, (std::map<std::string, double>{{"gather queries", batch * 129'024},
                                                  {"exchange partial outputs", batch * 115'136}}));
    EXPECT_EQ(total(ag_rs), batch * 247'296);
    EXPECT_EQ(total(a2a), batch * 244'160);
    EXPECT_EQ(total(sent(lowered(c, plan + ",exchange=a2a,queries=replicated"))), batch * 115'136);
    EXPECT_EQ(total(sent(lowered(c, plan + ",queries=replicated"))), batch * (3'584 + 114'688));
  }
}

TEST(Dcp, BytesByTheClosedForm) {
  struct Row {
    const char* model;
    int tpa, dcp, heads, query, output;  // heads of a rank under TP
  };
  for (const Row& row :
       {Row{"deepseek-r1", 8, 2, 16, 576, 512}, Row{"deepseek-r1", 16, 4, 8, 576, 512},
        Row{"llama-3.1-405b", 16, 2, 8, 128, 128}, Row{"llama-3.1-405b", 32, 4, 4, 128, 128},
        Row{"qwen3-235b-a22b", 8, 2, 8, 128, 128}, Row{"qwen3-235b-a22b", 32, 4, 2, 128, 128}}) {
    const Case c = in_bf16(row.model, 100'000);
    const std::string tp = std::to_string(row.tpa);
    const std::string plan = "dcp:tpa=" + tp + ",tpf=" + tp + ",batch=5,dcp=" + std::to_string(row.dcp);
    SCOPED_TRACE(plan);
    const double n = row.dcp, each = (n - 1) * 5 * row.heads;
    const auto ag_rs = sent(lowered(c, plan)), a2a = sent(lowered(c, plan + ",exchange=a2a"));
    EXPECT_EQ(ag_rs.at("gather queries"), each * row.query * 2);
    EXPECT_EQ(ag_rs.at("gather log-sum-exps"), each * n * 4);
    EXPECT_EQ(ag_rs.at("reduce-scatter outputs"), each * row.output * 2);
    EXPECT_EQ(a2a.at("exchange partial outputs"), each * (row.output * 2 + 4));
    EXPECT_EQ(total(a2a) - total(ag_rs), -(n - 1) * (n - 1) * 4 * 5 * row.heads);
    for (const Op& op : lowered(c, plan).ops) {
      if (op.part != Part::exchange || !is_communication(op.kind)) continue;
      EXPECT_EQ(op.group, (Group{row.dcp, 1})) << op.name;
    }
  }
}

std::vector<std::string> ops_besides_the_combination(const Schedule& s) {
  std::vector<std::string> out;
  for (const Op& op : s.ops) {
    if (op.part == Part::exchange || is_attention(op.kind) || op.kind == OpKind::merge) continue;
    out.push_back(std::string(op.name) + ": " + describe(op));
  }
  return out;
}

// With queries gathered, each rank projects what it does under TP, whose out projection and FFN follow.
TEST(Dcp, AllButAttentionIsTensorParallelism) {
  for (const auto& [model, dcp, plan] : {std::tuple("deepseek-r1", 4, ":tpa=8,ep=8,batch=6"),
                                         std::tuple("deepseek-r1", 8, ":tpa=8,tpf=8,batch=6"),
                                         std::tuple("llama-3.1-405b", 2, ":tpa=16,tpf=16,batch=6"),
                                         std::tuple("qwen3-235b-a22b", 2, ":tpa=16,ep=4,tpf=4,batch=6")}) {
    const Case c = in_bf16(model, 100'003);
    const std::string options = ",dcp=" + std::to_string(dcp);
    const auto tensor = ops_besides_the_combination(lowered(c, std::string("tensor") + plan));
    for (const char* exchange : {"", ",exchange=a2a"}) {
      EXPECT_EQ(ops_besides_the_combination(lowered(c, std::string("dcp") + plan + options + exchange)),
                tensor)
          << model << exchange;
    }
    const Plan tp = parse_plan(std::string("tensor") + plan),
               own = parse_plan(std::string("dcp") + plan + options);
    EXPECT_EQ(memory_use(c, own).weights, memory_use(c, tp).weights);
    EXPECT_EQ(tokens_on_fullest(cache_share(c, c.model.attentions.front(), own), c.longest()),
              (100'003 + dcp - 1) / dcp);
    EXPECT_NEAR(memory_use(c, own).kv * dcp / memory_use(c, tp).kv, 1, dcp / 100'003.0);
  }
}

// The same heads over the same tokens, whatever ranks they are on.
TEST(Dcp, AttendsAsHelixWhereBothExist) {
  struct Row {
    const char *model, *dcp, *helix;
  };
  for (const Row& row :
       {Row{"deepseek-r1", "dcp:tpa=8,tpf=8,batch=6,dcp=8", "helix:kvp=8,tpf=8,batch=6,value_up=after"},
        Row{"deepseek-r1", "dcp:tpa=8,tpf=8,batch=6,dcp=4", "helix:kvp=4,tpa=2,tpf=8,batch=6,value_up=after"},
        Row{"llama-3.1-405b", "dcp:tpa=16,tpf=16,batch=6,dcp=2", "helix:kvp=2,tpa=8,tpf=16,batch=6"},
        Row{"llama-3.1-405b", "dcp:tpa=64,tpf=64,batch=6,dcp=8", "helix:kvp=8,tpa=8,tpf=64,batch=6"},
        Row{"qwen3-235b-a22b", "dcp:tpa=16,ep=16,batch=6,dcp=4", "helix:kvp=4,tpa=4,ep=16,batch=6"}}) {
    for (const int interleave : {1, 16}) {
      SCOPED_TRACE(std::string(row.dcp) + " interleave " + std::to_string(interleave));
      Case c = in_bf16(row.model, 100'003);
      const std::string dcp = row.dcp + (interleave > 1 ? std::string(",interleave=16") : "");
      const Schedule own = lowered(c, dcp + ",exchange=a2a,queries=replicated");
      const Schedule gathered = lowered(c, dcp);
      c.kv_block = interleave;
      const Schedule helix = lowered(c, row.helix);
      EXPECT_EQ(describe(*find(own, "attend")), describe(*find(helix, "attend")));
      EXPECT_EQ(describe(*find(gathered, "attend")), describe(*find(helix, "attend")));
      for (const char* name :
           {"qkv", "q up", "q absorb", "value up", "out projection", "attention all-reduce"}) {
        const Op* theirs = find(helix, name);
        ASSERT_EQ(find(own, name) == nullptr, theirs == nullptr) << name;
        if (theirs == nullptr) continue;
        EXPECT_EQ(describe(*find(own, name)), describe(*theirs)) << name;
      }
      // Helix sends a second float32 with every head's log-sum-exp.
      const Plan p = parse_plan(row.helix);
      const double heads = 6.0 * local_q_heads(c.model.attentions.front(), p) * (p.kvp - 1) / p.kvp;
      EXPECT_DOUBLE_EQ(total(sent(helix)) - total(sent(own)), heads * 4);
      EXPECT_EQ(memory_use(c, p).kv, [&] {
        Case paged = c;
        paged.kv_block = 16;
        return memory_use(paged, parse_plan(dcp)).kv;
      }());
    }
  }
}

// The query's second projection and W_UK of eight times the heads; vLLM keeps a rank's own W_UK beside them.
TEST(Dcp, ReplicatedQueriesTakeWeights) {
  const Case c = in_bf16("deepseek-r1", 100'000);
  const auto weights = [&](const char* text) { return memory_use(c, parse_plan(text)).weights.value; };
  const double q_up = 1536.0 * 192, w_uk = 128.0 * 512, layers = 61;
  EXPECT_DOUBLE_EQ(
      weights("dcp:tpa=8,tpf=8,batch=1,dcp=8,queries=replicated") - weights("dcp:tpa=8,tpf=8,batch=1,dcp=8"),
      2 * layers * 16 * (7 * q_up + 8 * w_uk));
  const Case llama = in_bf16("llama-3.1-405b", 100'000);
  const auto gqa = [&](const char* text) { return memory_use(llama, parse_plan(text)).weights.value; };
  EXPECT_DOUBLE_EQ(
      gqa("dcp:tpa=16,tpf=16,batch=1,dcp=2,queries=replicated") - gqa("dcp:tpa=16,tpf=16,batch=1,dcp=2"),
      2 * 126 * 16384.0 * 8 * 128);
}

TEST(Dcp, BuffersHoldGatheredQueriesOrPartialOutputs) {
  const Case c = in_bf16("deepseek-r1", 100'000);
  const auto buffers = [&](const char* text) { return memory_use(c, parse_plan(text)).buffers.value; };
  EXPECT_EQ(buffers("dcp:tpa=8,tpf=8,batch=3,dcp=8"), 2 * 3 * 128 * 576 * 2);
  EXPECT_EQ(buffers("dcp:tpa=8,tpf=8,batch=3,dcp=8,queries=replicated"), 2 * 3 * 128 * (512 * 2 + 4));
  EXPECT_EQ(buffers("dcp:tpa=8,tpf=8,batch=3,dcp=2"), 2 * 3 * 32 * 576 * 2);
  EXPECT_EQ(buffers("tensor:tpa=8,tpf=8,batch=3"), 2 * 3 * 7168 * 2);
}

TEST(Dcp, LongContextsAreFasterAndShortOnesNot) {
  for (const auto& [model, tp] : {std::pair("deepseek-r1", ":tpa=8,ep=8,batch=8"),
                                  std::pair("qwen3-235b-a22b", ":tpa=16,ep=16,batch=8")}) {
    for (const long long context : {512LL, 1'000'000LL}) {
      const Case c = in_bf16(model, context);
      Evaluator e(c);
      const Seconds tensor = e.simulate(parse_plan(std::string("tensor") + tp));
      for (const char* options :
           {",dcp=4", ",dcp=4,exchange=a2a", ",dcp=4,exchange=a2a,queries=replicated"}) {
        const Seconds own = e.simulate(parse_plan(std::string("dcp") + tp + options));
        EXPECT_EQ(own<tensor, context> 1000) << model << options;
      }
    }
  }
}

TEST(Dcp, RefusalsSayWhy) {
  const Case r1 = in_bf16("deepseek-r1", 100'000), llama = in_bf16("llama-3.1-405b", 100'000),
             falcon = in_bf16("falcon-7b", 100'000);
  EXPECT_EQ(refusal(r1, "dcp:tpa=8,tpf=8,batch=1"),
            "dcp needs dcp of at least 2; with 1 it is tensor, pipeline or dp_ep");
  EXPECT_EQ(refusal(r1, "dcp:tpa=8,tpf=8,batch=1,dcp=3"), "dcp 3 does not divide tpa 8");
  EXPECT_EQ(refusal(llama, "dcp:tpa=8,tpf=8,batch=1,dcp=2"),
            "dcp needs tpa above the 8 KV heads: it shares what would be copies");
  EXPECT_EQ(refusal(llama, "dcp:tpa=12,tpf=12,batch=1,dcp=2"), "tpa 12 is not a multiple of the 8 KV heads");
  EXPECT_EQ(refusal(llama, "dcp:tpa=16,tpf=16,batch=1,dcp=4"),
            "dcp 4 does not divide the 2 ranks of a KV head (tpa / KV heads)");
  // 2 KV heads on 12 ranks: vLLM would let ranks 4 to 7 share the tokens of both heads.
  Case two = llama;
  two.model.attentions.front().q_heads = 96;
  two.model.attentions.front().kv_heads = 2;
  EXPECT_EQ(refusal(two, "dcp:tpa=12,tpf=12,batch=1,dcp=4"),
            "dcp 4 does not divide the 6 ranks of a KV head (tpa / KV heads)");
  EXPECT_EQ(refusal(two, "dcp:tpa=12,tpf=12,batch=1,dcp=3"), "");
  EXPECT_EQ(refusal(falcon, "dcp:tpa=8,tpf=8,batch=1,dcp=2"),
            "dcp 2 does not divide the 71 query heads of a KV head");
  EXPECT_EQ(refusal(r1, "dcp:tpa=6,tpf=6,batch=1,dcp=2"),
            "dcp needs equal heads on all ranks: tpa 6 does not divide 128");
  EXPECT_EQ(refusal(r1, "dcp:tpa=8,tpf=8,batch=1,dcp=8,interleave=3"),
            "interleave 3 does not divide the kv_block of 16");
  EXPECT_EQ(refusal(r1, "dcp:pp=2,dp=2,tpa=8,ep=16,batch=1,dcp=8"),
            "dcp composes with pp or with dp, not with both");
  EXPECT_EQ(refusal(llama, "dcp:dp=2,tpa=16,tpf=32,batch=1,dcp=2"),
            "dcp with dp needs a model with experts: groups that share nothing are servers of their own");
  EXPECT_EQ(refusal(r1, "dcp:dp=2,tpa=8,ep=8,tpf=2,batch=1,dcp=8"),
            "dcp with dp spreads whole experts over all ranks: tpf must be 1");
  EXPECT_EQ(refusal(r1, "tensor:tpa=8,tpf=8,batch=1,dcp=2"), "dcp is for dcp, not tensor");
  EXPECT_THAT(refusal(r1, "dcp:tpa=8,tpf=8,batch=1,dcp=8,exchange=all"), ::testing::HasSubstr("exchange"));
  Case prefill = r1;
  prefill.batch = prefill_batch({{0, 1000}});
  EXPECT_EQ(refusal(prefill, "dcp:tpa=8,tpf=8,batch=1,dcp=8"), "dcp is a strategy for decoding");
}

TEST(Dcp, EveryDivisorEveryExchangeAndBothQueriesAreTried) {
  const auto tried = [](const char* model, int gpus) {
    std::vector<Plan> plans;
    strategy(std::string("dcp")).enumerate(in_bf16(model, 100'000), gpus, SearchSpace{}, plans);
    std::map<std::string, int> count;
    for (const Plan& p : plans) {
      if (p.pp > 1 || p.dp > 1 || p.ep > 1) continue;
      for (const OptionValues::Value& v : p.options.all())
        ++count[std::string(v.option->key) + std::to_string(v.value)];
    }
    return count;
  };
  EXPECT_EQ(
      tried("deepseek-r1", 8),
      (std::map<std::string, int>{{"dcp2", 4}, {"dcp4", 4}, {"dcp8", 4}, {"exchange1", 6}, {"queries1", 6}}));
  // No engine replicates the queries of GQA.
  EXPECT_EQ(tried("llama-3.1-405b", 32),
            (std::map<std::string, int>{{"dcp2", 2}, {"dcp4", 2}, {"exchange1", 2}}));
  EXPECT_TRUE(tried("llama-3.1-405b", 8).empty());
  EXPECT_TRUE(tried("falcon-7b", 8).empty());
}

// vLLM's DCP of MLA on Blackwell runs CUTLASS's kernel, which has no rows: FlashInfer's stands for it,
// extrapolated, so that its band is wider than that of the same op without DCP. On Hopper it is the same
// kernel, and TensorRT-LLM's partial outputs (Helix) are its own.
TEST(Dcp, AKernelThatWasNotMeasuredIsExtrapolated) {
  const auto basis = [](const char* system, const char* framework, const char* plan) {
    Case c = decode_case("deepseek-r1", system, 100'000);
    c.precision = all_bf16();
    use_framework(c.system, framework, shipped_catalogs().systems);
    Schedule s;
    lower(s, c, parse_plan(plan));
    CostModel cost(c.system);
    for (const Op& op : s.ops)
      if (op.kind == OpKind::attend_decode) return cost.price(op).basis;
    return Basis::none;
  };
  const char *tensor = "tensor:tpa=8,ep=8,batch=4", *dcp = "dcp:tpa=8,ep=8,batch=4,dcp=8";
  EXPECT_LT(basis("gb200-nvl72", "vllm", tensor), Basis::extrapolated);
  EXPECT_EQ(basis("gb200-nvl72", "vllm", dcp), Basis::extrapolated);
  EXPECT_LT(basis("h200-hgx", "vllm", dcp), Basis::extrapolated);
  EXPECT_LT(basis("gb200-nvl72", "sglang", dcp), Basis::extrapolated);
}

std::vector<std::string> launch_lines(const Case& c, const char* text) {
  std::vector<std::string> out;
  for (const Deployment& d : deployments(c, parse_plan(text)))
    out.push_back(d.engine + ": " + options_text(d));
  return out;
}

TEST(Dcp, LaunchFlagsAreTheEngines) {
  const Case r1 = in_bf16("deepseek-r1", 100'000), llama = in_bf16("llama-3.1-405b", 100'000);
  EXPECT_THAT(launch_lines(r1, "dcp:tpa=8,ep=8,batch=4,dcp=8"),
              ::testing::ElementsAre(
                  "vLLM: --tensor-parallel-size 8 --enable-expert-parallel --max-num-seqs "
                  "4 --max-model-len 101024 --decode-context-parallel-size 8 --attention-backend CUTLASS_MLA",
                  "SGLang: --tp-size 8 --ep-size 8 "
                  "--max-running-requests 4 --context-length 101024 --dcp-size 8"));
  EXPECT_THAT(launch_lines(r1, "dcp:dp=2,tpa=8,ep=16,batch=4,dcp=4,exchange=a2a,queries=replicated"),
              ::testing::ElementsAre("vLLM: VLLM_DEEPEP_LOW_LATENCY_USE_MNNVL=1 VLLM_DEEPEP_BUFFER_SIZE_MB=0 "
                                     "VLLM_DCP_Q_REPLICATE=1 --tensor-parallel-size 8 --data-parallel-size 2 "
                                     "--enable-expert-parallel --max-num-seqs 4 --max-model-len 101024 "
                                     "--all2all-backend deepep_low_latency "
                                     "--decode-context-parallel-size 4 "
                                     "--dcp-comm-backend a2a --attention-backend CUTLASS_MLA",
                                     "SGLang: --tp-size 16 --dp-size 2 "
                                     "--enable-dp-attention "
                                     "--ep-size 16 --max-running-requests 8 --context-length 101024 "
                                     "--moe-a2a-backend deepep --dcp-size 4 "
                                     "--dcp-comm-backend a2a "
                                     "--dcp-replicate-q-proj"));
  // SGLang has no interleave, replicates queries beside an all-to-all only, and GQA knows no all-to-all
  // there.
  for (const char* text :
       {"dcp:tpa=8,tpf=8,batch=4,dcp=8,interleave=16", "dcp:tpa=8,tpf=8,batch=4,dcp=8,queries=replicated"})
    EXPECT_EQ(launch_lines(r1, text).size(), 1u) << text;
  EXPECT_THAT(launch_lines(r1, "dcp:tpa=8,tpf=8,batch=4,dcp=8,interleave=16").front(),
              ::testing::EndsWith(" --cp-kv-cache-interleave-size 16 --attention-backend CUTLASS_MLA"));
  EXPECT_EQ(launch_lines(llama, "dcp:tpa=16,tpf=16,batch=4,dcp=2").size(), 2u);
  EXPECT_THAT(launch_lines(llama, "dcp:tpa=16,tpf=16,batch=4,dcp=2,exchange=a2a,queries=replicated"),
              ::testing::ElementsAre(::testing::Not(::testing::HasSubstr("VLLM_DCP_Q_REPLICATE"))));
}

}  // namespace
}  // namespace shardline
