// Which plans engines start [P19]: every rule by a plan that it refuses and the nearest that it lets pass,
// and all plans of small deployments against what every setting of the engines' flags puts on a rank.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "planner/engines/launch_rules.hpp"
#include "planner/layers/share.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/search/search.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const EngineProfile> profile(const std::string& name) {
  static std::map<std::string, std::shared_ptr<const EngineProfile>> known;
  auto& p = known[name];
  if (!p) p = std::make_shared<const EngineProfile>(load_engine(name, "", source_path("planner/engines")));
  return p;
}

// A plan on a case of BF16 throughout that decodes 32Ki tokens.
struct Try {
  const char *model, *system, *plan;
  void (*change)(Case&) = nullptr;
};

Case case_of(const std::string& engine, const Try& t) {
  Case c = decode_case(t.model, t.system, 32'768);
  c.precision = all_bf16();
  c.kv_block = 32;
  c.engine = profile(engine);
  if (t.change) t.change(c);
  return c;
}

struct RuleCase {
  const char* rule;
  Try refused, starts;
  bool possible = true;  // whether the table of strategies has the refused plan: layouts guard new ones, too
};

constexpr const char *kR1 = "deepseek-r1", *kL70 = "llama-3.1-70b", *kL405 = "llama-3.1-405b",
                     *kQwen = "qwen3-235b-a22b", *kQwen14 = "qwen-2.5-14b", *kYi = "yi-34b-200k",
                     *kOss = "gpt-oss-120b", *kGb = "gb200-nvl72", *kH100 = "h100-hgx";

void in_blocks(Case& c) { c.precision.weights = Dtype::fp8_block; }
void cached_in_fp8(Case& c) { c.precision.kv = Dtype::fp8; }
void cached_in_fp4(Case& c) { c.precision.kv = Dtype::fp4; }
void cached_in_fp32(Case& c) { c.precision.kv = Dtype::fp32; }
void weights_in_fp4(Case& c) { c.precision.weights = Dtype::fp4; }
void prefills(Case& c) { c.batch = prefill_batch({{0, 32'768}}); }
void mixes(Case& c) { c.batch.prefill = {{0, 1'000}}; }
void of_two_blocks(Case& c) { c.batch = decode_batch(64); }
void beyond_the_model(Case& c) { c.batch = decode_batch(c.model.max_context + 1); }
void at_the_most(Case& c) { c.batch = decode_batch(c.model.max_context); }
void odd_experts(Case& c) {
  for (FeedForward& f : c.model.ffns) f.inner = f.dense() ? f.inner : 1540;
}
void ragged_experts(Case& c) {
  for (FeedForward& f : c.model.ffns) f.experts = f.dense() ? 0 : 252;
}
void odd_vocabulary(Case& c) { c.model.vocab = 64 * 2005; }
void twelves(Case& c) {
  c.model.attentions[0].q_heads = 48;
  c.model.attentions[0].kv_heads = 12;
  c.model.ffns[0].inner = 24'576;
}

const std::vector<RuleCase> kVllm{
    {"context",
     {kL70, kH100, "tensor:tpa=8,tpf=8", beyond_the_model},
     {kL70, kH100, "tensor:tpa=8,tpf=8", at_the_most}},
    {"kv_type",
     {kR1, kGb, "tensor:tpa=8,ep=8", cached_in_fp4},
     {kR1, kGb, "tensor:tpa=8,ep=8", cached_in_fp8}},
    {"kv_type",
     {kL70, kH100, "tensor:tpa=8,tpf=8", cached_in_fp4},
     {kL70, kGb, "tensor:tpa=8,tpf=8", cached_in_fp4}},
    {"strategy", {kL405, kGb, "helix:kvp=2,tpa=8,tpf=16"}, {kL405, kGb, "dcp:tpa=16,tpf=16,dcp=2"}},
    {"strategy",
     {kL70, kH100, "allgather_kv:cp=2,tpa=8,tpf=8", prefills},
     {kL70, kH100, "tensor:tpa=8,tpf=8", prefills}},
    {"gpus", {kL70, kGb, "pipeline:pp=6"}, {kL70, kGb, "pipeline:pp=8"}},
    {"gpus", {kL70, kH100, "pipeline:pp=12"}, {kL70, kGb, "pipeline:pp=12"}},
    {"gpus", {kL70, kGb, "pipeline:pp=3"}, {kL70, kGb, "pipeline:pp=3", [](Case& c) { c.any_gpus = true; }}},
    {"heads", {kQwen14, kGb, "tensor:tpa=16,tpf=16"}, {kQwen14, kGb, "tensor:tpa=8,tpf=8"}},
    {"kv_heads", {kYi, kGb, "tensor:tpa=28,tpf=28"}, {kYi, kGb, "tensor:tpa=8,tpf=8"}},
    {"attention_layout", {kL70, kGb, "tensor:kvp=2,tpa=4,tpf=8"}, {kL70, kGb, "tensor:tpa=8,tpf=8"}, false},
    {"expert_layout", {kQwen, kGb, "tensor:tpa=8,ep=2,tpf=4"}, {kQwen, kGb, "tensor:tpa=8,ep=8"}},
    {"expert_layout", {kQwen, kGb, "tensor:tpa=8,ep=2,tpf=4"}, {kQwen, kGb, "tensor:tpa=8,tpf=8"}},
    {"dense_layout",
     {kR1, kGb, "dp_ep:dp=4,tpa=4,ep=16,dense_tp=16"},
     {kR1, kGb, "dp_ep:dp=4,tpa=4,ep=16,dense_tp=4"}},
    {"widths",
     {kQwen, kGb, "tensor:tpa=8,tpf=8", odd_experts},
     {kQwen, kGb, "tensor:tpa=8,ep=8", odd_experts}},
    {"vocabulary",
     {kL405, kH100, "tensor:tpa=128,tpf=128", odd_vocabulary},
     {kL405, kH100, "tensor:tpa=64,tpf=64", odd_vocabulary}},
    {"blocks", {kR1, kGb, "tensor:tpa=32,ep=32", in_blocks}, {kR1, kGb, "tensor:tpa=16,ep=16", in_blocks}},
    {"blocks", {kQwen, kGb, "tensor:tpa=8,tpf=8", in_blocks}, {kQwen, kGb, "tensor:tpa=8,ep=8", in_blocks}},
    {"blocks", {kQwen, kGb, "tensor:tpa=8,tpf=8", in_blocks}, {kQwen, kGb, "tensor:tpa=4,tpf=4", in_blocks}},
    {"dcp_heads", {kL70, kGb, "dcp:tpa=8,tpf=8,dcp=2"}, {kL70, kGb, "dcp:tpa=16,tpf=16,dcp=2"}, false},
    {"dcp_windows", {kOss, kGb, "dcp:tpa=16,ep=16,dcp=2"}, {kQwen, kGb, "dcp:tpa=16,ep=16,dcp=2"}},
    {"dcp_cache",
     {kR1, kGb, "dcp:tpa=8,ep=8,dcp=8", cached_in_fp8},
     {kL405, kGb, "dcp:tpa=16,tpf=16,dcp=2", cached_in_fp8}},
    {"dcp_cache", {kR1, kGb, "dcp:tpa=8,ep=8,dcp=8", cached_in_fp8}, {kR1, kGb, "dcp:tpa=8,ep=8,dcp=8"}},
    {"dcp_queries",
     {kR1, kGb, "dcp:tpa=8,ep=8,dcp=8,queries=replicated"},
     {kR1, kGb, "dcp:tpa=8,ep=8,dcp=8,exchange=a2a"}},
};

const std::vector<RuleCase> kSglang{
    {"context",
     {kL70, kH100, "tensor:tpa=8,tpf=8", beyond_the_model},
     {kL70, kH100, "tensor:tpa=8,tpf=8", at_the_most}},
    {"kv_type",
     {kR1, kGb, "tensor:tpa=8,ep=8", cached_in_fp32},
     {kR1, kGb, "tensor:tpa=8,ep=8", cached_in_fp4}},
    {"strategy", {kL405, kGb, "dcp:tpa=16,tpf=16,dcp=2"}, {kL405, kGb, "tensor:tpa=16,tpf=16"}},
    {"gpus", {kL70, kGb, "pipeline:pp=6"}, {kL70, kGb, "pipeline:pp=8"}},
    {"heads", {kQwen14, kGb, "tensor:tpa=16,tpf=16"}, {kQwen14, kGb, "tensor:tpa=8,tpf=8"}},
    {"kv_heads", {kYi, kGb, "tensor:tpa=28,tpf=28"}, {kYi, kGb, "tensor:tpa=8,tpf=8"}},
    {"cp_model",
     {kL70, kH100, "allgather_kv:cp=2,tpa=4,tpf=4", prefills},
     {kQwen, kH100, "allgather_kv:cp=2,tpa=4,tpf=4", prefills}},
    {"cp_device",
     {kR1, kGb, "allgather_kv:cp=8,tpa=1,ep=8", prefills},
     {kR1, "h200-hgx", "allgather_kv:cp=8,tpa=1,ep=8", prefills}},
    {"attention_layout",
     {kR1, kH100, "allgather_kv:cp=4,tpa=2,ep=8", prefills},
     {kR1, kH100, "allgather_kv:cp=8,tpa=1,ep=8", prefills}},
    {"expert_groups",
     {kQwen, kH100, "allgather_kv:pp=2,cp=2,tpa=4,tpf=4", prefills},
     {kQwen, kH100, "allgather_kv:cp=4,tpa=4,tpf=4", prefills}},
    {"expert_groups",
     {kQwen, kH100, "allgather_kv:cp=4,tpa=4,ep=8,tpf=2", prefills},
     {kQwen, kH100, "allgather_kv:cp=4,tpa=4,ep=16", prefills}},
    {"expert_layout",
     {kR1, kH100, "allgather_kv:cp=8,tpa=1", prefills},
     {kR1, kH100, "allgather_kv:cp=8,tpa=1,ep=8", prefills}},
    {"dense_layout",
     {kR1, kGb, "dp_ep:dp=4,tpa=4,ep=16,dense_tp=4"},
     {kR1, kGb, "dp_ep:dp=4,tpa=4,ep=16,dense_tp=16"}},
    {"dense_layout", {kR1, kGb, "dp_ep:dp=4,tpa=4,ep=16"}, {kR1, kGb, "dp_ep:dp=4,tpa=4,ep=16,dense_tp=1"}},
    {"experts",
     {kR1, kGb, "tensor:tpa=8,ep=8", ragged_experts},
     {kR1, kGb, "tensor:tpa=8,ep=4,tpf=2", ragged_experts}},
    {"widths",
     {kQwen, kGb, "tensor:tpa=8,tpf=8", odd_experts},
     {kQwen, kGb, "tensor:tpa=8,ep=8", odd_experts}},
    {"vocabulary",
     {kL405, kH100, "tensor:tpa=128,tpf=128", odd_vocabulary},
     {kL405, kH100, "tensor:tpa=64,tpf=64", odd_vocabulary}},
    {"blocks", {kR1, kGb, "tensor:tpa=32,ep=32", in_blocks}, {kR1, kGb, "dp_ep:dp=32,ep=32", in_blocks}},
    {"blocks",
     {kQwen, kGb, "tensor:tpa=8,tpf=8", in_blocks},
     {kQwen, kGb, "tensor:tpa=8,ep=2,tpf=4", in_blocks}},
    {"nodes",
     {kL70, kGb, "pipeline:pp=2,tpa=6,tpf=6", twelves},
     {kL70, kGb, "pipeline:pp=3,tpa=4,tpf=4", twelves}},
};

const std::vector<RuleCase> kTrtllm{
    {"context",
     {kL70, kH100, "tensor:tpa=8,tpf=8", beyond_the_model},
     {kL70, kH100, "tensor:tpa=8,tpf=8", at_the_most}},
    {"kv_type",
     {kL70, kH100, "tensor:tpa=8,tpf=8", cached_in_fp4},
     {kL70, kH100, "tensor:tpa=8,tpf=8", cached_in_fp8}},
    {"weight_type",
     {kL70, kH100, "tensor:tpa=8,tpf=8", weights_in_fp4},
     {kL70, kGb, "tensor:tpa=8,tpf=8", weights_in_fp4}},
    {"weight_type",
     {kL70, kGb, "tensor:tpa=8,tpf=8", [](Case& c) { c.precision.weights = Dtype::int4; }},
     {kL70, kH100, "tensor:tpa=8,tpf=8", [](Case& c) { c.precision.weights = Dtype::int4; }}},
    {"weight_type",
     {kL70, kH100, "tensor:tpa=8,tpf=8", [](Case& c) { c.precision.weights = Dtype::mxfp4; }},
     {kOss, kH100, "tensor:tpa=8,tpf=8", [](Case& c) { c.precision.expert_weights = Dtype::mxfp4; }}},
    {"weight_type",
     {kL70, "a100-sxm", "tensor:tpa=8,tpf=8", [](Case& c) { c.precision.weights = Dtype::fp8; }},
     {kL70, "a100-sxm", "tensor:tpa=8,tpf=8"}},
    {"strategy", {kR1, kGb, "dcp:tpa=8,ep=8,dcp=8"}, {kR1, kGb, "helix:kvp=8,ep=8,value_up=after"}},
    {"gpus", {kL70, kGb, "pipeline:pp=6"}, {kL70, kGb, "pipeline:pp=8"}},
    {"attention_layout", {kR1, kGb, "dp_ep:dp=4,tpa=2,ep=8"}, {kR1, kGb, "dp_ep:dp=8,ep=8"}},
    {"heads",
     {kR1, kGb, "helix:kvp=12,ep=12,value_up=after"},
     {kR1, kGb, "helix:kvp=16,ep=16,value_up=after"}},
    {"kv_heads", {kYi, kGb, "tensor:tpa=28,tpf=28"}, {kYi, kGb, "tensor:tpa=8,tpf=8"}},
    {"widths", {kQwen14, kGb, "tensor:tpa=40,tpf=40"}, {kQwen14, kGb, "tensor:tpa=8,tpf=8"}},
    {"expert_layout",
     {kQwen, kGb, "tensor:tpa=8,ep=2,tpf=2"},
     {kQwen, kGb, "tensor:tpa=8,ep=2,tpf=4"},
     false},
    {"experts",
     {kR1, kGb, "tensor:tpa=8,ep=8", ragged_experts},
     {kR1, kGb, "tensor:tpa=8,ep=4,tpf=2", ragged_experts}},
    {"dense_layout", {kR1, kGb, "dp_ep:dp=8,ep=8,dense_tp=8"}, {kR1, kGb, "dp_ep:dp=8,ep=8,dense_tp=1"}},
    {"helix_model",
     {kL405, kGb, "helix:kvp=2,tpa=8,tpf=16"},
     {kL405, kGb, "helix:kvp=2,tpa=8,tpf=16", [](Case& c) { c.model.qk_norm = true; }}},
    {"helix_device",
     {kR1, kH100, "helix:kvp=8,ep=8,value_up=after"},
     {kR1, "b200-hgx", "helix:kvp=8,ep=8,value_up=after"}},
    {"helix_step",
     {kR1, kGb, "helix:kvp=8,ep=8,value_up=after", mixes},
     {kR1, kGb, "tensor:tpa=8,ep=8", mixes}},
    {"helix_groups",
     {kR1, kGb, "helix:dp=2,kvp=4,ep=8,dense_tp=1,value_up=after"},
     {kR1, kGb, "helix:kvp=4,tpa=2,ep=8,value_up=after"}},
    {"helix_overlap",
     {kR1, kGb, "helix:kvp=8,ep=8,batch=2,chunks=2,value_up=after"},
     {kR1, kGb, "helix:kvp=8,ep=8,batch=2,value_up=after"}},
    {"helix_values",
     {kR1, kGb, "helix:kvp=8,ep=8,value_up=before"},
     {kR1, kGb, "helix:kvp=8,ep=8,value_up=after"}},
    {"helix_blocks",
     {kR1, kGb, "helix:kvp=4,ep=4,value_up=after", of_two_blocks},
     {kR1, kGb, "helix:kvp=2,ep=2,value_up=after", of_two_blocks}},
};

const std::map<std::string, const std::vector<RuleCase>*> kCases{
    {"vllm", &kVllm}, {"sglang", &kSglang}, {"trtllm", &kTrtllm}};

TEST(Launchable, EveryRuleRefusesAPlanAndLetsTheNearestPass) {
  for (const auto& [engine, cases] : kCases) {
    for (const RuleCase& r : *cases) {
      SCOPED_TRACE(fmt::format("{} {}: {}", engine, r.rule, r.refused.plan));
      const Case refusing = case_of(engine, r.refused);
      const Plan refused = parse_plan(r.refused.plan);
      EXPECT_EQ(check_plan(refusing, refused).has_value(), !r.possible)
          << check_plan(refusing, refused).value_or("");
      const auto refusal = does_not_start(refusing, refused);
      ASSERT_TRUE(refusal) << "it starts";
      EXPECT_EQ(refusal->rule, r.rule) << refusal->text;
      const Case starting = case_of(engine, r.starts);
      const Plan starts = parse_plan(r.starts.plan);
      EXPECT_EQ(check_plan(starting, starts).value_or(""), "");
      const auto none = does_not_start(starting, starts);
      EXPECT_FALSE(none) << none->rule << ": " << none->text;
      // Without an engine every plan is priced.
      Case ideal = refusing;
      ideal.engine = nullptr;
      EXPECT_FALSE(does_not_start(ideal, refused));
    }
  }
}

TEST(Launchable, EveryRuleIsTriedAndNamesItsSource) {
  ASSERT_EQ(launch_rules().size(), kCases.size());
  for (const LaunchRules* rules : launch_rules()) {
    std::set<std::string> ids, tried;
    const auto add = [&](const auto& rule) {
      SCOPED_TRACE(fmt::format("{} {}", rules->engine, rule.id));
      EXPECT_TRUE(ids.insert(rule.id).second) << "twice";
      EXPECT_GT(std::string_view(rule.says).size(), 10u);
      const std::string_view source(rule.source);
      const auto has = [&](const char* part) { return source.find(part) != std::string_view::npos; };
      const bool file = has(".py") || has(".md"), version = has("@") || has("near v1.3.0rc20");
      EXPECT_TRUE(source.starts_with("hardware/") || (file && version)) << source;
    };
    for (const CaseRule& rule : rules->cases) add(rule);
    for (const LaunchRule& rule : rules->plans) add(rule);
    for (const RuleCase& r : *kCases.at(rules->engine)) tried.insert(r.rule);
    EXPECT_EQ(ids, tried) << rules->engine;
  }
}

TEST(Launchable, EveryShippedProfileHasRulesOfItsVersion) {
  Case c = decode_case(kL70, kGb, 1'000);
  std::size_t engines = 0;
  for (const std::string& name : engine_names(source_path("planner/engines"))) {
    const std::string engine = name.substr(0, name.find(' '));
    c.engine = profile(engine);
    EXPECT_NO_THROW(does_not_start(c)) << name;
    ++engines;
  }
  EXPECT_EQ(engines, launch_rules().size());
  EngineProfile other = *profile("vllm");
  other.version = "0.11.0";
  c.engine = std::make_shared<const EngineProfile>(other);
  try {
    does_not_start(c);
    ADD_FAILURE() << "rules of another version were used";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("nobody has read which plans vLLM 0.11.0 starts"));
    EXPECT_THAT(e.what(), HasSubstr("vLLM 0.24.0"));
  }
}

TEST(Launchable, StrategiesOfNoEngineAreSaidToBe) {
  std::set<std::string> none;
  for (const Strategy* s : strategies()) {
    if (engines_with(s->launched_as).empty()) none.insert(s->name);
  }
  EXPECT_EQ(none, (std::set<std::string>{"kv_shard", "ring_pass_kv", "ring_pass_q", "ring_decode", "ulysses",
                                         "kv_runahead", "tsp", "apb", "star", "sparse", "usp", "striped"}));
  EXPECT_THAT(engines_with(LaunchedAs::dcp), ::testing::ElementsAre("vLLM 0.24.0"));
  EXPECT_THAT(engines_with(LaunchedAs::helix), ::testing::ElementsAre("TensorRT-LLM 1.3.0rc20"));
  EXPECT_THAT(engines_with(LaunchedAs::prefill_cp), ::testing::ElementsAre("SGLang 0.5.14"));
}

// What the first rank of a stage holds: query heads, experts and their width, the width of its dense
// networks, its part of a cache; and how many ranks hold what else.
using Held = std::tuple<int, int, int, int, int, int, int, int>;

struct Sizes {
  int heads, experts, inner, dense;
  bool latents;
};

Sizes sizes_of(const Model& m) {
  return {m.attentions[0].q_heads, expert_ffn(m).experts, expert_ffn(m).inner,
          has_dense(m) ? dense_ffn(m).inner : 0, has_latents(m)};
}

// A plan's own words.
Held held(const Case& c, const Plan& p) {
  const Sizes s = sizes_of(c.model);
  return {s.heads / p.tpa,
          s.experts / p.ep,
          s.inner / p.tpf,
          s.dense / dense_ffn_ranks(p),
          sharers(c, p),
          p.dp,
          p.cp,
          p.pp};
}

// Every setting of --tensor-parallel-size, --data-parallel-size, --pipeline-parallel-size,
// --enable-expert-parallel and --decode-context-parallel-size for so many GPUs.
std::set<Held> vllm_settings(const Sizes& s, int gpus) {
  std::set<Held> out;
  for (const int pp : divisors(gpus)) {
    for (const int dp : divisors(gpus / pp)) {
      const int tp = gpus / pp / dp;
      for (const int dcp : divisors(tp)) {
        for (const bool whole : {false, true})
          out.insert({s.heads / tp, whole ? s.experts / (tp * dp) : s.experts,
                      whole ? s.inner : s.inner / (tp * dp), s.dense / tp, dcp, dp, 1, pp});
      }
    }
  }
  return out;
}

// --tp-size, --dp-size with --enable-dp-attention, --pp-size, --ep-size, --moe-dense-tp-size; for prefills
// --attn-cp-size, which MLA makes all of a group over whole experts and dense networks, and --moe-dp-size,
// the context-parallel ranks that hold copies of the experts. Else tokens are sent to experts, with EP over
// all.
std::set<Held> sglang_settings(const Sizes& s, int gpus) {
  std::set<Held> out;
  for (const int pp : divisors(gpus)) {
    const int tp = gpus / pp;
    for (const int dp : divisors(tp)) {
      for (const int ep : divisors(tp)) {
        for (const int dense : {1, tp})
          out.insert(
              {s.heads / (tp / dp), s.experts / ep, s.inner / (tp / ep), s.dense / dense, 1, dp, 1, pp});
      }
      for (const int cp : divisors(tp / dp)) {
        if (cp == 1 || (s.latents && cp < tp / dp)) continue;
        const int attention_tp = tp / dp / cp;
        out.insert({s.heads / attention_tp, s.experts / tp, s.inner, s.dense, 1, dp, cp, pp});
        if (s.latents || pp > 1 || dp > 1) continue;
        for (const int ep : {1, attention_tp})
          out.insert(
              {s.heads / attention_tp, s.experts / ep, s.inner / (attention_tp / ep), s.dense, 1, 1, cp, 1});
      }
    }
  }
  return out;
}

// tensor_parallel_size, enable_attention_dp, pipeline_parallel_size, context_parallel_size,
// moe_expert_parallel_size.
std::set<Held> trtllm_settings(const Sizes& s, int gpus) {
  std::set<Held> out;
  for (const int pp : divisors(gpus)) {
    for (const int cp : divisors(gpus / pp)) {
      const int tp = gpus / pp / cp;
      for (const int ep : divisors(tp * cp)) {
        out.insert(
            {s.heads / tp, s.experts / ep, s.inner / (tp * cp / ep), s.dense / (tp * cp), cp, 1, 1, pp});
        out.insert({s.heads, s.experts / ep, s.inner / (tp * cp / ep), s.dense, cp, tp, 1, pp});
      }
    }
  }
  return out;
}

struct Settings {
  const char* engine;
  std::set<Held> (*of)(const Sizes&, int);
};

// The other rules refuse what is no question of the layout, so that only one direction can be asked of them.
TEST(Launchable, APlanStartsIfSomeSettingOfTheFlagsMakesItsLayout) {
  const std::set<std::string> layout_rules{"attention_layout", "expert_layout", "dense_layout",
                                           "expert_groups"};
  SearchSpace space;
  with_hopb_chunks(space, {1});
  space.duplicate_kv = true;
  for (const Settings& settings : {Settings{"vllm", vllm_settings}, Settings{"sglang", sglang_settings},
                                   Settings{"trtllm", trtllm_settings}}) {
    int starting = 0, refused = 0;
    for (const Try& t : {Try{kR1, kH100, ""}, Try{kQwen, kH100, ""}, Try{"kimi-k2", kGb, ""},
                         Try{kR1, kH100, "", prefills}, Try{kQwen, kH100, "", prefills}}) {
      Case c = case_of(settings.engine, t);
      c.any_gpus = true;
      for (const int gpus : {1, 2, 4, 8, 16, 32, 64}) {
        const std::set<Held> reachable = settings.of(sizes_of(c.model), gpus);
        std::vector<Plan> plans;
        for (const Strategy* s : strategies()) {
          if (s->takes(c) && has_feature(*c.engine, *s)) s->enumerate(c, gpus, space, plans);
        }
        for (const Plan& p : plans) {
          SCOPED_TRACE(fmt::format("{} {} {}", settings.engine, t.model, to_string(p)));
          const auto refusal = does_not_start(c, p);
          const bool of_layout = refusal && layout_rules.contains(refusal->rule);
          const bool reached = reachable.contains(held(c, p));
          EXPECT_TRUE(refusal || reached);
          EXPECT_FALSE(of_layout && reached) << refusal->text;
          starting += !refusal;
          refused += of_layout;
        }
      }
    }
    EXPECT_GT(starting, 100) << settings.engine;
    EXPECT_GT(refused, 50) << settings.engine;
  }
}

SearchOptions all_strategies(std::vector<int> gpus) {
  SearchOptions o;
  for (const Strategy* s : strategies()) {
    if (s->decodes) o.strategies.push_back(id_of(*s));
  }
  o.gpus = std::move(gpus);
  o.batches = {1, 2, 4, 8};
  return o;
}

TEST(Launchable, ASearchLeavesOutAndCountsWhatDoesNotStart) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    Case c = case_of(engine, {kR1, kGb, ""});
    SearchOptions o = all_strategies({6, 8, 16});
    o.keep_all = true;
    const SearchResult r = search(c, o);
    std::map<std::string, std::uint64_t> expected;
    std::uint64_t starting = 0;
    for (const int gpus : o.gpus) {
      for (const StrategyId id : o.strategies) {
        std::vector<Plan> plans;
        strategy(id).enumerate(c, gpus, o.space, plans);
        for (const Plan& p : plans) {
          const auto refusal = does_not_start(c, p);
          refusal ? ++expected[refusal->rule] : ++starting;
        }
      }
    }
    std::map<std::string, std::uint64_t> counted;
    for (const auto& [rule, n] : r.not_started) counted[rule] = n.plans;
    EXPECT_EQ(counted, expected);
    EXPECT_GT(expected["gpus"], 0u);
    EXPECT_EQ(r.counts.plans, starting);
    EXPECT_FALSE(r.all.empty());
    for (const Point& p : r.all) EXPECT_FALSE(does_not_start(c, p.plan)) << to_string(p.plan);
    std::map<std::string, std::string> reasons;
    for (const auto& [id, reason] : r.without_plans) reasons[std::string(to_string(id))] = reason;
    EXPECT_EQ(reasons["kv_shard"], "that " + title_of(*c.engine) + " starts");
    c.any_gpus = true;
    EXPECT_FALSE(search(c, o).not_started.contains("gpus"));
  }
}

TEST(Launchable, LongRequestsNeedAWordOfTheUsers) {
  Case c = case_of("vllm", {kL70, kGb, "", beyond_the_model});
  const auto refusal = does_not_start(c);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->text, "131073 tokens are more than the 131072 of llama-3.1-70b");
  EXPECT_EQ(refusal->key, "tokens");
  EXPECT_THAT(refusal->instead, HasSubstr("at most 131072 tokens, or any_context: true"));
  EXPECT_FALSE(longer_than_model(c));
  c.any_context = true;
  EXPECT_FALSE(does_not_start(c));
  EXPECT_THAT(longer_than_model(c).value_or(""), HasSubstr("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"));
  at_the_most(c);
  EXPECT_FALSE(longer_than_model(c));
}

constexpr const char* kScenario =
    "name: t\nsystem: gb200-nvl72\nmodels: [deepseek-r1]\ncontext: 100K tokens\n"
    "precision: {weights: fp8_block, kv: bf16, math: fp8}\nstrategies: [tensor, kv_shard, helix]\n"
    "gpus: [6, 8]\nbatch: 1\n";

Study study_with(const std::string& more, const Overrides& overrides) {
  const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                          source_path("scenarios"), source_path("planner/engines")};
  return parse_scenario("t.yaml", kScenario + more, catalogs, overrides).studies.at(0);
}

// Whoever writes a scenario for an engine is told what the engine does not have; who asks for one on the
// command line finds the rest of a scenario's strategies.
TEST(Launchable, AnEngineOfTheCommandLineFindsNoPlansWhereOneOfTheFileIsAFault) {
  EXPECT_THROW(study_with("engine: vllm\n", {}), UserError);
  const Study study = study_with("", {{}, "vllm"});
  ASSERT_NE(study.study.engine, nullptr);
  EXPECT_EQ(title_of(*study.study.engine), "vLLM 0.24.0");
  const SearchResult r = search(study.study, study.sweep().search);
  EXPECT_FALSE(r.frontiers.at(strategy_id("tensor")).points().empty());
  EXPECT_TRUE(r.frontiers.at(strategy_id("helix")).points().empty());
  EXPECT_GT(r.not_started.at("strategy").plans, 0u);
  EXPECT_EQ(study_with("engine: vllm\n", {{}, "ideal"}).study.engine, nullptr);
}

TEST(Launchable, RulesAreLiftedByTheFileOrTheCommandLine) {
  for (const bool file : {false, true}) {
    for (const bool line : {false, true}) {
      Overrides o{{}, "trtllm"};
      o.any_gpus = o.any_context = line;
      const std::string yes = file ? "true" : "false";
      const Study s = study_with("any_gpus: " + yes + "\nany_context: " + yes + "\n", o);
      EXPECT_EQ(s.study.any_gpus, file || line);
      EXPECT_EQ(s.study.any_context, file || line);
    }
  }
}

}  // namespace
}  // namespace shardline
