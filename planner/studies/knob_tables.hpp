// The options of each engine's scheduler.
#pragma once

#include <string>
#include <vector>

#include "planner/requests/sglang_scheduler.hpp"
#include "planner/requests/trtllm_scheduler.hpp"
#include "planner/requests/vllm_scheduler.hpp"
#include "planner/studies/knob_text.hpp"

namespace shardline {

/// [R37] Names of options of a pipeline's micro-batches under SGLang.
inline constexpr const char* kMicroBatchSize = "pp_max_micro_batch_size";
inline constexpr const char* kBatchDepth = "pp_async_batch_depth";
/// [R40] And of its prefill delayer.
inline constexpr const char* kDelayer = "enable_prefill_delayer";
inline constexpr const char* kDelayPasses = "prefill_delayer_max_delay_passes";
inline constexpr const char* kLowWatermark = "prefill_delayer_token_usage_low_watermark";
inline constexpr const char* kQueueRatio = "prefill_delayer_queue_min_ratio";
inline constexpr const char* kDelayTime = "prefill_delayer_max_delay_ms";

/// Sets those that are named, as "max_num_seqs=256", in their order. Throws UserError of names and values,
/// and of options of a server that decodes for another where it is none.
void set_knobs(VllmKnobs& knobs, const std::vector<std::string>& overrides, const KnobsGiven& given);
void set_knobs(SglangKnobs& knobs, const std::vector<std::string>& overrides, const KnobsGiven& given);
void set_knobs(TrtllmKnobs& knobs, const std::vector<std::string>& overrides, const KnobsGiven& given);

/// A knob that was given and changes nothing.
struct IdleKnob {
  std::string name, needs;  // the option without which nothing reads it; empty: nothing on such a server does
};
/// Those that nothing reads on a server that computes prompts for another, or decodes for another, and those
/// that need an option which `knobs` do not have.
std::vector<IdleKnob> idle_knobs(const VllmKnobs& knobs, const std::vector<std::string>& given,
                                 PairRole role);
std::vector<IdleKnob> idle_knobs(const SglangKnobs& knobs, const std::vector<std::string>& given,
                                 PairRole role);
std::vector<IdleKnob> idle_knobs(const TrtllmKnobs& knobs, const std::vector<std::string>& given,
                                 PairRole role);

/// "vllm" of "max_num_seqs=256": the one engine that has all of these options; empty: none, or several, have.
std::string engine_of_knobs(const std::vector<std::string>& overrides);
/// Of an option that an engine lacks: whose it is, or else which option of another engine has nearly its
/// name, where none of `own` has; empty: neither.
std::string other_engines_knob(const std::string& name, const std::vector<std::string>& own);

}  // namespace shardline
