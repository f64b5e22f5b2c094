// What a scenario asks of an engine that it does not do: strategies, lengths, types, kernels. Faults at their
// keys.
#pragma once

#include "planner/engines/launchable.hpp"
#include "planner/scenario/scenario.hpp"

namespace shardline::scenario_parts {

/// any_gpus and any_context, of the file or the command line.
struct LiftedRules {
  bool any_gpus = false, any_context = false;
};
LiftedRules read_lifted_rules(const Reader& root, const Overrides& asked);

/// Faults: an engine whose rules nobody has read, and listed strategies that it does not have (unless
/// `asked` names the engine: then they have no plans).
void check_strategies(const Reader& root, const EngineProfile& engine, const Overrides& asked);

/// Faults: a model, lengths and types of the case that its engine does not start, or starts by kernels that
/// nobody has measured. Returns whether there was one.
bool check_case(const Reader& root, const Case& c);

/// Faults: files of the case's model that its engine does not read, whatever types the scenario gives it.
/// Returns whether there was one.
bool check_files(const Reader& root, const Case& c);

/// Faults: kernels named under `kernels` that the engine's list does not have for the device. False where
/// there are any.
bool check_kernels(const Reader& kernels, const EngineProfile& engine, const System& system,
                   const Catalogs& catalogs);

}  // namespace shardline::scenario_parts
