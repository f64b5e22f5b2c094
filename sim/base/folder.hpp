// The entries of a folder.
#pragma once

#include <filesystem>
#include <system_error>
#include <vector>

namespace shardline {

/// Paths of a folder's entries, without "." and "..", sorted. Nothing, and `error` set, where it cannot be
/// read. Unlike std::filesystem::directory_iterator, whose step in libstdc++ 12 allocates where it may not
/// throw (std::filesystem::_Dir::advance), a failure to allocate is thrown as bad_alloc and does not end the
/// process.
std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder,
                                                  std::error_code& error);

/// Removes the folder and all in it, as far as it can be; links are removed, not followed. Needs no memory
/// that it could throw for want of, unlike std::filesystem::remove_all.
void remove_folder(const std::filesystem::path& folder) noexcept;

/// The same; none where the folder is not there. Throws UserError where it cannot be read: a name that was
/// not seen would be unknown.
std::vector<std::filesystem::path> entries_if_there(const std::filesystem::path& folder);

/// The place that `path` names, without `..` behind parts that are not there: `a/../x` leads nowhere where
/// there is no `a`, and whoever made it would leave it behind. What is there is followed as the system
/// follows it, links too. A path that the system can follow, and one that cannot be looked at, comes back as
/// it is.
std::filesystem::path without_detours(const std::filesystem::path& path);

}  // namespace shardline
