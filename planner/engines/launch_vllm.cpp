// `vllm serve` of vLLM 0.24.0; sources at that tag (vllm-project/vllm ee0da84ab9) stand with each option in
// tests/planner/engine_options/vllm.csv. One process group per machine: all but the first are headless
// (entrypoints/cli/serve.py:173). Groups of attention data parallelism that fit a machine are counted by
// --data-parallel-size-local and -start-rank (docs/serving/expert_parallel_deployment.md:96-116); what spans
// machines by --nnodes (engine/arg_utils.py:1908-1940).
#include <fmt/format.h>

#include <algorithm>

#include "planner/engines/checkpoints.hpp"
#include "planner/engines/launch_rules.hpp"
#include "planner/engines/launch_server.hpp"
#include "planner/layers/share.hpp"

namespace shardline::launch {

namespace {

constexpr long long kGraph = 512;  // the largest by default (config/vllm.py:1688-1694)
constexpr int kDistributedPort = 29501, kRpcPort = 13345;  // defaults of --master-port; of the documentation

// 1, 2, 4, multiples of 8 below 256, then of 16 (config/vllm.py:1721-1741).
long long captured(long long tokens) {
  for (const long long n : {1, 2, 4}) {
    if (tokens <= n) return n;
  }
  const long long step = tokens <= 248 ? 8 : 16;
  return (tokens + step - 1) / step * step;
}

// The default's sizes or, where a step has more tokens, as many as cover it; within the budget, which is a
// size of its own. With drafts sizes are rounded up to multiples of a request's tokens, and none beyond the
// largest is kept (config/compilation.py:1482-1489@68afd7889723).
long long largest_graph(const Server& s, long long budget) {
  const long long each = new_tokens(s.plan), all = captured(graph_requests(s) * each);
  return std::min(budget, std::max(kGraph, each > 1 ? captured(all + each - 1) : all));
}

std::string transfer_config(const Server& s) {
  const bool played = s.served != nullptr && !s.served->load_failures.empty();
  return fmt::format(R"({{"kv_connector":"NixlConnector","kv_role":"{}","kv_load_failure_policy":"{}"}})",
                     s.role == Role::context ? "kv_producer" : "kv_consumer",
                     played ? s.served->load_failures : "fail");
}

// Several servers that do both leave 8000 to what stands in front of them.
Ports ports_of(const Server& s) {
  const int whole = s.replicas.count > 1 ? 8001 : 8000;
  return {s.role == Role::whole ? whole : s.role == Role::context ? 8100 : 8200, 1};
}

// Each attention group of a server listens at a port of its own behind the server's: that of the group's
// number (distributed/kv_transfer/kv_connector/v1/nixl/base_scheduler.py, NixlBaseConnectorScheduler:
// data_parallel_index).
constexpr int kSideChannel = 5600;  // VLLM_NIXL_SIDE_CHANNEL_PORT (envs.py:199)

std::string side_channel(const Server& s) {
  return fmt::format(
      "export VLLM_NIXL_SIDE_CHANNEL_HOST=\"$THIS_ADDR\"\n"
      "export VLLM_NIXL_SIDE_CHANNEL_PORT=${{VLLM_NIXL_SIDE_CHANNEL_PORT:-{}}}\n",
      by_replica(s, kSideChannel + s.replicas.groups_ahead, s.plan.dp));
}

// Of one machine; those of several are in NODE.
LaunchOptions with_address(const Server& s) {
  LaunchOptions o;
  if (machines(s) == 1) {
    put(o, "--host", "0.0.0.0");
    put_variable(o, "--port", "PORT");
  }
  for (const LaunchOption& of_server : vllm_options(s)) o.push_back(of_server);
  return o;
}

// What differs between machines, as a bash array.
std::string of_machine(const Server& s) {
  const Machines m = machines_of(s);
  const int group = s.plan.gpus() / s.plan.dp;
  std::string all, others = "--headless";
  if (s.plan.dp > 1 && group <= m.each) {
    const int each = m.each / group, last = m.last / group;
    const std::string here = each == last
                                 ? std::to_string(each)
                                 : fmt::format("$((NODE_RANK < {} ? {} : {}))", m.count - 1, each, last);
    all = fmt::format(
        R"(--data-parallel-size-local {} --data-parallel-address "$HEAD_ADDR" --data-parallel-rpc-port {})",
        here, kRpcPort);
    others += fmt::format(" --data-parallel-start-rank $((NODE_RANK * {}))", each);
  } else {
    all = fmt::format(R"(--nnodes {} --node-rank "$NODE_RANK" --master-addr "$HEAD_ADDR" --master-port {})",
                      m.count, kDistributedPort);
  }
  return fmt::format(
      "NODE=({})\nif [ \"$NODE_RANK\" = 0 ]; then\n  NODE+=(--host 0.0.0.0 --port \"$PORT\")\nelse\n"
      "  NODE+=({})\nfi\n",
      all, others);
}

// NIXL's connector hands states of layers over in one layout, which is not the default's
// (distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py:289-298@80e511772f3e, near v0.24.0).
std::string layout_of_states(const Server& s) {
  return has_recurrence(s.study.model) ? "export VLLM_SSM_CONV_STATE_LAYOUT=DS\n" : "";
}

std::vector<std::string> says(const Server& s) {
  std::vector<std::string> out;
  if (machines(s) > 1) out.push_back(run_on_each(s));
  if (s.role != Role::whole)
    out.emplace_back("Both halves need the same KV type, attention backend, model and version of vLLM.");
  return out;
}

// DEPRECATED_QUANTIZATION_METHODS of model_executor/layers/quantization/__init__.py, which ModelConfig of
// config/model.py refuses without the option (_verify_quantization), near v0.24.0.
bool deprecated_files(const Case& c) {
  const std::string method = c.model.checkpoint ? c.model.checkpoint->method : "";
  return method == "fbgemm_fp8" || method == "fp_quant";
}

}  // namespace

// nvfp4: FlashInfer's GQA on Blackwell (v1/attention/backends/flashinfer.py:421).
std::string vllm_kv(Dtype kv) {
  return kv == Dtype::bf16 ? "bfloat16" : kv == Dtype::fp8 ? "fp8" : kv == Dtype::fp4 ? "nvfp4" : "";
}

LaunchOptions vllm_options(const Server& s) {
  LaunchOptions o = s.deployment.options;
  if (runs_repository_code(s.study)) put(o, "--trust-remote-code");
  if (deprecated_files(s.study)) put(o, "--allow-deprecated-quantization");
  if (s.study.precision.activations == Dtype::bf16) put(o, "--dtype", "bfloat16");
  if (!kv_name(s).empty()) put(o, "--kv-cache-dtype", kv_name(s));
  if (has_compression(s.study.model))
    put(o, "--block-size", s.engine.pools.compressed_block);
  else if (const int block =
               vllm_block(s.study).value_or(s.study.engine ? s.study.kv_block : kVllmRules.own_block);
           block != kVllmRules.own_block &&
           (s.served == nullptr || find(s.served->options, "--block-size") == nullptr))
    put(o, "--block-size", block);
  const long long budget = token_budget(s);
  put(o, "--enable-chunked-prefill");
  put(o, "--max-num-batched-tokens", budget);
  put(o, "--gpu-memory-utilization", fmt::format("{}", s.engine.memory));
  put_served(s, o);
  put(o, "--max-cudagraph-capture-size",
      largest_graph(s, std::stoll(find(o, "--max-num-batched-tokens")->value)));
  if (s.role != Role::whole) {
    put(o, "--kv-transfer-config", transfer_config(s));
    // Caches of several kinds are handed over by groups (vllm-project/recipes 030367e7d409, as above).
    if (has_compression(s.study.model)) put(o, "--no-disable-hybrid-kv-cache-manager");
  }
  return o;
}

std::vector<std::string> vllm_lines(const Server& s) {
  return {typed_command(s, "vllm serve {}", vllm_options(s))};
}

std::vector<LaunchFile> vllm_server(const Server& s) {
  const bool many = machines(s) > 1;
  std::vector<Variable> variables = variables_of_machine(s, ports_of(s));
  if (s.role != Role::whole) variables.push_back({"THIS_ADDR", "", "the address of this machine"});
  std::string text = script_head(s, says(s), variables) + exports(s);
  if (s.role != Role::whole) text += side_channel(s) + layout_of_states(s);
  if (many) text += of_machine(s);
  text += continued("exec vllm serve \"$MODEL\"", with_address(s),
                    many ? std::vector<std::string>{"\"${NODE[@]}\""} : std::vector<std::string>{});
  return {{s.stem + ".sh", text, true}};
}

// docs/features/nixl_connector_usage.md:107, of several servers 160 there; it takes them in turn
// (toy_proxy_server.py, get_next_client).
std::vector<LaunchFile> vllm_front(const Server& context, const Server& generation, const std::string& stem) {
  LaunchOptions o;
  put(o, "--host", "0.0.0.0");
  put_variable(o, "--port", "PORT");
  std::string text = fmt::format(
      "#!/bin/bash\n# In front of the servers beside it: an example among the engine's tests, which its "
      "package does not install.\n"
      "# VLLM_SOURCE: a source tree, git clone --branch v{} --depth 1 "
      "https://github.com/vllm-project/vllm.\n"
      "set -euo pipefail\nPORT=${{PORT:-8000}}\n"
      "VLLM_SOURCE=${{VLLM_SOURCE:?a source tree of vLLM, whose tests hold the proxy}}\n",
      generation.engine.version);
  text += address_lines("CONTEXT", context, ports_of(context), " for prompts") +
          address_lines("GENERATION", generation, ports_of(generation), " for answers");
  text += "PREFILLERS=() DECODERS=()\n" + each_address("CONTEXT", "PREFILLERS+=(\"$ADDR\")") +
          each_address("GENERATION", "DECODERS+=(\"$ADDR\")");
  text +=
      continued("exec python3 \"$VLLM_SOURCE/tests/v1/kv_connector/nixl_integration/toy_proxy_server.py\"", o,
                {"--prefiller-hosts \"${PREFILLERS[@]}\"", "--prefiller-ports \"${CONTEXT_PORTS[@]}\"",
                 "--decoder-hosts \"${DECODERS[@]}\"", "--decoder-ports \"${GENERATION_PORTS[@]}\""});
  return {{stem + ".sh", text, true}};
}

// docs/deployment/nginx.md: a server's share is what others have not taken (least_conn).
std::vector<LaunchFile> vllm_router(const Server& s, const std::string& stem) {
  return {nginx_router(s, ports_of(s), stem)};
}

}  // namespace shardline::launch
