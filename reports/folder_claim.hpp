// An output folder that one run writes to, from its beginning to its end.
#pragma once

#include <cstdint>
#include <filesystem>

namespace shardline {

/// A file system without locks (some of networks) holds nothing back: better that than no output.
enum class FolderLock : std::uint8_t { held, taken, none };
/// Of an open folder, against other processes and other descriptors of this one; does not wait.
FolderLock lock_folder(int descriptor);

/// Holds an output folder against other runs while it lives. The lock is of the kernel, on the folder, so
/// that it ends with the process, however that ends.
class FolderClaim {
 public:
  /// Makes the folder and its parents. Throws UserError where another run holds it, or as make_output_folder
  /// does.
  explicit FolderClaim(const std::filesystem::path& folder);
  FolderClaim(FolderClaim&& other) noexcept;
  FolderClaim& operator=(FolderClaim&&) = delete;
  /// Removes the folders that it made if they are empty still: nothing was written.
  ~FolderClaim();

 private:
  std::filesystem::path folder_, first_made_;
  int descriptor_ = -1;
};

/// To be asked before something is written: every folder that this process holds is still where it was when
/// it was claimed, and no link leads elsewhere. Throws UserError. A folder that is gone is made anew, and is
/// none of its concern.
void require_claims();

}  // namespace shardline
