// What steps are played on: some systems of the catalogue, with their calibrations and without, and engines;
// all read once.
#pragma once

#include <memory>

#include "planner/search/evaluate.hpp"

namespace shardline::fuzz {

struct SteppedMachine {
  Case study;  // its system stays, everything else is each step's own
  std::shared_ptr<FabricCache> fabric;
  std::shared_ptr<const AcceptanceCurve> acceptance;
  std::unique_ptr<CostModel> warm;  // has priced the ops of all steps before
};

int machines();
SteppedMachine& machine(int i);

/// Profiles of the catalogue; beyond the last one: none, bare kernels.
int engines();
std::shared_ptr<const EngineProfile> engine(int i);

}  // namespace shardline::fuzz
