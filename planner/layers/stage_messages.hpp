// What a stage of a pipeline hands on to the next one. planner/README.md [P6].
#pragma once

#include "models/ir/schedule.hpp"
#include "planner/layers/row_ops.hpp"

namespace shardline {

/// Ranks send to their peers of the next stage: hidden states; under engines the residual stream in a message
/// of its own; and the positions that an index chose, of four bytes each, where the next stage begins on a
/// layer that takes them (`choice`; SGLang's topk_indices). Bytes of a rank: its slice of the rows of all
/// attention groups, or, under engines that do not slice them, all of its group's.
void add_hand_off(ScheduleBuilder& b, const Case& c, const Plan& view, const RowOps& ops, bool choice);
/// What was sent in slices is gathered by the ranks of the stage.
void add_receive(ScheduleBuilder& b, const Case& c, const Plan& view, const RowOps& ops, bool choice);
/// Whether there is something to gather.
bool gathers_hand_off(const Case& c, const Plan& plan);

}  // namespace shardline
