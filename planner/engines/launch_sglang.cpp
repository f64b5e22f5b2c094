// `python3 -m sglang.launch_server` of SGLang 0.5.14; sources at that tag (sgl-project/sglang 49e384ce9d)
// stand with each option in tests/planner/engine_options/sglang.csv. The same command on every machine but
// for
// --node-rank (entrypoints/engine.py:823, 1376-1404). Attention DP divides running requests and chunks among
// its groups, graphs and memory are of each (server_args.py:5050-5056).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "planner/engines/checkpoints.hpp"
#include "planner/engines/dispatch_room.hpp"
#include "planner/engines/launch_server.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/search/cache_sizes.hpp"

namespace shardline::launch {

namespace {

constexpr int kDistributedPort = 20000, kBootstrapPort = 8998;
constexpr long long kLargestPage = 128;      // of any backend (server_args.py:4523-4659)
constexpr long long kPrefillTokens = 16384;  // default of --max-prefill-tokens

// With attention DP a server of one machine takes ports 233 to 240 behind its own, too (server_args.py,
// ZMQ_TCP_PORT_DELTA and PortArgs.init_new): ten apart the eight servers of a machine have different ones.
constexpr Ports kPorts{30000, 10};
// One for each server for prompts of a machine.
constexpr Ports kBootstrapPorts{kBootstrapPort, 1};

// Tokens of a step of a group of a half's server for prompts. Each of them counts with whole pages
// (managers/schedule_policy.py, PrefillAdder.ceil_paged_tokens), and the budget is a multiple of one
// (server_args.py:6689, behind the division at 5053).
long long paged_tokens(const Server& s) {
  const long long chunk = s.plan[kPrefillChunk];
  const long long paged = (chunk + kPromptPage - 1) / kPromptPage * kPromptPage;
  return sequences_of_step(s.study, s.plan) * paged;
}

// Of requests that were played the scheduler's own caps are told.
void put_prompts(const Server& s, LaunchOptions& o) {
  if (s.served != nullptr) return;
  if (s.role == Role::context && in_chunks(s.study, s.plan)) {
    put(o, "--chunked-prefill-size", paged_tokens(s) * s.plan.dp);
    put(o, "--prefill-max-requests", sequences_of_step(s.study, s.plan));  // of each scheduler
    put(o, "--max-running-requests", kBatchesUnderWay * sequences(s.study, s.plan) * s.plan.dp);
    if (paged_tokens(s) > kPrefillTokens) put(o, "--max-prefill-tokens", paged_tokens(s));
    return;
  }
  if (!s.study.batch.decodes()) put(o, "--max-running-requests", sequences(s.study, s.plan) * s.plan.dp);
}

// The engine's own number, which attention DP divides among its groups: of each a multiple of any backend's
// pages.
long long default_chunk(const Server& s) {
  const long long pages = kLargestPage * s.plan.dp;
  return std::max(1LL, s.engine.tokens_of_step(s.study.system.device) / pages) * pages;
}

// Without buffers for states prefixes are found by pages of one token alone (server_args.py:4355,
// _validate_mamba_no_buffer).
long long page_of_pair(const Server& s) {
  const bool unbuffered =
      has_recurrence(s.study.model) && !s.engine.pools.buffers_states(s.study.model.architecture);
  return unbuffered ? 1 : kPromptPage;
}

void put_half(const Server& s, LaunchOptions& o) {
  put(o, "--disaggregation-mode", s.role == Role::context ? "prefill" : "decode");
  put(o, "--disaggregation-transfer-backend", "nixl");
  // Of several a variable of their script (with_addresses).
  if (s.role == Role::context) put(o, "--disaggregation-bootstrap-port", kBootstrapPort);
  // Of equal size in both halves (disaggregation/common/conn.py:258).
  if (s.served == nullptr || find(s.served->options, "--page-size") == nullptr)
    put(o, "--page-size", page_of_pair(s));
}

void put_prefill(const Server& s, LaunchOptions& o) {
  const Case& c = s.study;
  if (s.role == Role::generation || (s.role == Role::context && s.served != nullptr)) return;
  if (!c.batch.prefills()) put(o, "--chunked-prefill-size", default_chunk(s));
  if (c.batch.prefills() && token_budget(s) > kPrefillTokens) put(o, "--max-prefill-tokens", token_budget(s));
}

// Pools of layers that hold no tokens of their requests, or not all: of the sizes that the plan's memory was
// reckoned with. Attention DP divides places for states among its groups, the other is a part
// (model_executor/model_runner_kv_cache_mixin.py, handle_max_mamba_cache; pool_configurator.py). Of requests
// that were played the part is what was played.
void put_pools(const Server& s, LaunchOptions& o) {
  if (const int part = window_thousandths(s.study, s.plan); part > 0 && s.served == nullptr)
    put(o, "--swa-full-tokens-ratio", fmt::format("{:.3f}", part / 1000.0));
  if (const long long places = state_places(s.study, s.plan); places > 0)
    put(o, "--max-mamba-cache-size", places * s.plan.dp);
}

// MiB that the engine would keep from weights and cache for prompts cut to `chunk` tokens: what its own
// mem_fraction_static leaves (server_args.py:3276-3315). Halves of pairs have no prefill graphs, either
// (server_args.py:2983-3057).
double reserved_mib(const Server& s, long long chunk) {
  KeptOf of = kept_of(s);
  of.step_tokens = chunk;
  of.prompt_graphs = of.prompt_graphs && s.role == Role::whole;
  return s.engine.kept.set_aside(of).value / (1 << 20);
}

// max_prefill_tokens, which counts where prompts are not cut (server_args.py:3276-3315).
constexpr long long kMostPrefillTokens = 16384;

// What is set aside has to hold DeepEP's buffers, which the engine's own formula does not count.
double beside_kv_mib(const Server& s, long long chunk) {
  const Bytes buffers = dispatch_buffers(s.study, s.plan);
  const double aside = reserved_mib(s, chunk);
  if (buffers <= Bytes(0)) return aside;
  const Bytes others =
      s.engine.kept.fixed + activation_bytes(s.study, s.plan) + buffer_bytes(s.study, s.plan) + buffers;
  return std::max(aside, others.value / (1 << 20));
}

// The profile's, or the engine's own where that is less: with more it runs out of memory as it starts. A
// prompt that passes whole has its activations in the plan's memory.
double memory_part(const Server& s, const LaunchOptions& o) {
  const LaunchOption* cut = find(o, "--chunked-prefill-size");
  const long long usual = s.engine.tokens_of_step(s.study.system.device);
  const long long asked = cut == nullptr ? usual : std::stoll(cut->value);
  // Of prompts that pass whole; else the engine counts the budget of all groups, of which each rank has its
  // group's alone: more than the usual one is not set aside for others.
  const long long chunk =
      asked < 0 ? kMostPrefillTokens : std::max(std::min(asked, usual), asked / s.plan.dp);
  const double all = s.study.system.device.memory.value / (1 << 20);
  const double own = std::floor(1000 * (all - beside_kv_mib(s, chunk)) / all) / 1000;
  return std::min(s.engine.memory, own);
}

LaunchOptions with_addresses(const Server& s) {
  LaunchOptions o;
  put(o, "--host", "0.0.0.0");
  put_variable(o, "--port", "PORT");
  for (const LaunchOption& of_server : sglang_options(s)) o.push_back(of_server);
  if (s.role == Role::context && s.replicas.count > 1)
    put_variable(o, "--disaggregation-bootstrap-port", "BOOTSTRAP_PORT");
  if (machines(s) > 1) {
    put_variable(o, "--dist-init-addr", fmt::format("HEAD_ADDR:{}", kDistributedPort));
    put(o, "--nnodes", machines(s));
    put_variable(o, "--node-rank", "NODE_RANK");
  }
  return o;
}

std::vector<std::string> says(const Server& s) {
  std::vector<std::string> out;
  if (machines(s) > 1) out.push_back(run_on_each(s));
  if (s.role != Role::whole) out.emplace_back("Both halves need the same page size and KV type.");
  // disaggregation/common/conn.py, is_dummy_cp_rank and enable_all_cp_ranks_for_transfer.
  if (s.role == Role::context && s.plan.cp > 1)
    out.emplace_back(
        "Of ranks that share a prompt the first alone hands its cache over, as was priced; "
        "SGLANG_DISAGGREGATION_ALL_CP_RANKS_TRANSFER=1 lets each hand a part over.");
  return out;
}

}  // namespace

std::string sglang_kv(Dtype kv) {
  return kv == Dtype::bf16 ? "bfloat16" : kv == Dtype::fp8 ? "fp8_e4m3" : kv == Dtype::fp4 ? "fp4_e2m1" : "";
}

LaunchOptions sglang_options(const Server& s) {
  const Case& c = s.study;
  LaunchOptions o = s.deployment.options;
  if (runs_repository_code(c)) put(o, "--trust-remote-code");
  if (c.precision.activations == Dtype::bf16) put(o, "--dtype", "bfloat16");
  if (!kv_name(s).empty()) put(o, "--kv-cache-dtype", kv_name(s));
  put_prefill(s, o);
  put_prompts(s, o);
  put_served(s, o);
  put(o, "--mem-fraction-static", fmt::format("{:.3f}", memory_part(s, o)));
  put_pools(s, o);
  if (s.role != Role::context) put(o, "--cuda-graph-max-bs-decode", graph_requests(s));
  if (s.role != Role::whole) put_half(s, o);
  return o;
}

// What it sets aside for a step grows with the step's tokens (server_args.py:3276-3315).
std::string sglang_refusal(const Server& s) {
  const LaunchOptions o = sglang_options(s);
  if (std::stod(find(o, "--mem-fraction-static")->value) > 0) return "";
  const LaunchOption* cut = find(o, "--chunked-prefill-size");
  return fmt::format(
      "{} sets aside more than the {} of a GPU for steps with {} tokens of prompts: fewer requests or "
      "shorter "
      "chunks",
      s.engine.title, to_string(s.study.system.device.memory), cut == nullptr ? "so many" : cut->value);
}

std::vector<std::string> sglang_lines(const Server& s) {
  return {typed_command(s, "python3 -m sglang.launch_server --model-path {}", sglang_options(s))};
}

std::vector<LaunchFile> sglang_server(const Server& s) {
  std::vector<Variable> variables = variables_of_machine(s, kPorts);
  if (s.role == Role::context && s.replicas.count > 1)
    variables.push_back({"BOOTSTRAP_PORT", by_replica(s, kBootstrapPort, kBootstrapPorts.apart), ""});
  std::string text = script_head(s, says(s), variables) + exports(s);
  text += continued("exec python3 -m sglang.launch_server --model-path \"$MODEL\"", with_addresses(s));
  return {{s.stem + ".sh", text, true}};
}

// docs/advanced_features/pd_disaggregation.md:52; several servers, and the bootstrap port behind the address
// of one for prompts: sgl-model-gateway/bindings/python/src/sglang_router/router_args.py@05e589ad6f75
// (--prefill URL [BOOTSTRAP_PORT], which like --decode may stand more than once). Without that port a server
// for answers would ask at its own default. Its policy is cache_aware unless another is named, which sends
// equal beginnings of prompts to one server: pairs were priced with equal shares.
std::vector<LaunchFile> sglang_front(const Server& context, const Server& generation,
                                     const std::string& stem) {
  LaunchOptions o;
  put(o, "--pd-disaggregation");
  put(o, "--host", "0.0.0.0");
  put_variable(o, "--port", "PORT");
  if (context.replicas.count + generation.replicas.count > 2) put(o, "--policy", "round_robin");
  std::string text =
      "#!/bin/bash\n# In front of the servers beside it; package sglang-router.\nset -euo pipefail\n"
      "PORT=${PORT:-8000}\n";
  text += address_lines("CONTEXT", context, kPorts, " for prompts") +
          address_lines("GENERATION", generation, kPorts, " for answers");
  std::vector<int> bootstrap;
  for (int i = 0; i < context.replicas.count; ++i)
    bootstrap.push_back(kBootstrapPorts.of(context.replicas, i));
  text += fmt::format("BOOTSTRAP_PORTS=(${{BOOTSTRAP_PORTS:-{}}})\nSERVERS=()\n", fmt::join(bootstrap, " "));
  text += each_address("CONTEXT", "SERVERS+=(--prefill \"http://$ADDR:$AT\" \"${BOOTSTRAP_PORTS[I]}\")") +
          each_address("GENERATION", "SERVERS+=(--decode \"http://$ADDR:$AT\")");
  text += continued("exec python3 -m sglang_router.launch_router", o, {"\"${SERVERS[@]}\""});
  return {{stem + ".sh", text, true}};
}

// docs/advanced_features/router.md@046ed665927f, "Separate Launch (HTTP)".
std::vector<LaunchFile> sglang_router(const Server& s, const std::string& stem) {
  LaunchOptions o;
  put(o, "--host", "0.0.0.0");
  put_variable(o, "--port", "PORT");
  put(o, "--policy", "round_robin");
  std::string text =
      "#!/bin/bash\n# In front of the servers beside it; package sglang-router.\nset -euo pipefail\n"
      "PORT=${PORT:-8000}\n" +
      address_lines("SERVER", s, kPorts, "") + "URLS=()\n" +
      each_address("SERVER", "URLS+=(\"http://$ADDR:$AT\")");
  text += continued("exec python3 -m sglang_router.launch_router", o, {"--worker-urls \"${URLS[@]}\""});
  return {{stem + ".sh", text, true}};
}

}  // namespace shardline::launch
