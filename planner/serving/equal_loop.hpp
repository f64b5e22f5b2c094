// A closed loop of requests that are all equally long, under an engine that mixes prompts into its steps.
// planner/README.md [P19].
#pragma once

#include "planner/serving/served.hpp"

namespace shardline {

/// Mean TTFT in seconds of a loop of load.rounds requests (at least one) of each user, who all send the first
/// one at once: whoever was prefilled in one step is answered in one step, comes back a request path later
/// and is prefilled together again, so that no law of independent arrivals holds. Every step with a prompt is
/// played; steps between them are jumped over. At most times.room requests are in the engine, others wait.
double equal_loop_ttft(const EngineProfile& engine, const ServedLoad& load, const ServedTimes& times);

}  // namespace shardline
