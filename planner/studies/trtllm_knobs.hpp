// The knobs of a server of TensorRT-LLM's.
#pragma once

#include <string>
#include <vector>

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"
#include "planner/requests/trtllm_scheduler.hpp"
#include "planner/studies/knob_text.hpp"
#include "sim/base/error.hpp"

namespace shardline {

/// As service_knobs() where the engine is TensorRT-LLM. Of a model with states [R23] also how many requests
/// have one: as many as fit where nobody says max_batch_size.
TrtllmKnobs trtllm_knobs(const Case& c, const Plan& plan, const std::vector<std::string>& overrides,
                         long long mean_tokens, const KnobsGiven& given);

/// Says what memory states take, of a model that has some.
void note_states(const Case& c, const Plan& plan, const TrtllmKnobs& knobs, std::vector<Diagnostic>& out);

}  // namespace shardline
