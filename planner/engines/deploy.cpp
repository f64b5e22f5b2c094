#include "planner/engines/deploy.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/engines/dispatch_room.hpp"
#include "planner/engines/draft_rules.hpp"
#include "planner/engines/launch_rules.hpp"
#include "planner/engines/launch_server.hpp"
#include "planner/layers/share.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

constexpr long long kAnswer = 1024;  // served_length()

// New tokens of prefills in one step of an attention group.
long long chunk_tokens(const Case& c, const Plan& p) {
  if (c.batch.kind() == StepKind::mixed) return c.fresh_tokens() * p.batch;
  return static_cast<long long>(p[kPrefillChunk]) * p.batch * requests_in(c.batch.prefill);
}

// Experts on all ranks of a stage, or none: vLLM has no size for them (fused_moe/config.py:1190-1240 at
// v0.24.0).
std::string vllm_experts_unsaid(const Case& c, const Plan& p) {
  if (!has_experts(c.model) || p.tpf == 1 || p.ep == 1) return "";
  return fmt::format("it has experts whole on single ranks or cut over all {}, not {} groups of {}",
                     p.ep * p.tpf, p.ep, p.tpf);
}

// A prefill's: vLLM gathers KV (RFC vllm-project/vllm#25749).
Deployment context_parallel(const Case& c, const Plan& p) {
  Deployment d{"vLLM", "vllm", {}, {}, {}, {}};
  put(d.options, "--tensor-parallel-size", p.tpa);
  if (p.pp > 1) put(d.options, "--pipeline-parallel-size", p.pp);
  put(d.options, "--prefill-context-parallel-size", p.cp);
  if (p.ep > 1) put(d.options, "--enable-expert-parallel");
  put(d.options, "--max-num-seqs", sequences(c, p));
  put(d.options, "--max-model-len", served_length(c));
  // vllm v1/attention/backend.py:752 at v0.24.0: supports_pcp is False, and no CUDA backend says otherwise.
  d.unsaid = "no attention backend of vLLM 0.24.0 runs --prefill-context-parallel-size above 1";
  if (const std::string real = strategy(p.strategy).deployed_as; !real.empty())
    d.notes.push_back(fmt::format(
        "it gathers KV ({}); no released engine documents this variant: expect {}'s TTFT", real, real));
  return d;
}

// The strategy that engines run in a plan's place, on the same degrees.
Plan as_deployed(const Plan& p) {
  const std::string_view real = strategy(p.strategy).deployed_as;
  Plan out = p;
  if (!real.empty()) out.strategy = *find_strategy(real);
  return out;
}

// Its zigzag strategy splits one prompt: a step of several it computes without context parallelism
// (layers/utils/cp_utils.py, prepare_context_parallel_metadata, near v0.5.14). The interleaved one, which
// DeepSeek-V4 has, deals out the tokens of a step (layers/attention/dsa/utils.py:173-194).
std::string sglang_context_unsaid(const Case& c, const Plan& p) {
  const bool interleaved = has_compression(c.model);
  if (!interleaved && sequences_of_step(c, p) > 1)
    return "SGLang 0.5.14 shares one prompt at a time among context-parallel ranks";
  if (!interleaved && architecture_of(c.system.device) == Architecture::blackwell)
    return "SGLang 0.5.14 shares prompts by FlashAttention 3, which does not run on Blackwell "
           "(layers/cp/base.py:72-78)";
  if (const auto refusal = refused_by("sglang", c, as_deployed(p)))
    return fmt::format("{}; {} ({})", refusal->says, refusal->text, refusal->source);
  return "";
}

// A prefill's: each rank gathers the KV of a layer and attends with its own tokens, dealt out in two blocks
// per rank (docs.sglang.io/docs/advanced_features/prefill_cp; srt/server_args.py:888-906 at v0.5.14). What
// FlashAttention 3 runs alone is said, since others are the default on some devices
// (layers/cp/base.py:72-78).
Deployment sglang_context_parallel(const Case& c, const Plan& p) {
  Deployment d = sglang_deployment(c, p);
  put(d.options, "--tp-size", p.dp * p.cp * p.tpa);
  put(d.options, "--attn-cp-size", p.cp);
  put(d.options, "--enable-prefill-cp");
  // DeepSeek-V4 takes no other (srt/arg_groups/deepseek_v4_hook.py:78-82).
  const bool interleaved = has_compression(c.model);
  put(d.options, "--cp-strategy", interleaved ? "interleave" : "zigzag");
  if (interleaved)
    d.notes.emplace_back(
        "it deals tokens out to its ranks one by one, where this plan was timed with two chunks on each: as "
        "many tokens, bytes and pairs");
  // Sparse attention has kernels of its own, which it takes by itself (srt/server_args.py:3436-3474).
  if (!interleaved && !has_sparse_latents(c.model)) put(d.options, "--attention-backend", "fa3");
  // Context-parallel ranks hold copies of the experts where these are not spread over all of them.
  if (has_experts(c.model) && !spreads_experts(p)) put(d.options, "--moe-dp-size", p.cp);
  d.unsaid = sglang_context_unsaid(c, p);
  if (const std::string real = strategy(p.strategy).deployed_as; !real.empty())
    d.notes.push_back(
        fmt::format("it gathers KV ({}) and has no option for this variant: expect {}'s TTFT", real, real));
  return d;
}

}  // namespace

bool in_chunks(const Case& c, const Plan& p) {
  return p[kPrefillChunk] > 0 || c.batch.kind() == StepKind::mixed;
}

long long step_tokens(const Case& c, const Plan& p) {
  const long long decoding = requests_in(c.batch.decode) * p.batch * new_tokens(p);
  return decoding + (in_chunks(c, p) ? chunk_tokens(c, p) : c.fresh_tokens() * p.batch);
}

long long sequences_of_step(const Case& c, const Plan& p) {
  return (requests_in(c.batch.decode) + requests_in(c.batch.prefill)) * p.batch;
}

// Prefill graphs are off under attention DP, with stages and context parallelism (SGLang 0.5.14,
// server_args.py:2983-3057).
KeptOf kept_of(const Case& c, const EngineProfile& engine, const Plan& p) {
  KeptOf of;
  of.gpus = p.gpus();
  of.groups = p.dp;
  of.step_tokens = engine.tokens_of_step(c.system.device);
  of.requests = sequences_of_step(c, p);
  of.latents = has_latents(c.model);
  of.prompt_graphs = p.dp == 1 && p.pp == 1 && p.cp == 1;
  of.shares_context = p.kvp > 1 || p.cp > 1;
  return of;
}

bool holds_prompts(const Case& c, const Plan& p) {
  return c.engine && c.engine->delay_passes > 0 && p.dp > 1 && !c.disaggregated;
}

long long sequences(const Case& c, const Plan& p) { return sequences_of_step(c, p) * p.in_flight; }

long long served_length(const Case& c) {
  if (c.served.total() > 0) return c.served.total();
  const long long longest = c.longest();
  if (c.any_context) return longest + kAnswer;
  return std::min(longest + kAnswer, std::max(longest, c.model.max_context));
}

bool beyond_model(const Case& c) { return c.model.max_context > 0 && served_length(c) > c.model.max_context; }

namespace {

bool computes_prompts(const Case& c) { return c.batch.prefills() || serves_both(c); }

// DeepEP asks for it where a rank's room is larger than its default is enough for.
void put_queue_pairs(Deployment& d, long long room) {
  if (const long long depth = queue_pair_depth(room); depth > kDefaultQueuePairDepth)
    put(d.environment, "NVSHMEM_QP_DEPTH", depth);
}

// One backend per server: the kernels of few tokens are for servers that decode (docs/design/dbo.md at
// v0.24.0). Between the machines of an NVLink domain they go over NVLink where they are told to, without the
// buffer for NVLink that no other machine can open (distributed/device_communicators/all2all.py,
// DeepEPLLAll2AllManager; envs.py).
void put_vllm_exchange(Deployment& d, const Case& c, const Plan& p) {
  if (!groups_share_experts(c, p)) return;
  const bool few = !computes_prompts(c);
  const char* kernels = few ? "deepep_low_latency" : "deepep_high_throughput";
  const bool gathers = p[kExpertTokens] == ExpertTokens::gather;
  put(d.options, "--all2all-backend", gathers ? "allgather_reducescatter" : kernels);
  if (gathers || !few) return;
  put_queue_pairs(d, dispatch_room(c, p));
  const int machine = gpus_per_machine(c.system);
  if (machine >= c.system.fabric.gpus_per_node || p.ranks_per_stage() <= machine) return;
  put(d.environment, "VLLM_DEEPEP_LOW_LATENCY_USE_MNNVL", 1);
  put(d.environment, "VLLM_DEEPEP_BUFFER_SIZE_MB", 0LL);
}

// Thresholds are lowered where the plan's own step is below them (config/parallel.py:208-222).
void put_vllm_overlap(LaunchOptions& o, const Case& c, const Plan& p) {
  const bool prompts = computes_prompts(c);
  put(o, "--enable-dbo");
  const long long tokens = step_tokens(c, p), usual = prompts ? 512 : 32;
  if (tokens < usual)
    put(o, prompts ? "--dbo-prefill-token-threshold" : "--dbo-decode-token-threshold", tokens);
}

// Two halves need a backend (srt/server_args.py:6778 at v0.5.14), whose kernels of few tokens, in steps that
// decode, have room for so many of a rank (srt/environ.py:570,
// layers/moe/token_dispatcher/deepep.py:351-359). Ranks of a group divide its tokens.
void put_sglang_exchange(Deployment& d, const Case& c, const Plan& p) {
  constexpr long long kRoom = 128;
  if (!groups_share_experts(c, p)) return;
  const bool halves = p[kOverlap] == Overlap::two_batch;
  if (halves) put(d.options, "--enable-two-batch-overlap");
  const bool gathers = p[kExpertTokens] == ExpertTokens::gather;
  put(d.options, "--moe-a2a-backend", gathers ? "none" : "deepep");
  const long long parts = p.tpa * (halves ? 2 : 1), tokens = sequences_of_step(c, p) * new_tokens(p);
  const long long most = (tokens + parts - 1) / parts;
  if (gathers || c.batch.prefills() || most <= kRoom) return;
  put(d.environment, "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", most);
  put_queue_pairs(d, most);
}

// Tokens of a page of the cache, of which the budget of a group's step is a multiple (srt/server_args.py:6689
// at v0.5.14): 64 of sparse attention (3622-3628) and of its kernels from TensorRT-LLM, the default on
// Blackwell (4430-4446, 4546-4664); of others 1, but under Step-3.5, which takes FlashAttention 4 there
// (3990).
long long sglang_page(const Case& c) {
  const bool blackwell = architecture_of(c.system.device) == Architecture::blackwell;
  if (blackwell && c.model.architecture == "Step3p5ForCausalLM") return 128;
  return blackwell || has_sparse_latents(c.model) ? 64 : 1;
}

// Whole pages, so that the engine starts: up to a page more than the plan's own tokens.
long long whole_pages(const Case& c, long long tokens) {
  const long long page = sglang_page(c);
  return (tokens + page - 1) / page * page;
}

// DeepSeek-V4's experts in MXFP4 on Hopper: its cookbook names the kernels, which no default there is known
// to choose (sgl-project/sglang pull requests 24816 and, of the cookbook, 23966 and 25923 of May 2026: Marlin
// does not start DeepSeek-V4-Pro over 8 ranks).
bool widens_v4_experts(const Case& c) {
  return has_compression(c.model) && c.precision.of(Module::experts).weights == Dtype::mxfp4 &&
         architecture_of(c.system.device) == Architecture::hopper;
}

}  // namespace

int tensorrt_llm_block(const Case& c) { return block_of("trtllm", c).value_or(c.kv_block); }

Deployment tensorrt_llm_deployment(const Case& c, const Plan& p) {
  Deployment d{"TensorRT-LLM", "trtllm", {}, {}, {}, {}};
  LaunchOptions& o = d.options;
  // With attention DP the engine counts the whole stage as tensor parallel.
  put(o, "tensor_parallel_size", p.dp > 1 ? p.dp * p.tpa : p.tpa);
  if (p.pp > 1) put(o, "pipeline_parallel_size", p.pp);
  if (has_experts(c.model)) {
    put(o, "moe_expert_parallel_size", p.ep);
    put(o, "moe_tensor_parallel_size", p.tpf);
  }
  if (p.dp > 1) put(o, "enable_attention_dp", "true");
  // Its default differs between versions near this one (expert_tokens in rules_trtllm.cpp): plans are priced
  // without DeepEP's kernels.
  if (groups_share_experts(c, p)) put(d.environment, "TRTLLM_CAN_USE_DEEP_EP", 0);
  put(o, "max_batch_size", sequences_of_step(c, p));
  if (p[kOverlap] == Overlap::two_batch) d.unsaid = "it has no option that overlaps two halves of a batch";
  if (p.dp > 1 && p.tpa > 1)
    d.unsaid = "its attention DP gives every GPU a request: it has no TP group inside a DP rank";
  return d;
}

Deployment vllm_deployment(const Case& c, const Plan& p) {
  Deployment d{"vLLM", "vllm", {}, {}, {}, {}};
  LaunchOptions& o = d.options;
  put(o, "--tensor-parallel-size", p.tpa);
  if (p.pp > 1) put(o, "--pipeline-parallel-size", p.pp);
  if (p.dp > 1) put(o, "--data-parallel-size", p.dp);
  if (p.ep > 1) put(o, "--enable-expert-parallel");
  put(o, "--max-num-seqs", sequences(c, p));
  put(o, "--max-model-len", served_length(c));
  if (p[kOverlap] == Overlap::two_batch) put_vllm_overlap(o, c, p);
  put_vllm_exchange(d, c, p);
  d.unsaid = vllm_experts_unsaid(c, p);
  return d;
}

// Chunks: its stages take different ones of one request at the same time
// (docs.sglang.io/advanced_features/pipeline_parallelism.html). Attention DP divides its tensor-parallel
// ranks, its running requests and its chunks among the groups (sglang 8905cbd42f4a, srt/server_args.py,
// srt/mem_cache/kv_cache_configurator.py).
Deployment sglang_deployment(const Case& c, const Plan& p) {
  Deployment d{"SGLang", "sglang", {}, {}, {}, {}};
  LaunchOptions& o = d.options;
  put(o, "--tp-size", p.dp * p.tpa);
  if (p.dp > 1) put(o, "--dp-size", p.dp);
  if (p.dp > 1) put(o, "--enable-dp-attention");
  if (holds_prompts(c, p)) put(o, "--enable-prefill-delayer");
  if (p.pp > 1) put(o, "--pp-size", p.pp);
  if (p.ep > 1) put(o, "--ep-size", p.ep);
  if (c.batch.decodes()) put(o, "--max-running-requests", sequences(c, p) * p.dp);
  // Without chunks a prompt passes whole.
  if (c.batch.prefills())
    put(o, "--chunked-prefill-size", in_chunks(c, p) ? whole_pages(c, chunk_tokens(c, p)) * p.dp : -1);
  // It prefills first and lets decoding requests wait, unless told to mix (srt/server_args.py,
  // enable_mixed_chunk).
  if (c.batch.kind() == StepKind::mixed) put(o, "--enable-mixed-chunk");
  put(o, "--context-length", served_length(c));
  // Dense layers whole on every rank; else they span the tensor-parallel ranks (sglang srt/server_args.py,
  // moe_dense_tp_size; srt/layers/dp_attention.py).
  if (p.dp > 1 && has_dense(c.model) && has_experts(c.model) && dense_ffn_ranks(p) == 1)
    put(o, "--moe-dense-tp-size", 1);
  if (widens_v4_experts(c)) put(o, "--moe-runner-backend", "flashinfer_mxfp4");
  put_sglang_exchange(d, c, p);
  if (p.pp > 1 && c.batch.kind() == StepKind::prefill)
    d.notes.emplace_back(
        "--enable-dynamic-chunking shortens later chunks: expect a TTFT at or below this one");
  return d;
}

namespace {

std::vector<Deployment> launches(const Case& c, const Plan& p) {
  std::vector<Deployment> out;
  // No released engine documents APB, StarAttention or vertical-slash sparsity as a flag.
  if (!strategy(p.strategy).exact) return out;
  if (const auto own = strategy(p.strategy).launch) {
    own(c, p, out);
    return out;
  }
  if (p.cp > 1) {
    out.push_back(context_parallel(c, p));
    out.push_back(sglang_context_parallel(c, p));
    return out;
  }
  // No engine shards the cache by sequence without a strategy that says how: those have a `launch`.
  if (p.kvp > 1) return out;
  out.push_back(tensorrt_llm_deployment(c, p));
  out.push_back(vllm_deployment(c, p));
  out.push_back(sglang_deployment(c, p));
  return out;
}

// Under attention DP engines choose themselves how dense layers are shared, so that plans that differ in
// dense_tp have the same options.
void note_dense_layers(const Case& c, const Plan& p, Deployment& d) {
  if (p.dp == 1 || !has_dense(c.model)) return;
  const auto text = [](int ranks) {
    return ranks == 1 ? std::string("whole on every rank") : fmt::format("cut over {} ranks", ranks);
  };
  // SGLang has an option for whole ones, which models without experts are not started with.
  const bool untold = d.profile == "sglang" && find(d.options, "--moe-dense-tp-size") == nullptr;
  const int own = dense_ffn_ranks(p),
            engines = untold ? p.ranks_per_stage() : dense_ranks_under(d.profile, c, p);
  if (own == engines) return;
  d.notes.push_back(fmt::format(
      "{} runs the dense layers {}; this plan was timed with them {}, which no option sets: expect another "
      "time",
      d.engine, text(engines), text(own)));
}

// Engines take lengths beyond a model's maximum where a variable says so; what answers are worth there is
// the user's to know.
void allow_length(const Case& c, Deployment& d) {
  if (!c.any_context || !beyond_model(c)) return;
  put(d.environment, variable_for_long_context(d.profile), 1);
  d.notes.push_back(fmt::format("{} tokens are beyond the {} of {}: {}=1 lets the engine take them",
                                served_length(c), c.model.max_context, c.model.name,
                                d.environment.back().name));
}

}  // namespace

std::vector<Deployment> deployments(const Case& c, const Plan& p) {
  std::vector<Deployment> out = launches(c, p);
  if (c.engine) std::erase_if(out, [&](const Deployment& d) { return d.profile != c.engine->name; });
  for (Deployment& d : out) {
    note_dense_layers(c, p, d);
    allow_length(c, d);
    put_drafts(c, p, d);
  }
  return out;
}

}  // namespace shardline
