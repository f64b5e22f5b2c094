// What an answer says of the engine that it is of.
#pragma once

#include <span>
#include <string>

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline::cli {

/// ", KV cache bf16 as in meta-llama/Llama-3.1-70B-Instruct": where types are from. A cache of another type
/// than the checkpoint's files say, or than the engine takes where they say none, is the user's.
std::string stored_text(const Case& c);

/// "CUDA graphs to 512 requests, 8192 tokens a step, no speculative decoding": what the profile of a case's
/// engine takes for granted.
std::string assumed_text(const Case& c);
/// "steps of helix wait for the host, ...: none of the 443 measured points has such steps", of plans whose
/// steps that decode wait for an engine's host that works beside those of the measured ones; else empty.
std::string unmeasured_host_text(const Case& c, std::span<const Plan> plans);
/// "engine: vLLM 0.24.0, ..." with what its profile takes for granted, a line; without one "engine: ideal,
/// ...".
std::string engine_text(const Case& c);

}  // namespace shardline::cli
