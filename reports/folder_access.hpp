// Who may do what in a folder, of one that another takes the place of.
#pragma once

#include <filesystem>

namespace shardline {

/// Whether a folder that this process makes in `parent` would belong to the same user and group as `there`,
/// whose mode says all of who may do what.
bool same_access_in(const std::filesystem::path& parent, const std::filesystem::path& there);

/// Whether `made`, a folder of this process, belongs to the same user and group as `there`, and the mode of
/// `there` says all of who may do what: no list of access (ACL) says more.
bool same_access(const std::filesystem::path& made, const std::filesystem::path& there);

/// Gives the folder `made`, and each within it, the mode of the one of the same name in `there`. False where
/// the mode is not all that there is (same_access) or cannot be given: then somebody could do more, or less.
bool keep_access(const std::filesystem::path& made, const std::filesystem::path& there);

}  // namespace shardline
