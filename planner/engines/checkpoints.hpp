// Published checkpoints, by the types that their matrices are stored in.
#pragma once

#include <string>

#include "models/model/checkpoint.hpp"
#include "planner/plan/case.hpp"

namespace shardline {

/// The repository on Hugging Face of the case's model whose experts (of a dense model, its FFN) are stored as
/// the case says; empty: none is known here.
std::string checkpoint_of(const Case& c);

/// What an engine loads where nobody names a checkpoint: that of the model's maker, BF16 where it is not
/// known here. Its `assumed` names it; the cache is left to the engine (all three: the residual stream's
/// type).
Checkpoint checkpoint_by_default(const Model& model);

/// "attention fp8, experts fp4, head bf16": what a checkpoint must be stored as for the plan to be the one
/// that was priced.
std::string stored_types(const Case& c);

}  // namespace shardline
