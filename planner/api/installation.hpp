// Which shardline this is, and where its data lie.
#pragma once

#include <filesystem>

namespace shardline::api {

/// Version of the library that runs, "1.2.3"; SHARDLINE_VERSION of version.hpp is that of its headers.
const char* library_version() noexcept;

/// The folder of models, systems, engines and scenarios: what the environment variable SHARDLINE_DATA names,
/// else share/shardline of the nearest folder above the library (or above the program, where that is linked
/// statically). Throws std::runtime_error, which says where was looked.
std::filesystem::path data_folder();

}  // namespace shardline::api
