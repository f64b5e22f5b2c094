#include "planner/scenario/data_folder.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdlib>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

namespace fs = std::filesystem;

bool has_data(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder / "models/catalog", error);
}

// The file that this code was loaded from. The dynamic linker has the path of a shared library, and of the
// program only an empty name: that one the kernel knows.
fs::path this_object() {
  static const char here = 0;
  Dl_info info{};
  void* found = nullptr;
  std::error_code error;
  if (dladdr1(&here, &info, &found, RTLD_DL_LINKMAP) != 0 && found != nullptr) {
    const char* const name = static_cast<const link_map*>(found)->l_name;
    if (name != nullptr && *name != '\0') return fs::canonical(name, error);
  }
  return fs::read_symlink("/proc/self/exe", error);
}

}  // namespace

std::optional<fs::path> data_above(const fs::path& object) {
  for (fs::path folder = object.parent_path(); !folder.empty(); folder = folder.parent_path()) {
    if (fs::path data = folder / "share/shardline"; has_data(data)) return data;
    if (folder == folder.root_path()) break;
  }
  return std::nullopt;
}

DataFolder find_data() {
  if (const char* const named = std::getenv(kDataVariable); named != nullptr && *named != '\0') {
    if (has_data(named)) return {named, true};
    throw UserError(
        {Diagnostic{{},
                    fmt::format("{}={} has no data of shardline", kDataVariable, named),
                    {"expected a folder with models/catalog, hardware/catalog, scenarios, ..."}}});
  }
  const fs::path object = this_object();
  if (const auto data = data_above(object)) return {*data, false};
  throw UserError(
      {Diagnostic{{},
                  "the data of shardline were not found",
                  {fmt::format("looked for share/shardline in all folders above {}", object.string()),
                   fmt::format("expected there, or the folder in the variable {}", kDataVariable)}}});
}

std::string data_text() {
  try {
    const DataFolder data = find_data();
    return data.path.string() + (data.from_environment ? fmt::format(" ({})", kDataVariable) : "");
  } catch (const UserError& e) {
    return std::string("none: ") + e.what();
  }
}

}  // namespace shardline
