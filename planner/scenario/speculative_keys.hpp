// What a scenario says of drafts. planner/README.md [P29].
#pragma once

#include <memory>
#include <vector>

#include "models/ir/batch.hpp"
#include "models/model/model.hpp"
#include "planner/engines/profile.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/serving/acceptance.hpp"
#include "sim/base/reader.hpp"

namespace shardline::scenario_parts {

/// How many drafts a step keeps: in place, in a file, or by the name of a published curve; null: nothing
/// is said, or it has faults. `engine`: null for bare kernels.
std::shared_ptr<const AcceptanceCurve> read_speculative(const Document& document, const Reader& root,
                                                        StepKind kind, const std::vector<Model>& models,
                                                        const EngineProfile* engine,
                                                        const Catalogs& catalogs);

}  // namespace shardline::scenario_parts
