// Models of all kinds of attention and feed-forward networks, of a few narrow layers.
#pragma once

#include "models/model/model.hpp"
#include "tests/fuzz/choices.hpp"

namespace shardline::fuzz {

/// `small`: widths of a few numbers, and only what the executors compute. Throws UserError where check()
/// finds a broken rule.
Model step_model(Choices& choose, bool small);

}  // namespace shardline::fuzz
