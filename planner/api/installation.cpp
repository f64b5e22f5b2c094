#include "planner/api/installation.hpp"

#include "planner/api/version.hpp"
#include "planner/scenario/data_folder.hpp"
#include "sim/base/memory_limit.hpp"

namespace shardline::api {

const char* library_version() noexcept { return SHARDLINE_VERSION; }

std::filesystem::path data_folder() { return find_data().path; }

double machine_memory() { return shardline::machine_memory().value; }

}  // namespace shardline::api
