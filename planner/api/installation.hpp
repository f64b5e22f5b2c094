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

/// Bytes of memory that this process may have at most: the machine's, or the least limit of its control group
/// and of those around it. 0: not known. For RunOptions::memory_bytes, which has no default of its own.
double machine_memory();

}  // namespace shardline::api
