// Reading a file of a user, which may be anything: a device without an end, a folder, a pipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace shardline {

/// YAML and JSON. The largest that ships has .7 MB.
inline constexpr std::size_t kLargestDocument = std::size_t{16} << 20;
/// Tables of measurements. The largest that are published have 30 MB.
inline constexpr std::size_t kLargestTable = std::size_t{256} << 20;

/// What some editors and spreadsheets begin UTF-8 with; it says nothing, and is no part of a text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// All bytes of a file, device or pipe, without a byte-order mark. Throws UserError where it cannot be read,
/// is a folder, or has more than `most` bytes: no more than those are ever held.
std::string read_text(const std::filesystem::path& file, std::size_t most);

/// While one lives, read_text() gives each time what a pipe or a device had the first time: files of a
/// question are read more than once, and what came out of a pipe does not come again; and which regular files
/// were read is known. For the whole process; where one lives within another, they share.
class PipesKept {
 public:
  PipesKept();
  ~PipesKept();
  PipesKept(const PipesKept&) = delete;
  PipesKept& operator=(const PipesKept&) = delete;
};

/// Bytes that read_text() will give, where no more than `most` are there; of a pipe, which has no size, by
/// reading it where it is kept. 0: not known, or not to be read.
std::uintmax_t text_size(const std::filesystem::path& file, std::size_t most);

/// SHA-256 over all that read_text() has given to this process so far, in its order: what an answer was made
/// from, whichever files those were.
std::string digest_of_texts_read();
/// Adds to it what an answer was made from and no file has.
void note_text(std::string_view text);

/// For what is read in another way.
void note_read(const std::filesystem::path& file);
/// Whether this regular file, by whatever name, was given by read_text() or noted in this process: written,
/// it would be lost.
bool was_read(const std::filesystem::path& file);

}  // namespace shardline
