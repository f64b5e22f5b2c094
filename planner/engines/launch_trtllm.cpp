// `trtllm-serve` of TensorRT-LLM 1.3.0rc20, PyTorch backend: a YAML with all that it is told, so that no
// option stands in two places, whose precedence changed around that version; and a script. Sources of each
// key: tests/planner/engine_options/trtllm.csv. Across machines one launcher starts a rank per GPU
// (llmapi/trtllm-llmapi-launch), on Slurm or by MPI.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/engines/checkpoints.hpp"
#include "planner/engines/launch_server.hpp"
#include "planner/engines/transfer_buffers.hpp"
#include "planner/layers/share.hpp"
#include "planner/search/memory.hpp"

namespace shardline::launch {

namespace {

// 8000 is of what stands in front of several.
Ports ports_of(const Server& s) { return {s.role == Role::whole && s.replicas.count == 1 ? 8000 : 8001, 1}; }

// Kernels of trtllm-gen on Blackwell; DeepGEMM within CUTLASS on Hopper, which dies elsewhere
// (_torch/modules/fused_moe, can_implement of each backend). Of others the engine's own choice.
std::string expert_kernels(const Case& c) {
  if (!has_experts(c.model)) return "";
  const Dtype stored = kernel_type(c.precision.of(Module::experts).weights);
  const Architecture on = architecture_of(c.system.device);
  if (on == Architecture::blackwell && (stored == Dtype::fp4 || stored == Dtype::fp8_block)) return "TRTLLM";
  return on == Architecture::hopper && stored == Dtype::fp8_block ? "CUTLASS" : "";
}

void put_tokens(const Server& s, LaunchOptions& o) {
  const Case& c = s.study;
  const long long requests = sequences_of_step(c, s.plan) * new_tokens(s.plan);
  if (s.role == Role::generation) return put(o, "max_num_tokens", requests);
  // It refuses prompts above max_num_tokens unless it may cut them.
  put(o, "enable_chunked_prefill", c.batch.prefills() && !in_chunks(c, s.plan) ? "false" : "true");
  put(o, "max_num_tokens", token_budget(s));
}

// The profile's part of what is free; of a half the buffers of its transceiver have to lie in what that
// leaves, since the engine does not reckon with them (pull request 4153 took that out).
double cache_part(const Server& s) {
  constexpr double kSteps = 10'000;
  const KeptOf of = kept_of(s);
  const double part = s.engine.memory_part(of), buffers = transfer_buffers(s.study, s.plan).value;
  if (buffers <= 0) return part;
  const MemoryUse use = memory_use(s.study, s.plan);
  const double free =
      (s.study.system.device.memory - use.weights - s.engine.kept.context(of) - s.engine.kept.set_aside(of))
          .value;
  return std::max(0.0, std::floor(kSteps * part * (free - buffers) / free) / kSteps);
}

void put_memory(const Server& s, LaunchOptions& o) {
  if (!kv_name(s).empty()) put(o, "kv_cache_config.dtype", kv_name(s));
  put(o, "kv_cache_config.free_gpu_memory_fraction", fmt::format("{}", cache_part(s)));
  // With reuse, its default, a state is saved of each mamba_state_cache_interval tokens (256), which takes
  // most of the memory for caches: of Nemotron 3 Super on TP 8 a token's part of one is 83 KB beside 4 KB of
  // keys and values (_torch/pyexecutor/mamba_cache_manager.py, CppMambaHybridCacheManager.
  // get_cache_size_per_token, near v1.3.0rc20). Plans have a state of each request [P30], as the engine has
  // without: max_batch_size of them, and tokens in the rest.
  if (has_recurrence(s.study.model)) put(o, "kv_cache_config.enable_block_reuse", "false");
}

// States of layers without a cache of tokens move by NIXL through the transceiver in Python alone, and that
// one has its own pool of them (MixedMambaHybridCacheManager), which keeps no blocks for reuse
// (_torch/pyexecutor/_util.py, get_kv_cache_manager_cls, and kv_cache_transceiver.py,
// create_kv_cache_transceiver, near v1.3.0rc20; pull requests 12150, 14060 and 16428). So the engine's own
// test has it (test_disaggregated_serving.py, TestNemotron3Super120B).
void put_states(const Server& s, LaunchOptions& o) {
  if (!has_recurrence(s.study.model) || s.with_helix) return;
  put(o, "cache_transceiver_config.transceiver_runtime", "PYTHON");
}

// A half's caches move by the transceiver, whose buffer holds the longest prompt. Both have blocks of one
// size (batch_manager/cacheFormatter.cpp, inquireSupport). Helix as the engine's own test starts it, on both
// sides (tests/integration/defs/accuracy/test_disaggregated_serving.py,
// test_auto_dtype_with_helix@00bb903d965f): beside the overlap scheduler positions are one too low before
// pull request 17811.
void put_half(const Server& s, LaunchOptions& o) {
  if (s.role == Role::context || s.with_helix) put(o, "disable_overlap_scheduler", "true");
  // Blocks as the hand-off was priced with. Servers that do both say none: nothing of theirs depends on it,
  // and the engine takes what it was measured with, 32 (llmapi/llm_args.py, KvCacheConfig.tokens_per_block),
  // or under MLA what it has kernels for.
  put(o, "kv_cache_config.tokens_per_block", tensorrt_llm_block(s.study));
  if (s.with_helix) {
    put(o, "kv_cache_config.enable_block_reuse", "false");
    put(o, "kv_cache_config.enable_partial_reuse", "false");
  }
  put(o, "cache_transceiver_config.backend", s.with_helix ? "UCX" : "NIXL");
  put(o, "cache_transceiver_config.max_tokens_in_buffer", transfer_tokens(s.study, s.plan));
  put_states(s, o);
}

std::string yaml_of(const Server& s) {
  std::string out = fmt::format("# {} {}, {}: beside {}.sh, which starts it.\n", s.engine.title,
                                s.engine.version, plan_text(s), s.stem);
  for (const std::string& line : yaml_lines(tensorrt_llm_options(s))) out += line + "\n";
  return out;
}

// Slurm spreads tasks evenly unless a file names the machine of each (srun's man page: --distribution,
// arbitrary, and SLURM_HOSTFILE).
std::string unequal_tasks(const Machines& m) {
  return fmt::format(
      "  export SLURM_HOSTFILE=$(mktemp)\n"
      "  scontrol show hostnames | while read -r HOST; do\n"
      "    for _ in {{1..{}}}; do echo \"$HOST\"; done\n  done | sed -n 1,{}p > \"$SLURM_HOSTFILE\"\n",
      m.each, (m.count - 1) * m.each + m.last);
}

// A rank per GPU on all machines. Slurm hands the environment to all of them, Open MPI what -x names.
std::string launcher(const Server& s) {
  const Machines m = machines_of(s);
  const int all = s.plan.gpus();
  std::string named;
  for (const LaunchOption& e : s.deployment.environment) named += " -x " + e.name;
  const std::string tasks =
      m.even() ? fmt::format("--ntasks-per-node={}", m.each) : std::string("--distribution=arbitrary");
  const std::string slots = m.even() ? fmt::format("{} slots each", m.each)
                                     : fmt::format("{} slots, the last with {}", m.each, m.last);
  return fmt::format(
      "if [ -n \"${{SLURM_JOB_ID:-}}\" ]; then\n{}"
      "  RANKS=(srun --nodes={} --ntasks={} {} --mpi=pmix)\n"
      "else\n  RANKS=(mpirun -n {} --hostfile \"${{HOSTS:?a file of {} machines with {}}}\"{})\nfi\n",
      m.even() ? "" : unequal_tasks(m), m.count, all, tasks, all, m.count, slots, named);
}

std::vector<std::string> says(const Server& s) {
  std::vector<std::string> out;
  if (machines(s) > 1)
    out.push_back(
        fmt::format("Run it once, in a Slurm job of {} machines of {} or where mpirun reaches "
                    "them; the first one answers.",
                    machines(s), gpus_text(machines_of(s))));
  if (s.study.precision.kv == Dtype::bf16)
    out.emplace_back("dtype: auto is BF16 unless the checkpoint asks for a narrower cache.");
  return out;
}

}  // namespace

// Other names are refused when the model is loaded (_torch/pyexecutor/model_loader.py,
// validate_and_set_kv_cache_quant).
std::string tensorrt_llm_kv(Dtype kv) {
  return kv == Dtype::bf16 ? "auto" : kv == Dtype::fp8 ? "fp8" : kv == Dtype::fp4 ? "nvfp4" : "";
}

LaunchOptions tensorrt_llm_options(const Server& s) {
  LaunchOptions o = s.deployment.options;
  put_tokens(s, o);
  if (runs_repository_code(s.study)) put(o, "trust_remote_code", "true");
  put(o, "max_seq_len", served_length(s.study));
  if (machines(s) > 1) put(o, "gpus_per_node", gpus_on_each(s));
  if (const std::string backend = expert_kernels(s.study); !backend.empty())
    put(o, "moe_config.backend", backend);
  put_memory(s, o);
  if (s.role == Role::context) {
    put(o, "cuda_graph_config", "null");
  } else {
    put(o, "cuda_graph_config.enable_padding", "true");
    put(o, "cuda_graph_config.max_batch_size", graph_requests(s));
  }
  if (s.role != Role::whole) put_half(s, o);
  put_served(s, o);
  return o;
}

std::vector<std::string> tensorrt_llm_lines(const Server& s) {
  LaunchOptions command;
  put(command, "--backend", "pytorch");
  put(command, "--config", "FILE");
  std::vector<std::string> out{typed_command(s, "trtllm-serve {}", command) + ", with FILE:"};
  for (const std::string& line : yaml_lines(tensorrt_llm_options(s))) out.push_back("  " + line);
  return out;
}

std::vector<LaunchFile> tensorrt_llm_server(const Server& s) {
  const bool many = machines(s) > 1;
  const std::string yaml = s.stem + ".yaml";
  std::string text = script_head(s, says(s), replica_variables(s, ports_of(s)));
  text += exports(s) + "HERE=$(cd \"$(dirname \"$0\")\" && pwd)\n";
  if (many) text += launcher(s);
  LaunchOptions o;
  put(o, "--backend", "pytorch");
  put(o, "--host", "0.0.0.0");
  put_variable(o, "--port", "PORT");
  put_variable(o, "--config", "HERE/" + yaml);
  text += continued(std::string("exec ") + (many ? "\"${RANKS[@]}\" trtllm-llmapi-launch " : "") +
                        "trtllm-serve \"$MODEL\"",
                    o);
  return {{s.stem + ".sh", text, true}, {yaml, yaml_of(s), false}};
}

// llmapi/disagg_utils.py, extract_disagg_cfg: as many addresses as instances; requests go to them in turn
// (RouterConfig).
std::vector<LaunchFile> tensorrt_llm_front(const Server& context, const Server& generation,
                                           const std::string& stem) {
  std::string text =
      "#!/bin/bash\n# In front of the servers beside it.\nset -euo pipefail\nPORT=${PORT:-8000}\n";
  text += address_lines("CONTEXT", context, ports_of(context), " for prompts") +
          address_lines("GENERATION", generation, ports_of(generation), " for answers");
  text += "CONTEXT_URLS= GENERATION_URLS=\n" +
          each_address("CONTEXT", "CONTEXT_URLS+=\"${CONTEXT_URLS:+, }\\\"$ADDR:$AT\\\"\"") +
          each_address("GENERATION", "GENERATION_URLS+=\"${GENERATION_URLS:+, }\\\"$ADDR:$AT\\\"\"");
  text += fmt::format(
      "CONFIG=$(mktemp --suffix=.yaml)\ncat > \"$CONFIG\" <<END\n"
      "hostname: 0.0.0.0\nport: $PORT\n"
      "context_servers:\n  num_instances: {}\n  urls: [$CONTEXT_URLS]\n"
      "generation_servers:\n  num_instances: {}\n  urls: [$GENERATION_URLS]\nEND\n"
      "exec trtllm-serve disaggregated -c \"$CONFIG\" \"$@\"\n",
      context.replicas.count, generation.replicas.count);
  return {{stem + ".sh", text, true}};
}

// Its documentation names none for servers that do both; each has the same interface as vLLM's.
std::vector<LaunchFile> tensorrt_llm_router(const Server& s, const std::string& stem) {
  return {nginx_router(s, ports_of(s), stem)};
}

}  // namespace shardline::launch
