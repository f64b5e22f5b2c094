// How many blocks of KV cache memory has room for beside weights.
#pragma once

#include <cstdint>

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Of so many tokens, for requests of `mean` tokens each, of which a server runs `requests` at most. Throws
/// UserError where no request has room.
std::uint32_t blocks_that_fit(const Case& c, const Plan& plan, std::uint32_t block, std::uint32_t requests,
                              long long mean);

/// Throws what does not fit.
[[noreturn]] void no_room(const Case& c, const Plan& plan, long long mean);

}  // namespace shardline
