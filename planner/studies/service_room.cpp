#include "planner/studies/service_room.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/layers/share.hpp"
#include "planner/search/memory.hpp"
#include "planner/serving/trace.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Bytes of a rank's KV caches of one request of so many tokens.
double cache_bytes(Case c, const Plan& plan, long long tokens) {
  c.batch = decode_batch(tokens);
  return memory_use(c, plan).kv.value;
}

}  // namespace

Bytes room_for_caches(const Case& c, const Plan& plan, std::uint32_t requests, long long mean) {
  Case one = c;
  one.batch = decode_batch(mean);
  const MemoryUse use = memory_use(one, plan);
  KeptOf server = use.server;
  server.requests = std::min<long long>(requests, c.engine->graphs.empty() ? 0 : c.engine->graphs.back());
  const Bytes room =
      c.engine->room_for_kv(c.system.device, use.weights, use.activations + use.buffers, server);
  // `constraints.memory` is of all that a GPU holds.
  return c.memory_limit > Bytes(0) ? std::min(room, c.memory_limit - (use.total() - use.kv)) : room;
}

// What a layer keeps of steps under way is set aside once. The caches of a plan's batch are those of as many
// requests as microbatches of it are on their way.
CacheRoom cache_room(const Case& c, const Plan& plan, std::uint32_t requests, long long mean) {
  constexpr long long far = 1 << 20;
  const double one_far = cache_bytes(c, plan, far), microbatches = plan.in_flight;
  const double token = (cache_bytes(c, plan, 2 * far) - one_far) / static_cast<double>(far) / microbatches;
  Plan two = plan;
  two.batch = 2 * plan.batch;
  const double all_far = cache_bytes(c, two, far) - one_far;
  const double fixed = std::max(0.0, all_far / microbatches - token * static_cast<double>(far)),
               once = std::max(0.0, one_far - all_far);
  const double room = room_for_caches(c, plan, requests, mean).value - once;
  return {room, token, fixed, token * static_cast<double>(mean) + fixed};
}

std::uint32_t blocks_beside(const CacheRoom& r, std::uint32_t block, double requests) {
  const double blocks = std::floor((r.room - requests * r.fixed) / (r.token * block));
  return static_cast<std::uint32_t>(std::clamp(blocks, 0.0, 4e9));
}

void no_room(const Case& c, const Plan& plan, long long mean) {
  Case one = c;
  one.batch = decode_batch(mean);
  const auto misfit = does_not_fit(one, memory_use(one, plan));
  throw UserError(fmt::format("{} does not fit {}: {}", to_string(plan), c.system.name,
                              misfit ? *misfit : "no request has room for its KV"));
}

// What a layer keeps whatever a request's length (a window's, a state) is set aside for as many requests as
// fit.
std::uint32_t blocks_that_fit(const Case& c, const Plan& plan, std::uint32_t block, std::uint32_t requests,
                              long long mean) {
  const CacheRoom r = cache_room(c, plan, requests, mean);
  const std::uint32_t blocks = r.room < r.each ? 0 : blocks_beside(r, block, std::floor(r.room / r.each));
  if (blocks == 0) no_room(c, plan, mean);
  return blocks;
}

int sharers_of(const Case& c, const Plan& plan) {
  int sharers = 1;
  for (const Attention& a : c.model.attentions) {
    if (!a.none()) sharers = std::max(sharers, cache_share(c, a, plan).sharers.size);
  }
  return sharers;
}

std::uint32_t on_sharers(std::uint32_t block, int sharers) {
  const std::uint32_t all = block * static_cast<std::uint32_t>(sharers);
  if (kTraceBlock % all != 0)
    throw UserError(fmt::format("a block of {} tokens{}: expected a divisor of {}, the blocks of traces", all,
                                sharers > 1 ? fmt::format(" on {} ranks that share it", sharers) : "",
                                kTraceBlock));
  return all;
}

std::uint32_t longest_of(const Case& c, std::uint64_t held, long long mean_tokens) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(
      {held, static_cast<std::uint64_t>(std::max(c.model.max_context, c.any_context ? mean_tokens : 0LL)),
       1U << 30}));
}

}  // namespace shardline
