// What serve says of an engine and its scheduler.
#include <fmt/format.h>

#include <variant>

#include "planner/cli/serve_text.hpp"

namespace shardline::cli {

namespace {

// How the engine's steps differ from vLLM's.
std::string policy_text(const ServiceKnobs& knobs) {
  if (const auto* k = std::get_if<SglangKnobs>(&knobs.of))
    return std::string(k->enable_mixed_chunk ? "prompts beside decoding requests, "
                                             : "prompts before decoding requests, ") +
           (k->enable_prefill_delayer ? "held back until all groups have some (prefill delayer), " : "");
  if (const auto* k = std::get_if<TrtllmKnobs>(&knobs.of)) {
    switch (k->capacity_scheduler_policy) {
      case TrtllmPolicy::guaranteed_no_evict:
        return "GUARANTEED_NO_EVICT, ";
      case TrtllmPolicy::max_utilization:
        return "MAX_UTILIZATION, ";
      case TrtllmPolicy::static_batch:
        return "STATIC_BATCH, ";
    }
  }
  return "";
}

// [R23] "" of a model without states.
std::string slots_text(const ServiceKnobs& knobs) {
  const auto* k = std::get_if<TrtllmKnobs>(&knobs.of);
  if (k == nullptr || k->state_slots == 0) return "";
  return fmt::format(", {} slots for states of a request (one pads CUDA graphs)", k->state_slots);
}

// [R38] Of a step, and of all that are on their way.
std::string requests_text(const ServiceKnobs& knobs) {
  const auto* k = std::get_if<TrtllmKnobs>(&knobs.of);
  if (k == nullptr || k->pipeline_parallel_size == 1)
    return fmt::format("{} requests a step at most", knobs.requests());
  return fmt::format("{} requests a step at most, {} in {} stages", k->max_batch_size, knobs.requests(),
                     k->pipeline_parallel_size);
}

}  // namespace

std::string engine_line(const Study& study, const ServiceKnobs& k) {
  const EngineProfile& e = *study.study.engine;
  const std::uint32_t w = k.window_blocks();
  return fmt::format(
      "{} {}: {}{} tokens and {}, {} {} of KV{}{}, {} tokens of a request at most, prefix cache {}", e.title,
      e.version, policy_text(k), k.step_tokens(), requests_text(k), k.blocks(),
      k.block() == 1 ? "tokens" : fmt::format("blocks of {} tokens", k.block()),
      w > 0 ? fmt::format(" and {} of layers with windows", w) : "", slots_text(k), k.longest(),
      k.finds() ? "on" : "off");
}

}  // namespace shardline::cli
