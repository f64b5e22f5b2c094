// What the title of a study says of its requests.
#pragma once

#include <string>

#include "models/ir/batch.hpp"

namespace shardline::scenario_parts {

/// "1,048,576", of a number that is not negative.
std::string grouped(long long n);

/// ", 8,192 + 1,024 tokens": of a request and its answer, where a workload is served.
std::string request_text(long long input, long long output);

/// ", 1,000,000 tokens", ", prefill of 1Mi tokens", ", 1Mi tokens beside prefill of 2Ki tokens" or nothing.
std::string workload_text(const Batch& batch);

}  // namespace shardline::scenario_parts
