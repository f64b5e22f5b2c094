// The key `engine` of a scenario: which engine runs the plans. scenarios/README.md, "Keys".
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/scenario/scenario.hpp"

namespace shardline::scenario_parts {

/// Null for `ideal` (bare kernels), and where one is asked for that is not known: then that is said, and
/// nothing that would hold of bare kernels alone is a fault.
struct AskedEngine {
  std::shared_ptr<const EngineProfile> profile;
  bool unknown = false;
};
/// `engine: vllm`, or `{name: vllm, version: "0.24.0"}`. `asked`, of the command line ("vllm",
/// "vllm 0.24.0"), goes before what the file says. Faults at the key: unknown names and versions.
AskedEngine read_engine(const Reader& root, const Catalogs& catalogs, const std::string& asked);

/// Gives a system what the engine does around its kernels, and its kernels.
void apply_engine(const EngineProfile& engine, System& system, const Catalogs& catalogs);

/// What a workload says: a request, and the users of a deployment where it pins them.
struct ServedKeys {
  ServedWorkload load;
  std::vector<int> users;  // ascending; empty: a plan's batch says them
};

/// `workload: {input: 8Ki tokens, output: 1Ki tokens, users: [32, 64]}`. Faults: without an engine, longer
/// than a model unless `any_context`.
std::optional<ServedKeys> read_served(const Reader& root, const AskedEngine& engine, bool sweeps,
                                      StepKind kind, const std::vector<Model>& models, bool any_context);

/// Which kernels the engine fuses, without one the profile of bare kernels: what a scenario's `kernels` say
/// by themselves goes before it.
Kernels kernels_of(const EngineProfile* engine);

}  // namespace shardline::scenario_parts
