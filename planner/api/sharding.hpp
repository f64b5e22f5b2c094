// Which plans shard alike, for choices among them outside of this library. Not installed.
#pragma once

#include <string>

namespace shardline::api {

/// The plan without its batch and the options that cut a batch: equal texts shard in the same way. Throws
/// Error of kind bad_input of a text that is no plan.
std::string sharding_of_plan(const std::string& plan);

}  // namespace shardline::api
