// What the launch files of all engines have in common: one server, its machines, and the text of a script.
#pragma once

#include <string>
#include <vector>

#include "planner/engines/launch_files.hpp"
#include "planner/engines/launch_replicas.hpp"
#include "planner/engines/machines.hpp"

namespace shardline::launch {

/// whole: prompts and answers. context, generation: halves of a disaggregated pair.
enum class Role : std::uint8_t { whole, context, generation };

/// One server of a plan.
struct Server {
  const Case& study;
  const Plan& plan;
  const EngineProfile& engine;
  Role role = Role::whole;
  Deployment deployment;
  std::string stem;                       // of its files' names
  bool with_helix = false;                // a half of a pair whose answers are computed under Helix
  Replicas replicas = {};                 // as many servers of the same plan
  const ServedOptions* served = nullptr;  // of requests that were played
};

/// The machines that the engine starts the plan on; where it has none of them (refusal), as it was priced.
Machines machines_of(const Server& s);
int machines(const Server& s);
/// GPUs of the plan on each machine; of unequal parts, on each but the last.
int gpus_on_each(const Server& s);
/// "8 GPUs", "8 GPUs and 4 on the last".
std::string gpus_text(const Machines& machines);

/// Requests of an attention group that the server has CUDA graphs for at most: those of a step of the plan.
long long graph_requests(const Server& s);
/// kept_of() with them.
KeptOf kept_of(const Server& s);
/// What was played, over what the plan says.
void put_served(const Server& s, LaunchOptions& options);

/// Tokens of a step: the plan's where it says so, else the engine's default; no fewer than its requests.
long long token_budget(const Server& s);

/// Why no file can say the plan, or nothing: its own reason, machines that it does not fill, a KV type that
/// the engine has no name for.
std::string refusal(const Server& s);

/// The engine's name of a type of cache; empty: it has none.
std::string kv_name(const EngineProfile& engine, Dtype cache);
std::string kv_name(const Server& s);

/// The plan, of requests that were played without its batch.
std::string plan_text(const Server& s);
/// The script's first lines: what it is, for which model and plan, what holds of it; then the variables MODEL
/// and, where given, others with their defaults.
std::string script_head(const Server& s, const std::vector<std::string>& says,
                        const std::vector<Variable>& variables);
/// The plan's environment, a line each.
std::string exports(const Server& s);
/// Of engines whose script runs on every machine: what its first lines say of several, and PORT, of several
/// machines NODE_RANK and HEAD_ADDR too.
std::string run_on_each(const Server& s);
std::vector<Variable> variables_of_machine(const Server& s, const Ports& ports);
/// Ends of command lines: an option per line, then what the caller of the script adds.
std::string continued(const std::string& command, const LaunchOptions& options,
                      const std::vector<std::string>& last = {});

/// The command of a server as one types it: variables, `command` with the checkpoint's repository (MODEL
/// where none is known) in place of "{}", and the options in one line.
std::string typed_command(const Server& s, const std::string& command, const LaunchOptions& options);

// One of each per engine. `options`: all that a server is told but for addresses of machines, which its files
// and `lines`, what one would type, are both written from. `front` is of a pair, `router` of several servers
// that do both.
LaunchOptions vllm_options(const Server& s);
LaunchOptions sglang_options(const Server& s);
LaunchOptions tensorrt_llm_options(const Server& s);
std::vector<std::string> vllm_lines(const Server& s);
std::vector<std::string> sglang_lines(const Server& s);
std::vector<std::string> tensorrt_llm_lines(const Server& s);
std::vector<LaunchFile> vllm_server(const Server& s);
std::vector<LaunchFile> vllm_front(const Server& context, const Server& generation, const std::string& stem);
std::vector<LaunchFile> vllm_router(const Server& s, const std::string& stem);
std::vector<LaunchFile> sglang_server(const Server& s);
std::vector<LaunchFile> sglang_front(const Server& context, const Server& generation,
                                     const std::string& stem);
std::vector<LaunchFile> sglang_router(const Server& s, const std::string& stem);
std::vector<LaunchFile> tensorrt_llm_server(const Server& s);
std::vector<LaunchFile> tensorrt_llm_front(const Server& context, const Server& generation,
                                           const std::string& stem);
std::vector<LaunchFile> tensorrt_llm_router(const Server& s, const std::string& stem);
std::string vllm_kv(Dtype kv);
/// Why SGLang's options leave no memory for weights and a cache, or nothing.
std::string sglang_refusal(const Server& s);
std::string sglang_kv(Dtype kv);
std::string tensorrt_llm_kv(Dtype kv);

}  // namespace shardline::launch
