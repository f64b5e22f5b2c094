// What a play of requests found, as bytes for another process.
#pragma once

#include <string>
#include <string_view>

#include "planner/studies/request_service.hpp"

namespace shardline {

/// Of one pool, and without a timeline (checked). To the bit.
std::string to_bytes(const ServedLoadAnswer& answer);
ServedLoadAnswer served_load(std::string_view bytes);

}  // namespace shardline
