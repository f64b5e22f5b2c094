// What memory has room for of a plan's caches.
#pragma once

#include <cstdint>

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// What a rank has for caches, in bytes, and what they take: of a token, of a request whatever its length,
/// and of one of the mean length.
struct CacheRoom {
  double room = 0, token = 0, fixed = 0, each = 0;
};

/// What a rank's memory has for caches of requests of `mean` tokens, of which at most so many run: what the
/// engine leaves beside weights and its own, and no more than `constraints.memory` does. CUDA graphs are of
/// as many requests as the engine has any for.
Bytes room_for_caches(const Case& c, const Plan& plan, std::uint32_t requests, long long mean);
/// Of such requests.
CacheRoom cache_room(const Case& c, const Plan& plan, std::uint32_t requests, long long mean);
/// Blocks of so many tokens beside what `requests` keep whatever their lengths.
std::uint32_t blocks_beside(const CacheRoom& room, std::uint32_t block, double requests);
/// What memory has room for, in blocks of so many tokens. Throws UserError where no request has room.
std::uint32_t blocks_that_fit(const Case& c, const Plan& plan, std::uint32_t block, std::uint32_t requests,
                              long long mean_tokens);
/// Throws what does not fit.
[[noreturn]] void no_room(const Case& c, const Plan& plan, long long mean_tokens);

/// A block lies on all ranks that share its cache, in as many tokens each: on so many.
int sharers_of(const Case& c, const Plan& plan);
/// Tokens of such a block. Throws UserError where blocks of traces are not whole blocks.
std::uint32_t on_sharers(std::uint32_t block, int sharers);

/// As launch files say it: the longest request that there may be, the model's own limit or what `held` tokens
/// of a cache have room for.
std::uint32_t longest_of(const Case& c, std::uint64_t held, long long mean_tokens);

}  // namespace shardline
