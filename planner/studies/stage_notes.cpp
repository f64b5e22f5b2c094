#include "planner/studies/stage_notes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "planner/studies/knob_tables.hpp"
#include "sim/base/argument_names.hpp"

namespace shardline {

namespace {

// [R37] What a play of stages takes for granted.
Diagnostic stages_played(const SglangKnobs& knobs) {
  const std::uint32_t batches = knobs.pp_size + knobs.pp_async_batch_depth, most = running_of_batch(knobs);
  return {{},
          fmt::format("{} micro-batches take turns in {} stages, with {} requests each at most, and a prompt "
                      "goes before whoever decodes in its own",
                      batches, knobs.pp_size, most),
          {"who comes together stays in one micro-batch, up to the tokens of prompts in a step (" +
               argument_given("knob", fmt::format("pp_max_micro_batch_size={}", std::max(1U, most / 2))) +
               " spreads them); while anything is under way GPUs of stages that wait count as busy",
           "a micro-batch without requests that finds no room in the KV cache takes nobody until a prompt of "
           "another one ends in it, as in the engine"}};
}

// [R36] What a play of stages takes for granted.
Diagnostic stages_played(const VllmKnobs& knobs) {
  const std::uint32_t stages = knobs.pipeline_parallel_size;
  const char* const together =
      "who comes together stays in one step: vLLM spreads no requests over the stages; while anything is "
      "under "
      "way GPUs of stages that wait count as busy";
  if (!knobs.async_scheduling)
    return {{},
            fmt::format("{} steps are on their way through {} stages, and nobody is in two of them but with "
                        "parts of a prompt",
                        stages, stages),
            {together}};
  return {
      {},
      fmt::format("up to {} steps are decided for {} stages, {} from one of a request to its next, as by "
                  "vLLM's Model Runner V2",
                  stages + 1, stages, stages),
      {"vLLM 0.24 has it by default for a few models, 0.25 for dense ones, 0.29 for all: "
       "VLLM_USE_V2_MODEL_RUNNER=1; with the runner before it asynchronous steps do not overlap in stages",
       together}};
}

// [R38] What a play of stages takes for granted.
Diagnostic stages_played(const TrtllmKnobs& knobs) {
  const std::uint32_t most = knobs.max_batch_size;
  std::vector<std::string> says{
      "who comes while others are under way waits for the first of their steps, and is in the next one with "
      "those that it frees; while stages are full more steps than stages are on their way, of fewer requests "
      "each, and while anything is GPUs of stages that wait count as busy",
      "so since TensorRT-LLM's pull request 10349 (February 2026); behind 16170 (August 2026) with "
      "TLLM_PP_ASYNC_BROADCAST_SAMPLE_STATE=1"};
  if (knobs.disable_overlap_scheduler)
    says.emplace_back("disable_overlap_scheduler=true changes nothing in stages, whose loop works ahead");
  return {{},
          fmt::format("a step is decided whenever the first of {} stages has passed on the one before the "
                      "last, of {} requests at most, and nobody is in two of them but with parts of a prompt",
                      knobs.pipeline_parallel_size, most),
          says};
}

}  // namespace

Diagnostic stages_played(const ServiceKnobs& knobs) {
  if (const auto* k = std::get_if<SglangKnobs>(&knobs.of)) return stages_played(*k);
  if (const auto* k = std::get_if<TrtllmKnobs>(&knobs.of)) return stages_played(*k);
  SL_CHECK(std::holds_alternative<VllmKnobs>(knobs.of), "every engine's stages are played");
  return stages_played(std::get<VllmKnobs>(knobs.of));
}

}  // namespace shardline
