// From the answer of serve. Not installed.
#pragma once

#include "planner/api/serve.hpp"
#include "planner/studies/request_service.hpp"

namespace shardline::api {

/// Everything but `version` and `command`.
ServeResult serve_result(const Study& study, const ServiceAnswer& answer);

}  // namespace shardline::api
