#include "reports/folder_access.hpp"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <system_error>

#include "sim/base/folder.hpp"

namespace shardline {

namespace {

// Of the files of a folder, or of the folder itself (`man 5 acl`).
bool has_lists(const std::filesystem::path& folder) {
  for (const char* name : {"system.posix_acl_access", "system.posix_acl_default"})
    if (getxattr(folder.c_str(), name, nullptr, 0) > 0) return true;
  return false;
}

}  // namespace

bool same_access_in(const std::filesystem::path& parent, const std::filesystem::path& there) {
  struct stat around {
  }, old{};
  if (stat(parent.c_str(), &around) != 0 || stat(there.c_str(), &old) != 0) return false;
  const gid_t group = (around.st_mode & S_ISGID) != 0 ? around.st_gid : getegid();
  return old.st_uid == geteuid() && old.st_gid == group && !has_lists(there);
}

bool same_access(const std::filesystem::path& made, const std::filesystem::path& there) {
  struct stat own {
  }, old{};
  return stat(made.c_str(), &own) == 0 && stat(there.c_str(), &old) == 0 && own.st_uid == old.st_uid &&
         own.st_gid == old.st_gid && !has_lists(there);
}

bool keep_access(const std::filesystem::path& made, const std::filesystem::path& there) {
  struct stat old {};
  if (stat(there.c_str(), &old) != 0) return true;  // there is none
  if (!same_access(made, there) || chmod(made.c_str(), old.st_mode & 07777) != 0) return false;
  std::error_code error;
  for (const std::filesystem::path& entry : folder_entries(made, error)) {
    const bool folder =
        std::filesystem::symlink_status(entry, error).type() == std::filesystem::file_type::directory;
    if (folder && !keep_access(entry, there / entry.filename())) return false;
  }
  return !error;
}

}  // namespace shardline
