// The catalogues as result structs. Not installed.
#pragma once

#include <string>

#include "planner/api/list.hpp"

namespace shardline::api {

/// Everything but `version` and `command`. Throws UserError: unknown names, with the nearest, and faulty
/// files.
ListResult listed(const std::string& what);

/// Throws the UserError of a kind of which nothing is listed: the kinds that there are, the nearest, `hints`.
[[noreturn]] void nothing_called(const std::string& what, std::vector<std::string> hints = {});

}  // namespace shardline::api
