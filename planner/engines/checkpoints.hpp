// Published checkpoints, by the types that their matrices are stored in.
#pragma once

#include <string>

#include "planner/plan/case.hpp"

namespace shardline {

/// The repository on Hugging Face of the case's model whose experts (of a dense model, its FFN) are stored as
/// the case says; empty: none is known here.
std::string checkpoint_of(const Case& c);

/// "attention fp8, experts fp4, head bf16": what a checkpoint must be stored as for the plan to be the one
/// that was priced.
std::string stored_types(const Case& c);

}  // namespace shardline
