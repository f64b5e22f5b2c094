// What one rank holds of a step beside weights: caches, activations, buffers. planner/README.md [P3]-[P5].
#pragma once

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// [P3] Rows of cache on the rank with most of them, in one layer with attention `a`, of one microbatch.
double cached_rows(const Case& c, const Attention& a, const Plan& plan);
Bytes activation_bytes(const Case& c, const Plan& plan);  // [P4]
Bytes buffer_bytes(const Case& c, const Plan& plan);      // [P5]

/// Most new tokens of prefills that one rank computes outside attention, at a time.
double prefill_rows(const Case& c, const Plan& p);
/// What is held (LocalHeads) of cached and new tokens of prefills on the rank with most of them; the keys and
/// values that latents among it expand to, else nothing; that rank's partial output with its log-sum-exps.
Bytes key_message(const Case& c, const Attention& a, const Plan& p);
Bytes expanded_message(const Case& c, const Attention& a, const Plan& p);
Bytes partial_output(const Case& c, const Attention& a, const Plan& p);
/// Buffers of prefills under strategies that gather the keys and values of all ranks, of those that pass them
/// round a ring, and of those that exchange none; with what latents expand to.
Bytes gathered_buffers(const Case& c, const Attention& a, const Plan& p);
Bytes ring_buffers(const Case& c, const Attention& a, const Plan& p);
Bytes unsharded_buffers(const Case& c, const Attention& a, const Plan& p);
/// New tokens of all attention groups, sent and received: where experts or a dense FFN span the groups.
Bytes token_buffers(const Case& c, const Attention& a, const Plan& p);

}  // namespace shardline
