#include "planner/engines/deploy.hpp"

#include <fmt/format.h>

#include "planner/layers/share.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

// Whether requests pass in pieces, as a plan's chunks or beside others that decode.
bool in_chunks(const Case& c, const Plan& p) {
  return p[kPrefillChunk] > 0 || c.batch.kind() == StepKind::mixed;
}

// New tokens of prefills in one forward pass, and of all requests.
long long chunk_tokens(const Case& c, const Plan& p) {
  if (c.batch.kind() == StepKind::mixed) return c.fresh_tokens() * p.batch;
  return static_cast<long long>(p[kPrefillChunk]) * p.batch * requests_in(c.batch.prefill);
}
long long step_tokens(const Case& c, const Plan& p) {
  return chunk_tokens(c, p) + requests_in(c.batch.decode) * p.batch;
}
// Requests that an engine has at once in one attention group.
long long sequences(const Case& c, const Plan& p) {
  const long long each = c.batch.decodes() ? requests_in(c.batch.decode) + requests_in(c.batch.prefill) : 1;
  return each * p.batch * p.in_flight;
}

// A prefill's: vLLM gathers KV (RFC vllm-project/vllm#25749).
Deployment context_parallel(const Case& c, const Plan& p) {
  Deployment d{"vLLM", {}, {}};
  std::string line = fmt::format("vllm serve MODEL --tensor-parallel-size {}", p.tpa);
  if (p.pp > 1) line += fmt::format(" --pipeline-parallel-size {}", p.pp);
  line += fmt::format(" --prefill-context-parallel-size {}", p.cp);
  if (p.ep > 1) line += " --enable-expert-parallel";
  line += fmt::format(" --max-num-seqs {} --max-model-len {}",
                      requests_in(c.batch.prefill) * p.batch * p.in_flight, c.longest());
  if (p[kPrefillChunk] > 0)
    line += fmt::format(" --enable-chunked-prefill --max-num-batched-tokens {}", chunk_tokens(c, p));
  d.lines.push_back(std::move(line));
  d.notes.emplace_back("not every attention backend supports prefill context parallelism yet");
  if (const std::string real = strategy(p.strategy).deployed_as; !real.empty())
    d.notes.push_back(fmt::format(
        "it gathers KV ({}); no released engine documents this variant: expect {}'s TTFT", real, real));
  return d;
}

}  // namespace

Deployment tensorrt_llm_deployment(const Case& c, const Plan& p) {
  Deployment d{"TensorRT-LLM", {}, {}};
  // With attention DP the engine counts the whole stage as tensor parallel.
  const int tp = p.dp > 1 ? p.dp * p.tpa : p.tpa;
  d.lines.push_back(fmt::format("tensor_parallel_size: {}", tp));
  if (p.pp > 1) d.lines.push_back(fmt::format("pipeline_parallel_size: {}", p.pp));
  if (has_experts(c.model)) {
    d.lines.push_back(fmt::format("moe_expert_parallel_size: {}", p.ep));
    d.lines.push_back(fmt::format("moe_tensor_parallel_size: {}", p.tpf));
  }
  if (p.dp > 1) d.lines.emplace_back("enable_attention_dp: true");
  d.lines.push_back(fmt::format("max_batch_size: {}", sequences(c, p) / p.in_flight));
  if (in_chunks(c, p)) {
    d.lines.emplace_back("enable_chunked_prefill: true");
    d.lines.push_back(fmt::format("max_num_tokens: {}", step_tokens(c, p)));
  }
  if (p.dp > 1 && p.tpa > 1) {
    d.notes.emplace_back(
        "its attention DP gives every GPU a request; a TP group inside each DP rank is not documented");
  }
  return d;
}

Deployment vllm_deployment(const Case& c, const Plan& p) {
  Deployment d{"vLLM", {}, {}};
  std::string line = fmt::format("vllm serve MODEL --tensor-parallel-size {}", p.tpa);
  if (p.pp > 1) line += fmt::format(" --pipeline-parallel-size {}", p.pp);
  if (p.dp > 1) line += fmt::format(" --data-parallel-size {}", p.dp);
  if (p.ep > 1) line += " --enable-expert-parallel";
  line += fmt::format(" --max-num-seqs {} --max-model-len {}", sequences(c, p), c.longest());
  if (in_chunks(c, p)) {
    line += fmt::format(" --enable-chunked-prefill --max-num-batched-tokens {}", step_tokens(c, p));
  }
  d.lines.push_back(std::move(line));
  if (p.ep > 1 && p.tpf > 1) d.notes.emplace_back("expert parallelism there spans all GPUs (tpf=1)");
  return d;
}

// Chunks: its stages take different ones of one request at the same time
// (docs.sglang.io/advanced_features/pipeline_parallelism.html). Attention DP divides its tensor-parallel
// ranks and its running requests among the groups (sglang 8905cbd42f4a, srt/server_args.py,
// srt/mem_cache/kv_cache_configurator.py).
Deployment sglang_deployment(const Case& c, const Plan& p) {
  Deployment d{"SGLang", {}, {}};
  std::string line =
      fmt::format("python3 -m sglang.launch_server --model-path MODEL --tp-size {}", p.dp * p.tpa);
  if (p.dp > 1) line += fmt::format(" --dp-size {} --enable-dp-attention", p.dp);
  if (p.pp > 1) line += fmt::format(" --pp-size {}", p.pp);
  if (p.ep > 1) line += fmt::format(" --ep-size {}", p.ep);
  // It prefills first and lets decoding requests wait, unless told to mix (srt/server_args.py,
  // enable_mixed_chunk).
  // Attention DP divides both among its groups.
  if (c.batch.decodes()) line += fmt::format(" --max-running-requests {}", sequences(c, p) * p.dp);
  if (c.batch.prefills()) line += fmt::format(" --chunked-prefill-size {}", chunk_tokens(c, p) * p.dp);
  if (c.batch.kind() == StepKind::mixed) line += " --enable-mixed-chunk";
  line += fmt::format(" --context-length {}", c.longest());
  // Dense layers whole on every rank; else they span the tensor-parallel ranks (sglang srt/server_args.py,
  // moe_dense_tp_size; srt/layers/dp_attention.py).
  if (p.dp > 1 && has_dense(c.model) && has_experts(c.model) && dense_ffn_ranks(p) == 1)
    line += " --moe-dense-tp-size 1";
  d.lines.push_back(std::move(line));
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
    return out;
  }
  // No engine shards the cache by sequence without a strategy that says how: those have a `launch`.
  if (p.kvp > 1) return out;
  out.push_back(tensorrt_llm_deployment(c, p));
  out.push_back(vllm_deployment(c, p));
  if (in_chunks(c, p)) out.push_back(sglang_deployment(c, p));
  return out;
}

// Under attention DP engines choose themselves how dense layers are shared, so that plans that differ in
// dense_tp have the same lines.
void note_dense_layers(const Case& c, const Plan& p, Deployment& d) {
  if (p.dp == 1 || !has_dense(c.model)) return;
  const int ranks = dense_ffn_ranks(p);
  for (const std::string& line : d.lines) {
    if (line.find("--moe-dense-tp-size") != std::string::npos) return;
  }
  d.notes.push_back(fmt::format("this plan's time has dense layers over {} {}; no flag here sets that", ranks,
                                ranks == 1 ? "rank" : "ranks"));
}

}  // namespace

std::vector<Deployment> deployments(const Case& c, const Plan& p) {
  std::vector<Deployment> out = launches(c, p);
  for (Deployment& d : out) note_dense_layers(c, p, d);
  return out;
}

}  // namespace shardline
