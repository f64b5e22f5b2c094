// How long a step takes that several attention groups begin and end together. planner/requests/README.md
// [R10].
#pragma once

#include <span>

#include "planner/requests/step_times.hpp"

namespace shardline {

/// [R10] Of one step: the batch of each attention group, empty where it has nothing to do, of at least one
/// not (checked). One group alone takes what `times` say of its batch.
///
/// Where nobody has prompts, engines run all groups from graphs of one size, that of the group with most
/// requests (vLLM, v1/worker/dp_utils.py, `_post_process_dp_padding` at 68afd7889723; SGLang, DpPaddingMode
/// of layers/dp_attention.py at 49e384ce9d): a group takes what its batch does, and what rows without a cache
/// beside it add; the step the most of any.
Seconds step_of_groups(const StepTimes& times, std::span<const StepBatch* const> groups);
/// [R39] The same with what boards draw, the mean of all groups': what each group's own batch does and the
/// rows that it lacks, without caches; of one with nothing to do beside prompts, what is of all groups alike.
PricedStep priced_step_of_groups(const StepTimes& times, std::span<const StepBatch* const> groups);

/// [R19] Steps in which no group computes anything: each runs a dummy batch, of one row without a cache
/// (vLLM, v1/worker/gpu_worker.py, `execute_dummy_batch`: `_dummy_run(1, uniform_decode=True)`; a stored file
/// of an unknown commit).
DecodeStretch dummy_steps(const StepTimes& times);

/// From a step without prompts on (checked), as long as every request gets a token a step and one group is
/// the slowest.
DecodeStretch stretch_of_groups(const StepTimes& times, std::span<const StepBatch* const> groups);

}  // namespace shardline
