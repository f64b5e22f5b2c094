// A hand-off of one layer's cache as a schedule with data flow, for executors: sources are the ranks of the
// replica that prefills, receivers come behind them. README.md [D6].
#pragma once

#include "models/ir/schedule.hpp"
#include "planner/handoff/pieces.hpp"

namespace shardline {

/// Inputs: what the boxes of the senders' side hold, of request 0; outputs: those of the receivers' side, as
/// the lowered steps of either plan bind them. `tokens` of the request. Pieces that do not cross ranks or
/// layers stay out.
void lower_handoff(Schedule& schedule, const Case& c, const Handoff& handoff, int layer, long long tokens);

}  // namespace shardline
