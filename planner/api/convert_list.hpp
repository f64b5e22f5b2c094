// The catalogues as result structs. Not installed.
#pragma once

#include <string>

#include "planner/api/list.hpp"

namespace shardline::api {

/// Everything but `version` and `command`. Throws UserError: unknown names, with the nearest, and faulty
/// files.
ListResult listed(const std::string& what);

}  // namespace shardline::api
