// Cases for the tests of what engines start [P21].
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "planner/engines/launchable.hpp"
#include "planner/engines/profile.hpp"
#include "planner/serving/acceptance.hpp"
#include "tests/planner/support.hpp"

namespace shardline::testing {

inline std::shared_ptr<const EngineProfile> profile(const std::string& name) {
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

// A plan that a rule refuses, and the nearest that it lets pass.
struct RuleCase {
  const char* rule;
  Try refused, starts;
  bool possible = true;  // whether the table of strategies has the refused plan: layouts guard new ones, too
};

inline Case case_of(const std::string& engine, const Try& t) {
  Case c = decode_case(t.model, t.system, 32'768);
  c.precision = all_bf16();
  c.engine = profile(engine);
  c.kv_block = own_block_of(engine, c);
  if (t.change) t.change(c);
  return c;
}

inline constexpr const char *kR1 = "deepseek-r1", *kL70 = "llama-3.1-70b", *kL405 = "llama-3.1-405b",
                            *kQwen = "qwen3-235b-a22b", *kQwen14 = "qwen-2.5-14b", *kYi = "yi-34b-200k",
                            *kOss = "gpt-oss-120b", *kV32 = "deepseek-v3.2", *kV4 = "deepseek-v4-pro",
                            *kM3 = "minimax-m3", *kMimo = "mimo-v2-flash", *kQwen35 = "qwen3.5-397b-a17b",
                            *kNemotron = "nemotron-3-super-120b-a12b", *kGb = "gb200-nvl72",
                            *kH100 = "h100-hgx", *kA100 = "a100-sxm", *kGlm = "glm-5.2";

inline void in_blocks(Case& c) { c.precision.weights = Dtype::fp8_block; }
inline void cached_in_fp8(Case& c) { c.precision.kv = Dtype::fp8; }
inline void cached_in_fp4(Case& c) { c.precision.kv = Dtype::fp4; }
inline void cached_in_fp32(Case& c) { c.precision.kv = Dtype::fp32; }
inline void weights_in_fp4(Case& c) { c.precision.weights = Dtype::fp4; }
inline void all_in_fp4(Case& c) { c.precision.weights = c.precision.math = Dtype::fp4; }
inline void all_in_fp4_cached_in_fp4(Case& c) { all_in_fp4(c), cached_in_fp4(c); }
inline void all_in_fp8(Case& c) { c.precision.weights = c.precision.math = Dtype::fp8; }
inline void fp8_in_bf16(Case& c) { c.precision.weights = Dtype::fp8; }
inline void experts_in_int4(Case& c) { c.precision.expert_weights = Dtype::int4; }
inline void in_int4(Case& c) { c.precision.weights = Dtype::int4; }
template <std::size_t N>
struct Word {
  constexpr Word(const char (&text)[N]) { std::copy_n(text, N, letters); }
  char letters[N];
};
// A checkpoint of one type that a tool of this name wrote, and in INT4.
template <Word method, Dtype type>
void files_of(Case& c) {
  c.precision.weights = type;
  c.precision.math = arithmetic_of(type);
  Checkpoint files;
  files.attention = files.out_proj = files.dense_ffn = files.experts = files.shared = type;
  files.method = method.letters;
  c.model.checkpoint = files;
}
template <Word method>
void int4_of(Case& c) {
  files_of<method, Dtype::int4>(c);
}
inline void gptq_with_zero_points(Case& c) { int4_of<"gptq">(c), c.model.checkpoint->zero_points = true; }
// W8A8 as compressed-tensors and SGLang's own tool write it: no type here is INT8.
template <Word reason>
void files_in_int8(Case& c) {
  c.model.checkpoint = Checkpoint{};
  c.model.checkpoint->method =
      std::string_view(reason.letters).ends_with("w8a8_int8") ? "w8a8_int8" : "compressed-tensors/channel";
  c.model.checkpoint->unread =
      "types of " + c.model.name + " not read: " + reason.letters + " at config.json:1:1";
}
// gpt-oss's types in files of such a tool.
template <Word method>
void mxfp4_of(Case& c) {
  c.precision.expert_weights = Dtype::mxfp4;
  c.model.checkpoint = Checkpoint{};
  c.model.checkpoint->experts = {Dtype::mxfp4, Dtype::bf16};
  c.model.checkpoint->method = method.letters;
}
inline void in_w4a8(Case& c) { in_int4(c), c.precision.math = Dtype::fp8; }
inline void experts_in_w4a8(Case& c) { experts_in_int4(c), c.precision.expert_math = Dtype::fp8; }
inline void in_fp8_all_through(Case& c) { all_in_fp8(c), cached_in_fp8(c); }
inline void checkpoint_caches_in_fp8(Case& c) {
  c.model.checkpoint = Checkpoint{}, c.model.checkpoint->kv = Dtype::fp8;
}
inline void experts_in_blocks(Case& c) {
  c.precision.expert_weights = Dtype::fp8_block, c.precision.expert_math = Dtype::fp8;
}
inline void experts_in_mxfp4(Case& c) { c.precision.expert_weights = Dtype::mxfp4; }
inline void fp4_in_fp8(Case& c) { c.precision.weights = Dtype::fp4, c.precision.math = Dtype::fp8; }
inline void fp4_in_bf16(Case& c) { c.precision.weights = Dtype::fp4, c.precision.math = Dtype::bf16; }
inline void mxfp4_in_fp8(Case& c) {
  experts_in_mxfp4(c);
  c.precision.expert_math = Dtype::fp8;
}
inline void accepts_drafts(Case& c) {
  c.acceptance = std::make_shared<const AcceptanceCurve>(AcceptanceForm{0.8, 0.9});
}
inline void accepts_drafts_of_three(Case& c) { accepts_drafts(c), c.model.drafts->count = 3; }
// Of a model that SGLang has a class for, and none for a module that drafts for it.
inline void drafts_without_a_class(Case& c) {
  accepts_drafts(c), c.model.architecture = "MiniMaxM2ForCausalLM";
}
inline void prefills(Case& c) { c.batch = prefill_batch({{0, 32'768}}); }
inline void is_served(Case& c) { c.served = {8'192, 1'024}; }
inline void mixes(Case& c) { c.batch.prefill = {{0, 1'000}}; }
inline void any_gpus(Case& c) { c.any_gpus = true; }
inline void of_two_blocks(Case& c) { c.batch = decode_batch(64); }
inline void beyond_the_model(Case& c) { c.batch = decode_batch(c.model.max_context + 1); }
inline void at_the_most(Case& c) { c.batch = decode_batch(c.model.max_context); }
inline void odd_experts(Case& c) {
  for (FeedForward& f : c.model.ffns) f.inner = f.dense() ? f.inner : 1540;
}
inline void ragged_experts(Case& c) {
  for (FeedForward& f : c.model.ffns) f.experts = f.dense() ? 0 : 252;
}
inline void odd_vocabulary(Case& c) { c.model.vocab = 64 * 2005; }
inline void as_falcon(Case& c) { c.model.architecture = "FalconForCausalLM"; }
inline void as_gemma_4(Case& c) { c.model.architecture = "Gemma4ForCausalLM"; }
inline void as_kimi_k2(Case& c) { c.model.architecture = "KimiK2ForCausalLM"; }
inline void twelves(Case& c) {
  c.model.attentions[0].q_heads = 48;
  c.model.attentions[0].kv_heads = 12;
  c.model.ffns[0].inner = 24'576;
}

}  // namespace shardline::testing
