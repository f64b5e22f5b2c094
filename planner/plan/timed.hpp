// Which models the planner can time: the one place that says what it reads and cannot lower yet.
#pragma once

#include <string>
#include <vector>

#include "models/model/model.hpp"

namespace shardline {

/// What the model has that no strategy lowers, each with its layers, counted from 0: "layers 0-60: sparse
/// attention with an index (DSA) is read, but no plan of it can be timed yet". Empty: every plan can be.
std::vector<std::string> untimed(const Model& model);

/// Throws UserError with what `untimed` says, so that no such model is priced as another one.
void require_timed(const Model& model);

}  // namespace shardline
