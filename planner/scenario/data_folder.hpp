// Where the data that come with the program lie: models, systems, engines, scenarios. No path is compiled in,
// so that an installation, a package or a build tree works wherever it is moved to.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace shardline {

/// The variable of the environment that goes before everything else.
inline constexpr const char* kDataVariable = "SHARDLINE_DATA";

struct DataFolder {
  std::filesystem::path path;     // has models/catalog, hardware/catalog, scenarios, ...
  bool from_environment = false;  // named by SHARDLINE_DATA
};

/// The folder that SHARDLINE_DATA names (empty is as not set); else data_above() the program, or the shared
/// library, that contains this function. Throws UserError that says where was looked.
DataFolder find_data();

/// share/shardline of the nearest folder above `object` that has one with data: the prefix of an installation
/// (above bin, lib or lib/python3/dist-packages), or a build tree, where it links to the sources.
std::optional<std::filesystem::path> data_above(const std::filesystem::path& object);

/// "/usr/share/shardline (SHARDLINE_DATA)", or why there is none.
std::string data_text();

}  // namespace shardline
