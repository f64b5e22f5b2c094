// Every model of the catalogue under every engine, on machines of three architectures, in every layout that
// its strategies have: what launch files say, held against what the engine itself asserts of its options
// before it loads weights. Those assertions are written here a second time, by options alone, so that a rule
// of planner/engines/rules_*.cpp that is missing or wrong shows as an option that the engine would refuse.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "models/model/catalog.hpp"
#include "planner/engines/launch_files.hpp"
#include "planner/engines/launch_server.hpp"
#include "planner/plan/timed.hpp"
#include "planner/search/memory.hpp"
#include "tests/planner/launchable.hpp"

namespace shardline {
namespace {

using namespace testing;
using Words = std::map<std::string, std::string>;

// Options of a command line, or keys of a YAML with the section before them; flags have an empty value.
Words options_of(const LaunchedServer& server) {
  Words out;
  if (server.lines.size() == 1) {
    std::istringstream in(server.lines.front());
    std::string word, last;
    while (in >> word) {
      if (word.starts_with("--"))
        out[last = word];
      else if (!last.empty())
        out[last] = word;
    }
    return out;
  }
  std::string section;
  for (std::size_t i = 1; i < server.lines.size(); ++i) {
    const std::string line = server.lines[i].substr(2);  // shown behind the command
    const auto colon = line.find(':'), begin = line.find_first_not_of(' ');
    const std::string key = line.substr(begin, colon - begin), value = line.substr(colon + 1);
    if (value.empty()) section = key + ".";
    if (begin == 0 && !value.empty()) section = "";
    if (!value.empty()) out[section + key] = value.substr(value.find_first_not_of(' '));
  }
  return out;
}

// One server as the engine sees it, and what it says against it.
struct Engine {
  const Case& c;
  const Plan& p;
  Words words;
  std::vector<std::string> faults = {};

  long long number(const std::string& name, long long absent = 1) const {
    const auto at = words.find(name);
    return at == words.end() ? absent : std::stoll(at->second);
  }
  bool has(const std::string& name) const { return words.contains(name); }
  bool is(const std::string& name, const std::string& value) const {
    const auto at = words.find(name);
    return at != words.end() && at->second == value;
  }
  void wants(bool holds, const std::string& what) {
    if (!holds) faults.push_back(what);
  }
  bool blackwell() const { return architecture_of(c.system.device) == Architecture::blackwell; }
  int machines() const { return (p.gpus() + gpus_per_machine(c.system) - 1) / gpus_per_machine(c.system); }
  bool of(const std::string& architecture) const { return c.model.architecture == architecture; }
  bool ampere() const { return architecture_of(c.system.device) == Architecture::ampere; }
  ModuleType experts() const { return c.precision.of(Module::experts); }
};

// Tokens of a request in a step: 1, and its drafts.
long long each(const Engine& e) { return 1 + e.p[kDrafts]; }

// vLLM: config/speculative.py:805-819, config/model.py:1176-1182, v1/worker/cp_utils.py:25-29,
// config/compilation.py:1459-1503@68afd7889723.
void vllm_drafts(Engine& e) {
  const auto at = e.words.find("--speculative-config");
  e.wants((at != e.words.end()) == (e.p[kDrafts] > 0), "drafts");
  if (at == e.words.end()) return;
  e.wants(at->second == fmt::format(R"('{{"method":"mtp","num_speculative_tokens":{}}}')", e.p[kDrafts]),
          at->second);
  // Classes of modules that run in stages (SupportsPP): glm4_moe_lite_mtp.py:204, nemotron_h_mtp.py:312.
  e.wants(e.number("--pipeline-parallel-size") == 1 || e.of("Glm4MoeLiteForCausalLM") ||
              e.of("NemotronHForCausalLM"),
          "MTP in stages");
  e.wants(e.number("--cp-kv-cache-interleave-size") == 1, "MTP with an interleave");
  const long long most = e.number("--max-cudagraph-capture-size"),
                  tokens = e.number("--max-num-seqs") * each(e), step = tokens / e.p.in_flight;
  e.wants(e.number("--max-num-batched-tokens") >= tokens, "budget >= tokens of requests");
  // Of a step's requests: in stages as many steps are on their way as there are microbatches.
  e.wants((std::min(most, step) + each(e) - 1) / each(e) * each(e) <= most, "no size is left");
}

// SGLang 0.5.14: server_args.py:6651-6684, arg_groups/speculative_hook.py:382-390.
void sglang_drafts(Engine& e) {
  e.wants(e.has("--speculative-algorithm") == (e.p[kDrafts] > 0), "drafts");
  if (e.p[kDrafts] == 0) return;
  e.wants(e.is("--speculative-algorithm", "EAGLE"), "EAGLE is of modules, too");
  e.wants(e.number("--speculative-num-steps") == e.p[kDrafts], "steps");
  e.wants(e.number("--speculative-eagle-topk") == 1, "a chain");
  e.wants(e.number("--speculative-num-draft-tokens") == each(e), "adjusted to steps + 1");
  e.wants(e.number("--pp-size") == 1 && !e.has("--enable-mixed-chunk"),
          "speculation in stages or mixed chunks");
  e.wants(e.has("--max-running-requests"), "48 requests where nobody says so");
}

// TensorRT-LLM: docs/source/features/feature-combination-matrix.md@01edceae1757, speculative-decoding.md.
void trtllm_drafts(Engine& e) {
  e.wants(e.has("speculative_config.decoding_type") == (e.p[kDrafts] > 0), "drafts");
  if (e.p[kDrafts] == 0) return;
  e.wants(e.is("speculative_config.decoding_type", "MTP"), "MTP");
  e.wants(e.number("speculative_config.max_draft_len") == e.p[kDrafts] &&
              e.number("speculative_config.num_nextn_predict_layers") == e.p[kDrafts],
          "both lengths are equal");
  e.wants(e.number("pipeline_parallel_size") == 1 && e.number("context_parallel_size") == 1,
          "stages or Helix");
  e.wants(e.number("max_num_tokens") >= e.number("max_batch_size") * each(e), "tokens of drafts");
}

// QKVParallelLinear of both: whole query heads on each rank, KV heads shared or copied evenly.
void heads(Engine& e, long long tp) {
  for (const Attention& a : e.c.model.attentions) {
    if (a.none()) continue;
    e.wants(a.q_heads % tp == 0, fmt::format("{} heads % {}", a.q_heads, tp));
    if (a.recurrent() || has_latents(a)) continue;
    e.wants(tp >= a.kv_heads ? tp % a.kv_heads == 0 : a.kv_heads % tp == 0,
            fmt::format("{} KV heads, {} ranks", a.kv_heads, tp));
  }
}

// vLLM 0.24.0: config/parallel.py:500-514, config/model.py:1159-1207, config/vllm.py:1427-1445,2131-2138,
// v1/worker/cp_utils.py:33-44, v1/core/single_type_kv_cache_manager.py:635,868,989, config/scheduler.py:280.
void vllm_asserts(Engine& e) {
  const long long tp = e.number("--tensor-parallel-size"), dcp = e.number("--decode-context-parallel-size");
  const bool latents = has_latents(e.c.model);
  heads(e, tp);
  e.wants(!e.has("--enable-expert-parallel") || has_experts(e.c.model), "EP of a model without experts");
  e.wants(tp % dcp == 0, "tp % dcp");
  e.wants(!e.is("--dcp-comm-backend", "a2a") || dcp > 1, "a2a without dcp");
  if (dcp > 1 && !latents) {
    const Attention& a = first_attention(e.c.model);
    e.wants(tp > a.kv_heads, "tp > kv heads");
    e.wants(dcp <= tp / a.kv_heads, "dcp <= tp / kv heads");
    e.wants(a.q_heads / a.kv_heads % dcp == 0, "queries of a KV head % dcp");
  }
  if (dcp > 1) {
    e.wants(!has_local_attention(e.c.model) && !has_recurrence(e.c.model), "dcp of windows or states");
    e.wants(!latents || !e.blackwell() || e.is("--attention-backend", "CUTLASS_MLA"), "no lse");
    e.wants(!latents || e.is("--kv-cache-dtype", "bfloat16"), "dcp of an fp8 cache of MLA");
    const long long block = latents && e.blackwell() ? 128 : 16;
    e.wants(block % e.number("--cp-kv-cache-interleave-size") == 0, "interleave of a block");
  }
  e.wants(!e.has("--enable-dbo") || e.is("--all2all-backend", "deepep_low_latency") ||
              e.is("--all2all-backend", "deepep_high_throughput"),
          "ubatching without DeepEP");
  e.wants(!e.is("--kv-cache-dtype", "nvfp4") || !latents, "nvfp4 of MLA");
  e.wants(!e.is("--kv-cache-dtype", "nvfp4") || dcp == 1, "nvfp4 under dcp");
  // triton_attn.py, TritonAttentionImpl.__init__.
  for (const Attention& a : e.c.model.attentions)
    e.wants(!a.sinks || !e.ampere() || !e.is("--kv-cache-dtype", "fp8"), "sinks over fp8 before SM89");
  // models/deepseek_v4/attention.py, _resolve_dsv4_kv_cache_dtype of FlashMLA.
  e.wants(!e.of("DeepseekV4ForCausalLM") || e.is("--kv-cache-dtype", "fp8"), "fp8_ds_mla of another type");
  e.wants(e.number("--max-num-batched-tokens", 0) >= e.number("--max-num-seqs"), "budget >= requests");
  e.wants(e.number("--max-model-len") <= e.c.model.max_context, "longer than the model");
  // DeepEP's setup.py, DISABLE_SM90_FEATURES.
  e.wants(!e.ampere() || !e.is("--all2all-backend", "deepep_low_latency"),
          "DeepEP, few tokens before Hopper");
  e.wants(!e.ampere() || !e.is("--all2all-backend", "deepep_high_throughput") || e.machines() == 1,
          "DeepEP, other machines before Hopper");
  // No sparse MLA backend below 9 (v1/attention/backends/mla/flashmla_sparse.py:129).
  e.wants(!latents || !has_sparse(e.c.model) || architecture_of(e.c.system.device) != Architecture::ampere,
          "no backend of sparse MLA");
}

// Pages by _handle_attention_backend_compatibility and what models set (server_args.py:3620-3628, 4400-4664).
long long page_of(const Engine& e) {
  if (e.has("--page-size")) return e.number("--page-size");
  if (e.blackwell() && e.of("Step3p5ForCausalLM")) return 128;
  return e.blackwell() || (has_latents(e.c.model) && has_sparse(e.c.model)) ? 64 : 1;
}

// SGLang 0.5.14: server_args.py, _handle_data_parallelism (5040), _handle_context_parallelism (4973),
// _handle_moe_kernel_config (5062), _handle_a2a_moe (5239), check_server_args (6630).
void sglang_asserts(Engine& e) {
  const long long tp = e.number("--tp-size"), dp = e.number("--dp-size"), pp = e.number("--pp-size"),
                  cp = e.number("--attn-cp-size"), ep = e.number("--ep-size"),
                  moe = e.number("--moe-dp-size");
  const bool sends = e.is("--moe-a2a-backend", "deepep");
  e.wants(tp * pp % e.machines() == 0, "ranks % nodes");
  e.wants(tp % (dp * cp) == 0, "tp % (dp * cp)");
  e.wants(dp == 1 || e.has("--enable-dp-attention"), "dp without attention DP");
  heads(e, std::max(1LL, tp / dp / cp));
  e.wants(!e.has("--moe-dense-tp-size") || e.number("--moe-dense-tp-size") == 1, "moe_dense_tp_size");
  if (moe > 1) {
    e.wants(tp % moe == 0 && ep * moe <= tp && pp == 1 && moe == cp, "moe_dp_size");
    e.wants(ep == 1 || ep * moe == tp, "ep * moe_dp");
  }
  e.wants(!sends || ep == tp, "DeepEP sets ep = tp");
  e.wants(!e.has("--enable-two-batch-overlap") || sends, "two batches without a backend");
  const long long chunk = e.number("--chunked-prefill-size", 0) / dp;
  e.wants(chunk <= 0 || chunk % page_of(e) == 0, fmt::format("chunk {} % page {}", chunk, page_of(e)));
  const double part = std::stod(e.words.at("--mem-fraction-static"));
  e.wants(part > 0.1 && part < 1, fmt::format("mem_fraction_static {}", part));
  e.wants(e.number("--context-length") <= e.c.model.max_context, "longer than the model");
  const std::string cache = e.words.at("--kv-cache-dtype");
  const bool sparse = has_latents(e.c.model) && has_sparse(e.c.model);
  e.wants(!sparse || cache == "bfloat16" || cache == "fp8_e4m3", "cache of DSA in " + cache);
  // mem_cache/deepseek_v4_memory_pool.py, create_buffer.
  e.wants(!e.of("DeepseekV4ForCausalLM") || cache == "fp8_e4m3", "a pool of " + cache);
  e.wants(cache != "fp4_e2m1" || (e.blackwell() && !e.of("NemotronHForCausalLM")), "fp4 cache");
  const std::set<std::string> of_one_stage{"Llama4ForConditionalGeneration",
                                           "Gemma3ForConditionalGeneration"};
  e.wants(pp == 1 || !of_one_stage.contains(e.c.model.architecture), "stages");
  // layers/moe/ep_moe/layer.py, run_moe_core: what neither DeepGEMM nor W4AFP8 takes ends there; models that
  // sum over ranks what each has whole are wrong by their number.
  const ModuleType t = e.experts();
  e.wants(!sends || t.weights == Dtype::fp8_block || (t.weights == Dtype::int4 && t.math == Dtype::fp8),
          "run_moe_core of " + std::string(to_string(t.weights)));
  const std::set<std::string> gathers{"GptOssForCausalLM", "NemotronHForCausalLM",
                                      "Llama4ForConditionalGeneration", "MixtralForCausalLM"};
  e.wants(!sends || !gathers.contains(e.c.model.architecture), "a class without dispatch");
  e.wants(!sends || !e.ampere(), "DeepEP before Hopper");
  // server_args.py:3914-3931: triton_kernel with ep_size 1 alone; mxfp4.py widens what another runner takes.
  e.wants(t.weights != Dtype::mxfp4 || e.blackwell() || ep == 1, "mxfp4 with ep");
  e.wants(!e.of("NemotronHForCausalLM") || e.blackwell() || ep == 1 || ep == tp, "flashinfer_cutlass, ep");
  for (const FeedForward& f : e.c.model.ffns) e.wants(!f.routed() || f.experts % ep == 0, "experts % ep");
}

// TensorRT-LLM near 1.3.0rc20: mapping.py:66,99-109, llmapi/llm_args.py (max_num_tokens, cuda_graph_config),
// _torch/modules/linear.py (heads, widths), docs/source/features/helix.md.
void trtllm_asserts(Engine& e) {
  const long long tp = e.number("tensor_parallel_size"), cp = e.number("context_parallel_size");
  const bool groups = e.is("enable_attention_dp", "true");
  e.wants(!has_experts(e.c.model) ||
              e.number("moe_expert_parallel_size") * e.number("moe_tensor_parallel_size") == tp * cp,
          "moe_ep x moe_tp = tp x cp");
  heads(e, groups ? 1 : tp);
  for (const Attention& a : e.c.model.attentions)
    e.wants(a.none() || a.recurrent() || a.q_heads % ((groups ? 1 : tp) * cp) == 0, "heads % (tp x cp)");
  e.wants(e.number("max_num_tokens") >= e.number("max_batch_size"), "max_num_tokens >= max_batch_size");
  e.wants(cp == 1 || (e.blackwell() && e.is("cp_config.cp_type", "HELIX")), "Helix");
  e.wants(e.number("pipeline_parallel_size") == 1 ||
              (!e.of("GptOssForCausalLM") && !e.of("Gemma4ForConditionalGeneration")),
          "assert mapping.pp_size == 1");
  for (const FeedForward& f : e.c.model.ffns) {
    e.wants(!f.routed() || f.experts % e.number("moe_expert_parallel_size") == 0, "experts % ep");
    e.wants(has_experts(e.c.model) || !f.dense() || f.inner % (tp * cp) == 0, "width % tp");
  }
  const long long block = e.blackwell() ? 32 : 64;  // which it takes where nothing is said
  e.wants(!has_latents(e.c.model) || e.number("kv_cache_config.tokens_per_block", block) == block,
          "tokens_per_block of MLA");
}

void hold(Engine& e, const std::string& engine) {
  if (engine == "vllm") vllm_asserts(e), vllm_drafts(e);
  if (engine == "sglang") sglang_asserts(e), sglang_drafts(e);
  if (engine == "trtllm") trtllm_asserts(e), trtllm_drafts(e);
}

// Experts as checkpoints store them.
void in_bf16(Case&) {}

// Types that the device computes in, and a cache in each.
std::vector<Case> cases_of(const std::string& model, const char* system, const std::string& engine) {
  std::vector<Case> out;
  const Batch batches[]{
      decode_batch(20'000), prefill_batch({{0, 5'000}}), {{{20'000, 1, 3}}, {{1'000, 1'000}}}};
  for (const Dtype kv : {Dtype::bf16, Dtype::fp8, Dtype::fp4}) {
    for (const Batch& batch : batches) {
      for (void (*const experts)(Case&) : {in_bf16, experts_in_blocks, experts_in_mxfp4}) {
        Case c = case_of(engine, {model.c_str(), system, "", experts});
        if (experts != in_bf16 && (!has_experts(c.model) || kv == Dtype::fp4)) continue;
        c.precision.kv = kv;
        c.batch = batch;
        accepts_drafts(c);
        if (!does_not_start(c)) out.push_back(std::move(c));
      }
    }
  }
  return out;
}

// Of every strategy some of its plans for so many GPUs, with every choice of how tokens reach experts and
// whether halves of a batch overlap; each also with drafts, where it may have any.
std::vector<Plan> plans_of(const Case& c) {
  std::vector<Plan> out;
  for (const Strategy* s : strategies()) {
    if (!s->takes(c)) continue;
    std::vector<Plan> all;
    for (const int gpus : {1, 2, 4, 8, 16, 64}) s->enumerate(c, gpus, SearchSpace{}, all);
    const std::size_t step = std::max<std::size_t>(1, all.size() / 10);
    for (std::size_t i = 0; i < all.size(); i += step) {
      out.push_back(all[i]);
      out.back().batch = std::max(all[i].batch, static_cast<int>(1 + i % 40));
      Plan drafts = out.back();
      drafts.set(kDrafts, static_cast<int>(1 + i % 5));
      if (s->reads(kDrafts) && !check_plan(c, drafts)) out.push_back(drafts);
    }
  }
  return out;
}

void try_engine(const std::string& engine) {
  int started = 0, models = 0, drafting = 0;
  std::set<std::string> strategies_started;
  const auto launched = profile(engine);
  for (const std::string& model : catalog_names(source_path("models/catalog"))) {
    if (!untimed(load_model(model, source_path("models/catalog"))).empty()) continue;
    const int before = started;
    for (const char* system : {kA100, "h200-hgx", kGb}) {
      for (const Case& c : cases_of(model, system, engine)) {
        for (const Plan& p : plans_of(c)) {
          if (check_plan(c, p) || does_not_start(c, p) || !fits(c, memory_use(c, p))) continue;
          const Launch launch = launch_files(c, p, *launched, "serve");
          for (const LaunchedServer& server : launch.servers) {
            Engine e{c, p, options_of(server)};
            hold(e, engine);
            EXPECT_EQ(e.faults, std::vector<std::string>{})
                << model << " on " << system << ": " << to_string(p) << "\n"
                << server.lines.front();
            strategies_started.insert(std::string(to_string(p.strategy)));
            drafting += p[kDrafts] > 0 ? 1 : 0;
            ++started;
          }
        }
      }
    }
    models += started > before;
  }
  fmt::print("{}: {} servers of {} models, {} strategies, {} with drafts\n", engine, started, models,
             strategies_started.size(), drafting);
  EXPECT_GT(drafting, 30);
  EXPECT_GT(started, 1'000);
  EXPECT_GT(models, 20);
  EXPECT_GE(strategies_started.size(), 3u);
}

// [P20], [P21]
TEST(LaunchMatrix, WhatFilesSayHoldsByVllmsOwnAssertions) { try_engine("vllm"); }
TEST(LaunchMatrix, WhatFilesSayHoldsBySglangsOwnAssertions) { try_engine("sglang"); }
TEST(LaunchMatrix, WhatFilesSayHoldsByTensorRtLlmsOwnAssertions) { try_engine("trtllm"); }

}  // namespace
}  // namespace shardline
