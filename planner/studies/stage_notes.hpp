// What is said of a play of a plan with pipeline stages.
#pragma once

#include "planner/studies/service_knobs.hpp"
#include "sim/base/error.hpp"

namespace shardline {

/// [R36] [R37] [R38] What it takes for granted.
Diagnostic stages_played(const ServiceKnobs& knobs);

}  // namespace shardline
