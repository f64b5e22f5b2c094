// Types of weights that TensorRT-LLM 1.3.0rc20 has kernels for.
#pragma once

#include "planner/engines/launch_rules.hpp"

namespace shardline {

/// Matrices in a type that it has no kernels for on the device.
std::optional<CaseComplaint> trtllm_weight_type(const Case& c);

}  // namespace shardline
