#include "planner/studies/fitting_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/search/memory.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Bytes of a rank's KV caches of one request of so many tokens.
double cache_bytes(Case c, const Plan& plan, long long tokens) {
  c.batch = decode_batch(tokens);
  return memory_use(c, plan).kv.value;
}

// Blocks of so many tokens for requests of `mean` tokens each. What a layer keeps whatever a request's length
// (a window's, a state) is set aside for as many requests as fit, and what it keeps of steps under way once.
// There are CUDA graphs of as many requests as the engine has any for, of the `requests` that it may run.
std::uint32_t blocks_of(const Case& c, const Plan& plan, std::uint32_t block, std::uint32_t requests,
                        long long mean) {
  const long long far = std::max<long long>(1 << 20, 4LL * block);
  const double one_far = cache_bytes(c, plan, far);
  const double token = (cache_bytes(c, plan, 2 * far) - one_far) / static_cast<double>(far);
  Plan two = plan;
  two.batch = 2 * plan.batch;
  const double each_far = cache_bytes(c, two, far) - one_far;
  const double fixed = std::max(0.0, each_far - token * static_cast<double>(far)),
               once = std::max(0.0, one_far - each_far);
  Case one = c;
  one.batch = decode_batch(mean);
  const MemoryUse use = memory_use(one, plan);
  KeptOf server = use.server;
  server.requests = std::min<long long>(requests, c.engine->graphs.empty() ? 0 : c.engine->graphs.back());
  const double room =
      c.engine->room_for_kv(c.system.device, use.weights, use.activations + use.buffers, server).value - once;
  const double each = token * static_cast<double>(mean) + fixed;
  if (room < each) return 0;
  const double left = room - std::floor(room / each) * fixed;
  const double blocks = std::floor(left / (token * block));
  return static_cast<std::uint32_t>(std::min(blocks, 4e9));
}

}  // namespace

void no_room(const Case& c, const Plan& plan, long long mean) {
  Case one = c;
  one.batch = decode_batch(mean);
  const auto misfit = does_not_fit(one, memory_use(one, plan));
  throw UserError(fmt::format("{} does not fit {}: {}", to_string(plan), c.system.name,
                              misfit ? *misfit : "no request has room for its KV"));
}

std::uint32_t blocks_that_fit(const Case& c, const Plan& plan, std::uint32_t block, std::uint32_t requests,
                              long long mean) {
  const std::uint32_t blocks = blocks_of(c, plan, block, requests, mean);
  if (blocks == 0) no_room(c, plan, mean);
  return blocks;
}

}  // namespace shardline
