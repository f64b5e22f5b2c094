// How many requests engines run at once where drafts are verified, unless they are told otherwise.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/plan/plan.hpp"
#include "planner/requests/trtllm_scheduler.hpp"
#include "planner/studies/service_knobs.hpp"
#include "sim/base/error.hpp"

namespace shardline {

/// "Max running requests is reset to 48 for speculative decoding" of all groups together (sgl-project/sglang,
/// arg_groups/speculative_hook.py, `_handle_eagle_family`, at 49e384ce9d).
inline constexpr std::uint32_t kSglangDrafting = 48;

/// [R20] TensorRT-LLM's places of an attention group: with attention DP as many as a step verifies; the
/// largest number of a plan without drafts, or of one group.
std::uint32_t verified_at_once(const TrtllmKnobs& knobs, const Plan& plan);

/// Says where either is what caps a play.
void note_draft_caps(const Plan& plan, const ServiceKnobs& knobs, std::vector<Diagnostic>& out);

}  // namespace shardline
