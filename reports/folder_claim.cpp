#include "reports/folder_claim.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "reports/atomic_file.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

namespace fs = std::filesystem;

// A folder as it was asked for, and where that led when it was claimed.
struct Claimed {
  fs::path asked, place;
};
std::mutex g_mutex;
std::map<int, Claimed> g_claims;  // of this process, by their descriptors

bool still_at(int descriptor, const fs::path& path) {
  struct stat open {
  }, found{};
  return fstat(descriptor, &open) == 0 && stat(path.c_str(), &found) == 0 && open.st_dev == found.st_dev &&
         open.st_ino == found.st_ino;
}

// The first folder on the way to `folder` that is not there yet; empty where all are.
fs::path first_missing(fs::path folder) {
  std::error_code error;
  fs::path missing;
  while (!folder.empty() && fs::symlink_status(folder, error).type() == fs::file_type::not_found) {
    missing = folder;
    folder = folder.parent_path();
  }
  return missing;
}

// What it leads to is no claim's business where it cannot be told: to write there will fail, and say why.
void note_claim(int descriptor, const fs::path& folder) {
  std::error_code error;
  Claimed claimed{fs::absolute(folder, error), {}};
  if (!error) claimed.place = fs::canonical(folder, error);
  if (error) return;
  const std::lock_guard lock(g_mutex);
  g_claims[descriptor] = std::move(claimed);
}

}  // namespace

FolderLock lock_folder(int descriptor) {
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return FolderLock::held;
  return errno == EWOULDBLOCK ? FolderLock::taken : FolderLock::none;
}

void require_claims() {
  const std::lock_guard lock(g_mutex);
  for (const auto& [descriptor, claim] : g_claims) {
    std::error_code error;
    const fs::path now = fs::weakly_canonical(claim.asked, error);
    if (!error && now != claim.place)
      throw UserError(fmt::format("cannot write {}: it was {} when this run began, and leads to {} now",
                                  claim.asked.string(), claim.place.string(), now.string()));
  }
}

FolderClaim::FolderClaim(const fs::path& folder) : folder_(folder), first_made_(first_missing(folder)) {
  for (int tries = 0; tries < 100; ++tries) {
    make_output_folder(folder);
    descriptor_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ < 0 && errno == ENOENT) continue;  // exchanged in this moment
    if (descriptor_ < 0)
      throw UserError(fmt::format("cannot write {}: {}", folder.string(), std::strerror(errno)));
    const FolderLock state = lock_folder(descriptor_);
    if (state != FolderLock::taken && still_at(descriptor_, folder)) {
      note_claim(descriptor_, folder);
      return;
    }
    close(std::exchange(descriptor_, -1));
    if (state == FolderLock::taken)
      throw UserError(
          fmt::format("another run writes to {}; wait for it, or choose another folder", folder.string()));
  }
  throw UserError(fmt::format("cannot hold the folder {}: it is replaced again and again", folder.string()));
}

FolderClaim::FolderClaim(FolderClaim&& other) noexcept
    : folder_(std::move(other.folder_)),
      first_made_(std::exchange(other.first_made_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderClaim::~FolderClaim() {
  if (descriptor_ >= 0) {
    const std::lock_guard lock(g_mutex);
    g_claims.erase(descriptor_);
    close(descriptor_);
  }
  if (first_made_.empty()) return;
  std::error_code error;
  for (fs::path at = folder_; fs::is_directory(at, error) && fs::is_empty(at, error); at = at.parent_path()) {
    if (!fs::remove(at, error) || at == first_made_) return;
  }
}

}  // namespace shardline
