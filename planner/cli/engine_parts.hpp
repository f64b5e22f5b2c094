// What an answer says of the engine that it is of.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/engines/launchable.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline::cli {

/// " as in nvidia/Llama-3.1-70B-Instruct-FP8, KV cache fp8 as its files say": where types are from. A cache
/// of another type than the checkpoint's files say is the user's; of one that nobody named
/// assumed_cache_text().
std::string stored_text(const Case& c);
/// "weights bf16"; "attention bf16, experts fp4".
std::string weights_text(const Case& c);
/// "KV cache bf16", where nobody named its type, and whether files that may do so were not read; else empty.
std::string assumed_cache_text(const Case& c);

/// "CUDA graphs to 512 requests, 8192 tokens a step, no speculative decoding": what the profile of a case's
/// engine takes for granted; not its tokens of a step where `says_tokens`: an option has said others.
std::string assumed_text(const Case& c, bool says_tokens = false);
/// Whether one of the options does, as "max_num_batched_tokens=2048".
bool says_step_tokens(const std::vector<std::string>& knobs);
/// "steps of helix wait for the host, ...: none of the 443 measured points has such steps", of plans whose
/// steps that decode wait for an engine's host that works beside those of the measured ones; else empty.
std::string unmeasured_host_text(const Case& c, std::span<const Plan> plans);
/// "engine: vLLM 0.24.0, ..." with what its profile takes for granted, a line; without one "engine: ideal,
/// ...".
std::string engine_text(const Case& c);

/// "vLLM 0.24.0 does not start this plan: ...; its rule: ... (source)".
std::string refusal_text(const Case& c, const Refusal& refusal);

}  // namespace shardline::cli
