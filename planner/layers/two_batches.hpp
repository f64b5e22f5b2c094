// Two halves of a step's requests, whose tokens travel to experts and back beside the other's computation.
// planner/README.md [P23].
#pragma once

#include <array>
#include <optional>
#include <string>

#include "models/ir/schedule.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Whether layers with experts run two halves of the plan's batch at a time.
inline bool overlaps_batches(const Plan& p) { return p[kOverlap] == Overlap::two_batch; }

/// Why the case has no such halves; nothing where it has.
std::optional<std::string> no_two_batches(const Case& c, const Plan& p);

/// The plan, without halves where the case has too few tokens for two: engines then run the whole.
Plan with_both_halves(const Case& c, Plan p);

/// What is lowered of one half of the plan's requests, as one batch entry: the first, or the others. Tokens
/// of prompts are halved, too, in the middle of one if need be.
Case half_of(const Case& c, const Plan& p, int which);

/// Which layer of a run is played: all but the last together with the beginning of the next one.
enum class WovenPart : std::uint8_t { opening, middle, closing };

/// One block. `layer[h]` has the attention block of half h and the block of its experts, and nothing else.
void weave_halves(ScheduleBuilder& b, const Case& c, const std::array<Schedule, 2>& layer, WovenPart part);

}  // namespace shardline
