// Files that start a plan under an engine: a shell script per server and, where the engine reads one, its
// YAML. planner/README.md [P20].
#pragma once

#include <string>
#include <vector>

#include "planner/engines/deploy.hpp"
#include "planner/engines/profile.hpp"

namespace shardline {

struct LaunchFile {
  std::string name, text;
  bool executable = false;
};

/// One server as one would start it by hand: what its files say but for addresses of machines.
struct LaunchedServer {
  std::string title;               // "on 2 machines of 4 GPUs"
  std::vector<std::string> lines;  // a command line, or a command and the YAML file that it reads
  std::vector<std::string> notes;  // what MODEL is, where no checkpoint is known; the deployment's
};

struct Launch {
  std::string engine;  // "vLLM 0.24.0"
  std::vector<LaunchedServer> servers;
  std::vector<LaunchFile> files;
  std::string refused;  // why there are none of both
};

/// What a server is told that serves requests as they were played one by one: caps of its scheduler and the
/// options that were asked for, in place of what the batch of a plan says.
struct ServedOptions {
  LaunchOptions environment, options;
  long long graphs = 0;            // requests of an attention group that its largest CUDA graph is of
  bool in_turn = false;            // of several servers: each has a request in its turn
  std::string load_failures{};     // of a half of vLLM's, kv_load_failure_policy; empty: as files say it
  std::vector<std::string> notes;  // what is said of it
};

/// The case under an engine, also where it was priced by bare kernels.
Case started_by(const EngineProfile& engine, const Case& c);

/// [P20] The files of a plan; names begin with `stem`. A plan whose engine runs it in generation servers
/// alone has those of a disaggregated pair. Of several `copies` one script starts any of them, and another
/// one stands in front of them. `served`: of requests that were played.
Launch launch_files(const Case& c, const Plan& plan, const EngineProfile& engine, const std::string& stem,
                    int copies = 1, const ServedOptions* served = nullptr);

/// How an engine is told the type of a cache: "--kv-cache-dtype fp8"; empty: it has no name for the type.
std::string cache_option(const EngineProfile& engine, Dtype kv);

/// One half of a disaggregated pair: a plan of a prefill, or of a decode step.
struct ServedHalf {
  const Case& study;
  const Plan& plan;
  int servers = 1;                        // replicas of it that were priced
  const ServedOptions* served = nullptr;  // of requests that were played
};

/// [P20] Servers for prompts, servers for answers, a script of each kind, and what stands in front of all.
Launch launch_pair(const ServedHalf& context, const ServedHalf& generation, const EngineProfile& engine,
                   const std::string& stem);

}  // namespace shardline
