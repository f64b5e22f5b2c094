// The type of everything that is counted.
#pragma once

#include <cstdint>

namespace shardline {

using Count = std::int64_t;

}  // namespace shardline
