#include "sim/base/read_text.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/input_file.hpp"
#include "sim/base/sha256.hpp"

namespace shardline {

namespace {

// A hash of the hashes: texts are large, and their number grows with each question of a process that lasts.
std::mutex g_mutex;  // of all of these
Sha256 g_digest;

using Pipe = std::pair<dev_t, ino_t>;
std::map<Pipe, std::string> g_kept;
std::set<std::pair<dev_t, ino_t>> g_read;  // regular files
int g_keepers = 0;

bool pipes_are_kept() {
  const std::lock_guard lock(g_mutex);
  return g_keepers > 0;
}

// Of what is there and no regular file: it is not opened, which waits for who writes.
std::optional<Pipe> pipe_at(const std::filesystem::path& file) {
  struct stat found {};
  if (stat(file.c_str(), &found) != 0 || S_ISREG(found.st_mode)) return std::nullopt;
  return Pipe(found.st_dev, found.st_ino);
}

std::optional<std::string> kept_text(const Pipe& pipe) {
  const std::lock_guard lock(g_mutex);
  const auto found = g_kept.find(pipe);
  return found == g_kept.end() ? std::nullopt : std::optional(found->second);
}

void keep(const Pipe& pipe, const std::string& text) {
  const std::lock_guard lock(g_mutex);
  if (g_keepers > 0) g_kept.emplace(pipe, text);
}

void add_to_digest(std::string_view text) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;  // milliseconds between two questions
  Sha256 hash;
  for (std::size_t i = 0; i < text.size(); i += kPiece) {
    check_cancelled();
    hash.add(text.substr(i, kPiece));
  }
  const std::lock_guard lock(g_mutex);
  g_digest.add(hash.hex());
}

[[noreturn]] void refuse_longer(const std::filesystem::path& file, std::size_t most) {
  const bool small = most < (std::size_t{1} << 20);
  throw UserError(fmt::format("{}: more than {} {}; no more are read", file.string(),
                              small ? most : most >> 20, small ? "bytes" : "MiB"));
}

// All of it, or one byte more than `most`.
std::string text_in(const std::filesystem::path& file, std::size_t most) {
  InputFile input(file);
  // In growing pieces, since devices and pipes have no size; one byte too many tells that there are too many.
  std::string text;
  constexpr std::size_t kLargestPiece = std::size_t{1} << 20;
  for (std::size_t piece = 16384; text.size() <= most;) {
    const std::size_t had = text.size();
    text.resize(std::min(had + piece, most + 1));
    const std::size_t count = input.read(text.data() + had, text.size() - had);
    text.resize(had + count);
    if (count == 0) break;
    if (count == piece) piece = std::min(2 * piece, kLargestPiece);
  }
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

}  // namespace

PipesKept::PipesKept() {
  const std::lock_guard lock(g_mutex);
  ++g_keepers;
}

PipesKept::~PipesKept() {
  const std::lock_guard lock(g_mutex);
  if (--g_keepers > 0) return;
  g_kept.clear();
  g_read.clear();
}

std::string digest_of_texts_read() {
  const std::lock_guard lock(g_mutex);
  return g_digest.hex();
}

void note_text(std::string_view text) { add_to_digest(text); }

std::string read_text(const std::filesystem::path& file, std::size_t most) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw UserError("cannot read " + file.string() + ": a directory");
  const std::optional<Pipe> pipe = pipe_at(file);
  std::optional<std::string> kept = pipe ? kept_text(*pipe) : std::nullopt;
  std::string text = kept ? std::move(*kept) : text_in(file, most);
  if (text.size() > most) refuse_longer(file, most);
  if (pipe)
    keep(*pipe, text);
  else
    note_read(file);
  add_to_digest(text);
  return text;
}

std::uintmax_t text_size(const std::filesystem::path& file, std::size_t most) {
  std::error_code error;
  if (std::filesystem::is_regular_file(file, error)) {
    const std::uintmax_t size = std::filesystem::file_size(file, error);
    return error ? 0 : size;
  }
  return pipe_at(file) && pipes_are_kept() ? read_text(file, most).size() : 0;
}

void note_read(const std::filesystem::path& file) {
  struct stat found {};
  if (stat(file.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return;
  const std::lock_guard lock(g_mutex);
  if (g_keepers > 0) g_read.emplace(found.st_dev, found.st_ino);
}

bool was_read(const std::filesystem::path& file) {
  struct stat found {};
  if (stat(file.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return false;
  const std::lock_guard lock(g_mutex);
  return g_read.contains({found.st_dev, found.st_ino});
}

}  // namespace shardline
