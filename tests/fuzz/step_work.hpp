// What the ranks of a step do and hold, added up, against the whole, which is counted here from the model's
// definition and the lengths alone.
#pragma once

#include "tests/fuzz/step_case.hpp"

namespace shardline::fuzz {

/// (query, key) pairs of attention, products with weights, cached bytes and stored weights of all ranks.
/// `schedule` is the step's. Ends the process where they are not those of the whole.
void check_work(const StepCase& step, const Schedule& schedule);

}  // namespace shardline::fuzz
