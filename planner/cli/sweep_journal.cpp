#include "planner/cli/sweep_journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "reports/atomic_file.hpp"
#include "reports/standard_output.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/read_text.hpp"
#include "sim/base/sha256.hpp"

namespace shardline::cli {

namespace {

constexpr double kShort = 1;  // s: what takes less is done again
constexpr std::size_t kHash = 64;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A note of ELF: three words (lengths of name and contents, type), then both, each padded to words. Fills
// `out`, a string, with the contents of the note of type NT_GNU_BUILD_ID in the first object, which is the
// program itself.
int find_build_id(dl_phdr_info* program, std::size_t, void* out) {
  for (int i = 0; i < program->dlpi_phnum; ++i) {
    const auto& segment = program->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* bytes = reinterpret_cast<const char*>(program->dlpi_addr + segment.p_vaddr);
    std::string_view left(bytes, segment.p_memsz);
    std::array<std::uint32_t, 3> head{};
    while (left.size() >= sizeof head) {
      std::memcpy(head.data(), left.data(), sizeof head);
      const auto padded = [](std::size_t size) { return (size + 3) / 4 * 4; };
      const std::size_t begin = sizeof head + padded(head[0]), end = begin + padded(head[1]);
      if (end > left.size()) break;
      if (head[2] == NT_GNU_BUILD_ID && left.substr(sizeof head, 4) == std::string_view("GNU", 4))
        *static_cast<std::string*>(out) = left.substr(begin, head[1]);
      left.remove_prefix(end);
    }
  }
  return 1;  // the objects behind it are libraries
}

// Another program may find other numbers under the same version: what tells it is one of the texts that are
// read. The linker's hash of all that it linked, where it wrote one: to hash it here takes longer than a
// short sweep.
void read_this_program() {
  [[maybe_unused]] static const bool read = [] {
    std::string id;
    dl_iterate_phdr(find_build_id, &id);
    constexpr std::size_t kMost = std::size_t{1} << 30;
    if (id.empty()) return !read_text("/proc/self/exe", kMost).empty();
    note_text(id);
    return true;
  }();
}

// Of a record that may have millions of characters: asks whether to stop.
std::string hash_of_long(std::string_view record) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;  // 10 ms
  Sha256 hash;
  for (; !record.empty(); record.remove_prefix(std::min(kPiece, record.size()))) {
    check_cancelled();
    hash.add(record.substr(0, kPiece));
  }
  return hash.hex();
}

// A line of its hash and the record, which may have millions of characters: it is not copied, and it is asked
// whether to stop. What is left of one that was stopped does not have its hash, and is not read back.
void write_record(std::FILE* out, std::string_view record) {
  const std::string hash = hash_of_long(record) + " ";
  std::fwrite(hash.data(), 1, hash.size(), out);
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  for (; !record.empty(); record.remove_prefix(std::min(kPiece, record.size()))) {
    check_cancelled();
    std::fwrite(record.data(), 1, std::min(kPiece, record.size()), out);
  }
  std::fputc('\n', out);
}

// All of it has reached the system: no full disk, and no limit of files.
bool is_kept(std::FILE* out) { return std::fflush(out) == 0 && std::ferror(out) == 0; }

constexpr std::string_view kOurs = "shardline journal ";

bool is_regular(const std::filesystem::path& file) {
  std::error_code error;
  return std::filesystem::symlink_status(file, error).type() == std::filesystem::file_type::regular;
}
bool is_missing(const std::filesystem::path& file) {
  std::error_code error;
  return std::filesystem::symlink_status(file, error).type() == std::filesystem::file_type::not_found;
}

// Whether the file begins so; nothing behind that is read, however large it is.
bool begins_with(const std::filesystem::path& file, std::string_view text) {
  std::ifstream in(file, std::ios::binary);
  std::string first(text.size(), '\0');
  return in.read(first.data(), static_cast<std::streamsize>(first.size())) && first == text;
}

// One that a killed run has begun and not written to is ours, too.
bool is_ours(const std::filesystem::path& file) {
  std::error_code error;
  return is_regular(file) && (std::filesystem::file_size(file, error) == 0 || begins_with(file, kOurs));
}

// A file of our own that nobody else has a name of: what lies there is neither followed, nor waited for, nor
// written over. One that a killed run has left is made anew.
std::FILE* new_file(const std::filesystem::path& file) {
  if (is_ours(file)) unlink(file.c_str());
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  return descriptor < 0 ? nullptr : fdopen(descriptor, "wb");
}

// The records behind the first line, where that is `key`.
std::vector<std::string> records_of(const std::filesystem::path& file, const std::string& key) {
  std::vector<std::string> out;
  if (!is_regular(file) || !begins_with(file, key + "\n")) return out;
  std::ifstream in(file, std::ios::binary);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    check_cancelled();
    if (line.size() <= kHash || line[kHash] != ' ') break;
    std::string record = line.substr(kHash + 1);
    if (line.compare(0, kHash, hash_of_long(record)) != 0) break;
    out.push_back(std::move(record));
  }
  return out;
}

}  // namespace

SweepJournal::SweepJournal(const std::filesystem::path& folder, const std::string& question)
    : file_(folder.parent_path() / ("." + folder.filename().string() + ".journal")), started_(now()) {
  read_this_program();
  key_ = std::string(kOurs) + "1 " + sha256(question + "\n" + digest_of_texts_read());
  std::vector<std::string> kept = records_of(file_, key_);
  if (!kept.empty()) note_resumable(true);
  if (is_regular(file_) && begins_with(file_, kOurs) && !begins_with(file_, key_ + "\n"))
    say(
        fmt::format("warning: {} is of an interrupted sweep with another command, other files or another "
                    "program: it is lost, this one begins anew\n",
                    file_.string()));
  search_.emplace(std::move(kept), [this](std::string record) { keep(std::move(record)); });
}

SweepJournal::~SweepJournal() = default;

void SweepJournal::keep(std::string record) {
  if (given_up_) return;
  if (out_) {
    write_record(out_.get(), record);
    if (is_kept(out_.get())) return;
    // What is left of this record ends the file: nothing behind it would be read.
    const std::string why = std::strerror(errno);
    out_.reset();
    given_up_ = true;
    note_resumable(false);
    say(fmt::format("warning: {} cannot be written any further ({}): an interrupted run goes on from here\n",
                    file_.string(), why));
    return;
  }
  waiting_.push_back(std::move(record));
  // To go through what the file has may take longer: one with a part of that alone would lose the rest.
  if (search_->giving_back() || now() - started_ < kShort) return;
  given_up_ = !begin();
  waiting_ = {};
  if (!given_up_) return note_resumable(true);
  say(fmt::format("warning: {} cannot be made, or is none of ours: an interrupted run begins anew\n",
                  file_.string()));
}

// A journal of before is replaced whole: what it had is among the records that wait.
bool SweepJournal::begin() {
  std::filesystem::path beside = file_;
  beside += ".new";
  if (is_missing(file_) || is_ours(file_)) out_.reset(new_file(beside));
  if (!out_) return false;
  std::fputs((key_ + "\n").c_str(), out_.get());
  try {
    for (const std::string& one : waiting_) write_record(out_.get(), one);
  } catch (...) {
    unlink(beside.c_str());
    throw;
  }
  // Whole before it has its name, whatever happens to the machine.
  if (is_kept(out_.get()) && fsync(fileno(out_.get())) == 0 &&
      std::rename(beside.c_str(), file_.c_str()) == 0)
    return true;
  unlink(beside.c_str());
  out_.reset();
  return false;
}

void SweepJournal::remove() {
  out_.reset();
  if (is_ours(file_)) unlink(file_.c_str());
  note_resumable(false);
}

}  // namespace shardline::cli
