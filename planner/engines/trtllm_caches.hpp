// Which types of a KV cache TensorRT-LLM starts with. Version and sources: rules_trtllm.cpp.
#pragma once

#include <optional>

#include "planner/engines/launch_rules.hpp"

namespace shardline {

/// Nothing: it starts. By device, attention, scales and what the checkpoint's files say.
std::optional<CaseComplaint> trtllm_cache_type(const Case& c);
/// Nothing: it starts. A cache in FP8 under GQA on Hopper needs a scale of the output projection.
std::optional<CaseComplaint> trtllm_cache_scale(const Case& c);

}  // namespace shardline
