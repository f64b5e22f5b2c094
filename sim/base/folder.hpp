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

}  // namespace shardline
