// What DeepEP's kernels, which carry tokens to experts under vLLM and SGLang, have room for, and the memory
// that they take. planner/README.md [P25].
#pragma once

#include "planner/engines/launch_rules.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Whether a server of the plan sends tokens to experts by the kernels of few tokens (`low_latency`), in
/// steps that decode; by those of many (`high_throughput`, `normal`), in steps with prompts. Under an engine
/// with other kernels neither.
bool sends_few_tokens(const Case& c, const Plan& plan);
bool sends_many_tokens(const Case& c, const Plan& plan);

/// New tokens of the requests that decode in a step of one attention group and microbatch.
long long decoded_tokens(const Case& c, const Plan& plan);

/// Tokens of one rank that the kernels of few tokens have room for. vLLM: the server's budget of a step, that
/// of an attention group (FusedMoEConfig.max_num_tokens is max_num_batched_tokens). SGLang: a rank's part of
/// the group's, at least its default. 0: a server without those kernels.
long long dispatch_room(const Case& c, const Plan& plan);

/// Bytes of symmetric memory on each rank, by DeepEP's own formula, for rooms of `tokens`, `hidden` numbers
/// and `experts` over all ranks (deepseek-ai/DeepEP csrc/legacy/config.hpp:131-188@dd758caf4518).
Bytes low_latency_bytes(long long tokens, long long hidden, long long experts);
/// The next larger hidden size that the kernels of few tokens are compiled for; 0: there is none.
/// deepseek-ai/DeepEP csrc/kernels/legacy/launch.cuh:113-133@dd758caf4518 (3072 since 73b6ea4, October 2025).
long long dispatched_width(long long hidden);
/// Of a plan, both kinds of kernels together.
Bytes dispatch_buffers(const Case& c, const Plan& plan);

/// Work requests that a queue pair has to hold (NVSHMEM_QP_DEPTH), a power of two; DeepEP's default of 1024
/// is enough for 511 tokens (deepseek-ai/DeepEP deep_ep/buffers/legacy.py:113,609@dd758caf4518).
long long queue_pair_depth(long long room);
inline constexpr long long kDefaultQueuePairDepth = 1024;

/// Complaints of LaunchRules: ranks, experts or machines that DeepEP does not take; more tokens of a rank
/// than its kernels of few tokens count.
Complaint other_dispatch_ranks(const Case& c, const Plan& plan);
Complaint crowded_dispatch(const Case& c, const Plan& plan);

}  // namespace shardline
