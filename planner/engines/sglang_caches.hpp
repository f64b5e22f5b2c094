// Which types of a KV cache SGLang starts with, and which it has a price for. Version and sources:
// rules_sglang.cpp.
#pragma once

#include <optional>

#include "planner/engines/launch_rules.hpp"

namespace shardline {

/// Nothing: it starts. By device and attention.
std::optional<CaseComplaint> sglang_cache_type(const Case& c);
/// Nothing: its kernels were measured, or are priced by those that were.
std::optional<CaseComplaint> sglang_unpriced_cache(const Case& c);

}  // namespace shardline
