// How much memory of this machine questions need, before they are worked on. planner/README.md [P31].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"
#include "sim/base/memory_limit.hpp"

namespace shardline {

/// Rounds of a plan from which on its schedule takes memory that a machine may lack.
inline constexpr long long kManyRounds = 1000;
/// Bytes of the program with the calibrations of all frameworks of a system read, and its pictures; of each
/// thread of a search, its evaluators and the systems of other frameworks. Measured as peak resident memory
/// of g++ 12's build on x86-64 (tests/golden/memory.py asks again), rounded up.
inline constexpr double kProcessBytes = 60e6, kSearcherBytes = 12e6;

/// Rounds of a plan: chunks of its longest prefill; 1 where it has none.
long long rounds_of(const Case& c, const Plan& plan);

/// What one thread holds while it times the plan, which must pass check: of plans with many rounds
/// extrapolated from three with few, whose layouts and schedules are made and counted.
Bytes step_memory(const Case& c, const Plan& plan);

/// Of one plan that is timed and broken down, and of its trace and picture.
MemoryNeed need_of_step(const Case& c, const Plan& plan);
MemoryNeed need_of_trace(const Case& c, const Plan& plan);

/// Of a search over `plans` on so many threads, which keeps `points` of its configurations.
MemoryNeed need_of_search(const Case& c, std::span<const Plan> plans, std::size_t threads,
                          std::uint64_t points);

}  // namespace shardline
