#include "sim/base/read_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string_view>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/sha256.hpp"

namespace shardline {

namespace {

// A hash of the hashes: texts are large, and their number grows with each question of a process that lasts.
std::mutex g_mutex;
Sha256 g_digest;

}  // namespace

std::string digest_of_texts_read() {
  const std::lock_guard lock(g_mutex);
  return g_digest.hex();
}

std::string read_text(const std::filesystem::path& file, std::size_t most) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw UserError("cannot read " + file.string() + ": a directory");
  errno = 0;
  std::ifstream input(file, std::ios::binary);
  if (!input) {
    const bool missing = errno == ENOENT || errno == 0;
    throw UserError(
        fmt::format("cannot read {}: {}", file.string(), missing ? "no such file" : std::strerror(errno)));
  }
  // In growing pieces, since devices and pipes have no size; one byte too many tells that there are too many.
  std::string text;
  Sha256 hash;
  constexpr std::size_t kLargestPiece = std::size_t{1} << 20;  // milliseconds between two questions
  for (std::size_t piece = 16384; input && text.size() <= most; piece = std::min(2 * piece, kLargestPiece)) {
    check_cancelled();
    const std::size_t had = text.size();
    text.resize(std::min(had + piece, most + 1));
    input.read(text.data() + had, static_cast<std::streamsize>(text.size() - had));
    if (input.bad()) throw UserError("cannot read " + file.string());
    text.resize(had + static_cast<std::size_t>(input.gcount()));
    hash.add(std::string_view(text).substr(had));
  }
  if (text.size() > most) {
    const bool small = most < (std::size_t{1} << 20);
    throw UserError(fmt::format("{}: more than {} {}; no more are read", file.string(),
                                small ? most : most >> 20, small ? "bytes" : "MiB"));
  }
  const std::lock_guard lock(g_mutex);
  g_digest.add(hash.hex());
  return text;
}

}  // namespace shardline
