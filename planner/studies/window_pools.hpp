// Both pools of the KV cache of a server of SGLang's whose model has layers with windows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "planner/engines/kept_memory.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Whether the engine has a pool of their own for the model's layers with windows.
bool has_window_pool(const Case& c);

/// Why requests of such a model cannot be played one by one; nothing where they can. [R22]
std::optional<std::string> no_play_of_windows(const Case& c, const Plan& plan);

/// Tokens before its own that a token sees in those layers, as SGLang counts them.
std::uint32_t sliding_window(const Case& c);

struct WindowPools {
  std::uint64_t tokens = 0;  // of layers that see all; 0: no request has room
  double ratio = 0;          // of these, of layers with windows
};

/// The pools [R22] that memory has room for beside weights, where `requests` at most of `mean` tokens are
/// answered at once: of as many as fit, the part that launch files say [P30] and the tokens that the engine
/// makes of it. `ratio` is that part where it is given, and not 0.
WindowPools window_pools(const Case& c, const Plan& plan, std::uint32_t requests, long long mean,
                         double ratio);

}  // namespace shardline
