// What an engine's host does around a step, where kernels run meanwhile. planner/README.md [P18].
#pragma once

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Whether the kernels of a plan's steps wait for the host: as the engine's profile says of all its servers,
/// or of such (Helix under TensorRT-LLM, stages under SGLang and its models with states that have no buffers,
/// servers that compute prompts for others). Not without an engine.
bool waits_for_host(const Case& c, const Plan& plan);

/// Of the plan's step. Zero without an engine, and where the host works between steps: there it is an op of
/// the schedule.
Seconds work_beside(const Case& c, const Plan& plan);

/// A step whose kernels and whose host take so long beside each other: the root of the sum of squares. Both
/// vary from step to step, so that none hides the other whole where they are about equal.
Seconds beside_host(Seconds kernels, Seconds host);

}  // namespace shardline
