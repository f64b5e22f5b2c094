// Which of the kinds of prefill attention [H30] the kernels are that tables name.
#pragma once

#include <optional>
#include <string_view>

#include "hardware/cost/forms/prefill.hpp"

namespace shardline {

struct System;

/// On a device as `system` has. Nothing for a kernel that no one has looked at.
std::optional<PrefillKernel> prefill_kernel(std::string_view name, const System& system);

/// Does a kernel of its own write the new keys and values first, a thread block per token (vLLM's)?
bool writes_by_token(std::string_view name);

}  // namespace shardline
