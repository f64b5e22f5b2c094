#include "reports/staged_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/atomic_file.hpp"
#include "reports/folder_access.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/folder.hpp"

namespace shardline {

namespace {

namespace fs = std::filesystem;

constexpr const char* kStage = ".shardline-";
constexpr int kTries = 3;  // to empty a folder into which others write
// A stage has the files in a folder of its own, and beside that the mark that tells it from a folder of
// somebody's that has such a name. The mark is made once the stage is held.
constexpr const char* kFiles = "files";
constexpr const char* kMark = "unfinished";
constexpr std::string_view kMarkText = "shardline stage\n";
// Beside the mark, once the files may be those of the folder that was exchanged: then others may have put
// something there in the last moment.
constexpr const char* kExchanged = "exchanged";

[[noreturn]] void fail(const fs::path& path, int error) {
  throw UserError(fmt::format("cannot write {}: {}", path.string(), std::strerror(error)));
}

// Nothing is in the folder but what its manifest names, and folders of it that hold something. The first
// other thing decides: the folder may be a whole disk.
bool only_known(const fs::path& folder) {
  const auto known = manifest_of(folder);
  std::vector<fs::path> rest{folder};
  std::error_code error;
  while (!rest.empty()) {
    const std::vector<fs::path> entries = folder_entries(std::exchange(rest.back(), {}), error);
    rest.pop_back();
    if (!known && !entries.empty()) return false;
    for (const fs::path& entry : entries) {
      check_cancelled();
      const fs::file_type type = fs::symlink_status(entry, error).type();
      if (type == fs::file_type::directory && !folder_entries(entry, error).empty()) {
        rest.push_back(entry);
        continue;
      }
      const std::string name = entry.lexically_relative(folder).string();
      if (type != fs::file_type::regular || (name != kManifest && !known->contains(name))) return false;
    }
  }
  return true;
}

// Whether the folder is where another file system begins, which nothing beside it can be exchanged with: one
// of its own, or a part of the same that is mounted there (STATX_ATTR_MOUNT_ROOT, `man 2 statx`; a kernel
// that does not say it is asked for the devices alone).
bool is_mount_point(const fs::path& folder) {
  struct stat own {
  }, around{};
  if (stat(folder.c_str(), &own) == 0 && stat(folder.parent_path().c_str(), &around) == 0 &&
      own.st_dev != around.st_dev)
    return true;
  struct statx found {};
  return statx(AT_FDCWD, folder.c_str(), 0, STATX_BASIC_STATS, &found) == 0 &&
         (found.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

// A process whose folder is exchanged would stand in the old one.
bool stands_in(const fs::path& folder) {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  return !error &&
         std::mismatch(folder.begin(), folder.end(), here.begin(), here.end()).first == folder.end();
}

// Links, devices and pipes on the way to, or in place of, a file.
void refuse_what_is_no_file(const fs::path& folder, const std::string& name) {
  fs::path path = folder;
  const fs::path parts(name);
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    path /= *part;
    std::error_code error;
    const fs::file_type type = fs::symlink_status(path, error).type();
    if (type == fs::file_type::not_found) return;
    const bool last = std::next(part) == parts.end();
    if (type == (last ? fs::file_type::regular : fs::file_type::directory)) continue;
    const char* is = type == fs::file_type::symlink     ? "a symbolic link"
                     : type == fs::file_type::directory ? "a folder"
                     : type == fs::file_type::regular   ? "a file"
                                                        : "a device or a pipe";
    throw UserError(fmt::format("cannot write {}: {} is {}; remove it, or choose another folder",
                                (folder / name).string(), path.string(), is));
  }
}

// To another file system, where it is whole or not there. Not by fs::copy_file, which calls a full disk an
// error of input or output.
void move_across(const fs::path& from, const fs::path& to) {
  const fs::perms mode = fs::status(from).permissions();
  std::ifstream in(from, std::ios::binary);
  if (!in) fail(to, errno);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  write_file(to, text, AfterInterrupt::write, IfRead::replace);
  std::error_code error;
  fs::permissions(to, mode, error);
  if (error) fail(to, error.value());
}

// Whether somebody has changed a file behind its manifest.
bool changed_since(const fs::path& folder, const std::string& name, const ManifestEntry& entry) {
  struct stat file {
  }, manifest{};
  if (stat((folder / name).c_str(), &file) != 0 || stat((folder / kManifest).c_str(), &manifest) != 0)
    return true;
  const auto later = [](const timespec& a, const timespec& b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
  };
  return static_cast<std::uint64_t>(file.st_size) != entry.bytes || later(file.st_mtim, manifest.st_mtim);
}

bool make_mark(const fs::path& stage, const char* name) {
  const int descriptor = open((stage / name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return false;
  errno = ENOSPC;  // of a part
  const bool whole =
      write(descriptor, kMarkText.data(), kMarkText.size()) == static_cast<ssize_t>(kMarkText.size());
  const int error = errno;
  close(descriptor);
  errno = error;
  return whole;
}

// Nothing else in it, and the mark in our words: no other folder is removed, whatever it is called.
bool is_stage(const fs::path& folder) {
  std::error_code error;
  for (const fs::path& entry : folder_entries(folder, error)) {
    if (entry.filename() != kFiles && entry.filename() != kMark && entry.filename() != kExchanged)
      return false;
  }
  if (error || fs::symlink_status(folder / kMark, error).type() != fs::file_type::regular) return false;
  std::string text(kMarkText.size() + 1, '\0');
  std::ifstream mark(folder / kMark, std::ios::binary);
  mark.read(text.data(), static_cast<std::streamsize>(text.size()));
  return mark.gcount() == static_cast<std::streamsize>(kMarkText.size()) && text.starts_with(kMarkText);
}

bool holds_known(const Manifest& known, const std::string& folder) {
  const auto first = known.lower_bound(folder + "/");
  return first != known.end() && first->first.starts_with(folder + "/");
}

// A folder of ours that another has taken the place of. Removes what is `known` of it, the manifest last, and
// moves the rest to `place`, never over anything. False: something is in it still, or came meanwhile. Nothing
// is removed that was not looked at: a folder goes once it is empty.
bool empty_replaced(const fs::path& root, const fs::path& place, const Manifest& known,
                    const std::string& below = "") {
  std::error_code error;
  const fs::path folder = root / below;
  for (const fs::path& entry : folder_entries(folder, error)) {
    const std::string name = entry.lexically_relative(root).string();
    const fs::file_type type = fs::symlink_status(entry, error).type();
    if (type == fs::file_type::directory && holds_known(known, name)) {
      empty_replaced(root, place, known, name);
    } else if (type == fs::file_type::regular && (known.contains(name) || name == kManifest)) {
      if (name != kManifest) unlink(entry.c_str());
    } else if (!place.empty()) {
      fs::create_directories((place / name).parent_path(), error);
      renameat2(AT_FDCWD, entry.c_str(), AT_FDCWD, (place / name).c_str(), RENAME_NOREPLACE);
    }
  }
  if (below.empty() && folder_entries(folder, error) == std::vector<fs::path>{root / kManifest})
    unlink((root / kManifest).c_str());
  return rmdir(folder.c_str()) == 0;
}

// The mark last: what is left where this is ended is a stage still. False: it holds what is not ours.
bool remove_stage(const fs::path& root) {
  std::error_code error;
  if (fs::exists(root / kExchanged, error)) {
    const fs::path files = root / kFiles;
    if (fs::exists(files, error) && !empty_replaced(files, {}, manifest_of(files).value_or(Manifest{})))
      return false;
    unlink((root / kExchanged).c_str());
  }
  remove_folder(root / kFiles);
  remove_folder(root);
  return true;
}

void remove_stale_stages(const fs::path& parent, const std::string& begin) {
  std::error_code error;
  for (const fs::path& entry : folder_entries(parent, error)) {
    const std::string name = entry.filename().string();
    if (!name.starts_with(begin) || name.size() != begin.size() + 6) continue;
    const int descriptor = open(entry.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) continue;
    if (lock_folder(descriptor) == FolderLock::held && is_stage(entry)) remove_stage(entry);
    close(descriptor);
  }
}

}  // namespace

StagedFolder::StagedFolder(const fs::path& folder) {
  require_claims();
  std::error_code error;
  const bool there = fs::exists(folder, error);
  if (there || fs::is_symlink(folder, error)) make_output_folder(folder);  // says what is wrong with it
  fs::path named = there ? fs::canonical(folder, error) : fs::absolute(folder, error).lexically_normal();
  if (error) fail(folder, error.value());
  if (!named.has_filename()) named = named.parent_path();
  if (!there) make_output_folder(named.parent_path());
  place_ = there ? named : fs::canonical(named.parent_path()) / named.filename();
  as_a_whole_ = (!there || (only_known(place_) && !is_mount_point(place_) &&
                            same_access_in(place_.parent_path(), place_))) &&
                !stands_in(place_) && access(place_.parent_path().c_str(), W_OK | X_OK) == 0;
  const fs::path beside = as_a_whole_ ? place_.parent_path() : place_;
  constexpr std::size_t kLongest = 200;  // bytes of a name of 255 that leave room for those around it
  const std::string begin =
      as_a_whole_ ? "." + place_.filename().string().substr(0, kLongest) + kStage : kStage;
  remove_stale_stages(beside, begin);
  std::string name = (beside / (begin + "XXXXXX")).string();
  if (mkdtemp(name.data()) == nullptr) fail(place_, errno);
  try {
    root_ = name;
    stage_ = root_ / kFiles;
    descriptor_ = open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ >= 0) lock_folder(descriptor_);
    // mkdtemp makes private folders; results, in the folder within, are meant to be shared as any other.
    if (descriptor_ >= 0 && make_mark(root_, kMark) && mkdir(stage_.c_str(), 0777) == 0) return;
  } catch (...) {  // out of memory: nobody else removes what is there by now
    if (descriptor_ >= 0) close(descriptor_);
    rmdir(name.c_str());  // where it is empty still, and its name may not be known
    if (!root_.empty()) remove_stage(root_);
    throw;
  }
  const int reason = errno;
  if (descriptor_ >= 0) close(descriptor_);
  remove_stage(root_);
  fail(place_, reason);
}

StagedFolder::~StagedFolder() {
  // Closed first: to look into a folder takes a descriptor, and the process may have no other left.
  if (descriptor_ >= 0) close(descriptor_);
  if (!kept_) remove_stage(root_);
}

StagedFolder::Published StagedFolder::publish(Manifest written, const std::set<std::string>& left_out) {
  if (interrupted()) throw UserError(fmt::format("interrupted before {} was written", place_.string()));
  const Manifest old = manifest_of(place_).value_or(Manifest{});
  Manifest carried = old;
  for (const auto& [name, entry] : written) carried.erase(name);
  std::set<std::string> stale;
  for (const std::string& name : left_out) {
    if (carried.erase(name) > 0) stale.insert(name);
  }
  std::error_code error;
  std::erase_if(carried,
                [&](const auto& entry) { return !fs::is_regular_file(place_ / entry.first, error); });
  Published out;
  for (auto& [name, entry] : carried) {
    if (changed_since(place_, name, entry)) entry = manifest_entry_of(place_ / name);
    entry.earlier = true;
    out.earlier.push_back(name);
  }
  Manifest all = written;
  all.insert(carried.begin(), carried.end());
  for (const auto& [name, entry] : written) require_replaceable(place_ / name);
  write_staged_file(stage_, place_, kManifest, to_json(all));
  const bool whole = as_a_whole_ && (!fs::exists(place_, error) || only_known(place_));
  looked();
  require_claims();
  if (fs::canonical(place_.parent_path(), error) != place_.parent_path())
    throw UserError(fmt::format("cannot write {}: the way to it was changed meanwhile", place_.string()));
  const InOneStep step;
  if (!whole || !exchange(carried)) {
    replace_each(written, stale);
  } else if (fs::exists(stage_, error)) {
    for (int tries = 0; tries < kTries && !empty_replaced(stage_, place_, old); ++tries) continue;
    kept_ = fs::exists(stage_, error);
    if (!kept_) unlink((root_ / kExchanged).c_str());
  }
  note_written(place_);
  if (kept_)
    out.kept =
        fmt::format("what was put into {} while it was written is in {}", place_.string(), stage_.string());
  return out;
}

bool StagedFolder::exchange(const Manifest& carried) {
  std::error_code error;
  for (const auto& [name, entry] : carried) {
    fs::create_directories((stage_ / name).parent_path(), error);
    fs::create_hard_link(place_ / name, stage_ / name, error);
    if (error) fs::copy_file(place_ / name, stage_ / name, error);
    if (error) return false;
  }
  if (!keep_access(stage_, place_)) return false;
  if (std::rename(stage_.c_str(), place_.c_str()) == 0) return true;  // there was none, or an empty one
  if (!make_mark(root_, kExchanged)) return false;
  if (renameat2(AT_FDCWD, stage_.c_str(), AT_FDCWD, place_.c_str(), RENAME_EXCHANGE) == 0) return true;
  unlink((root_ / kExchanged).c_str());
  return false;
}

void StagedFolder::replace_each(const Manifest& written, const std::set<std::string>& stale) {
  for (const auto& [name, entry] : written) refuse_what_is_no_file(place_, name);
  refuse_what_is_no_file(place_, kManifest);
  const fs::path manifest = place_ / kManifest;
  std::error_code error;
  if (fs::exists(manifest, error) && !manifest_of(place_))
    throw UserError(
        fmt::format("{} is no list of ours; remove it, or choose another folder", manifest.string()));
  const auto move = [&](const fs::path& name) {
    const fs::path to = place_ / name;
    if (to.has_parent_path()) make_output_folder(to.parent_path());
    // A folder within the place may be a file system of its own.
    if (std::rename((stage_ / name).c_str(), to.c_str()) != 0) {
      if (errno != EXDEV) fail(to, errno);
      move_across(stage_ / name, to);
    }
  };
  fs::remove(manifest, error);
  for (const std::string& name : stale) fs::remove(place_ / name, error);
  for (const auto& [name, entry] : written) move(name);
  move(kManifest);
}

}  // namespace shardline
