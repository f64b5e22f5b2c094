// Keys of a scenario's `kernels` that say which measured kernels are run: a framework's, or single ones by
// name. scenarios/README.md, "Keys".
#pragma once

#include "planner/scenario/scenario.hpp"

namespace shardline::scenario_parts {

/// `kernels.framework`, and a kernel or several for a family of forms (`kernels.moe: deepgemm`), tried before
/// the framework's list. Faults, at their keys: unknown frameworks, kernels that were not measured on this
/// system (with the nearest), a system without a calibration. `kernels.combine: low_precision` takes combines
/// that quantise their rows on the way.
void read_kernel_names(const Reader& kernels, System& system, const Catalogs& catalogs);

/// Which steps a question looks at; the workload of a served decode has prompts as well.
struct StepsAsked {
  bool prefills = true, decodes = true;
};

/// Faults at every named family of kernels that no step of these models runs: MLA's of models without it,
/// those of prefill where nothing but decode is looked at.
void check_named_families(const Reader& kernels, const std::vector<Model>& models, StepsAsked steps);

}  // namespace shardline::scenario_parts
