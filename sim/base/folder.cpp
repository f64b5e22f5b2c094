#include "sim/base/folder.hpp"

#include <dirent.h>
#include <ftw.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>

#include "sim/base/error.hpp"

namespace shardline {

std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder,
                                                  std::error_code& error) {
  error.clear();
  std::vector<std::filesystem::path> out;
  const auto close = [](DIR* d) { ::closedir(d); };
  const std::unique_ptr<DIR, decltype(close)> open(::opendir(folder.c_str()), close);
  if (open == nullptr) {
    error.assign(errno, std::generic_category());
    return out;
  }
  errno = 0;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string_view name(entry->d_name);
    if (name != "." && name != "..") out.push_back(folder / name);
    errno = 0;  // which the line above may have set, and readdir() sets where it fails
  }
  if (errno != 0) {
    error.assign(errno, std::generic_category());
    out.clear();
  }
  std::sort(out.begin(), out.end());
  return out;
}

void remove_folder(const std::filesystem::path& folder) noexcept {
  constexpr int kDescriptors = 8;  // open at once; deeper folders are read again
  const auto remove = [](const char* path, const struct stat*, int, FTW*) {
    static_cast<void>(std::remove(path));
    return 0;
  };
  static_cast<void>(::nftw(folder.c_str(), remove, kDescriptors, FTW_DEPTH | FTW_PHYS));
}

std::vector<std::filesystem::path> entries_if_there(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> out = folder_entries(folder, error);
  if (error && error != std::errc::no_such_file_or_directory)
    throw UserError("cannot read the folder " + folder.string() + ": " + error.message());
  return out;
}

std::filesystem::path without_detours(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  fs::path way, last_return;  // up to the last `..`
  for (const fs::path& part : path) {
    way /= part;
    if (part == "..") last_return = way;
  }
  std::error_code error;
  if (last_return.empty() || fs::exists(last_return, error)) return path;
  const fs::path whole = fs::absolute(path, error);
  if (error) return path;
  fs::path found = fs::weakly_canonical(whole, error);
  return error ? path : found;
}

}  // namespace shardline
