#include "planner/cli/sweep_journal.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string_view>
#include <utility>

#include "reports/atomic_file.hpp"
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

// Another program may find other numbers under the same version: it is one of the texts that are read.
void read_this_program() {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  [[maybe_unused]] static const bool read = !read_text("/proc/self/exe", kMost).empty();
}

std::string line_of(const std::string& hash, const std::string& record) { return hash + " " + record + "\n"; }

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

// The records behind the first line, where that is `key`.
std::vector<std::string> records_of(const std::filesystem::path& file, const std::string& key) {
  std::vector<std::string> out;
  std::error_code error;
  if (std::filesystem::symlink_status(file, error).type() != std::filesystem::file_type::regular) return out;
  std::ifstream in(file, std::ios::binary);
  std::string line;
  if (!std::getline(in, line) || line != key) return out;
  while (std::getline(in, line)) {
    if (line.size() <= kHash || line[kHash] != ' ') break;
    std::string record = line.substr(kHash + 1);
    if (line.compare(0, kHash, sha256(record)) != 0) break;
    out.push_back(std::move(record));
  }
  return out;
}

}  // namespace

SweepJournal::SweepJournal(const std::filesystem::path& folder, const std::string& question)
    : file_(folder.parent_path() / ("." + folder.filename().string() + ".journal")), started_(now()) {
  read_this_program();
  key_ = "shardline journal 1 " + sha256(question + "\n" + digest_of_texts_read());
  std::vector<std::string> kept = records_of(file_, key_);
  if (!kept.empty()) note_resumable();
  search_.emplace(std::move(kept), [this](const std::string& record) { keep(record); });
}

SweepJournal::~SweepJournal() = default;

void SweepJournal::keep(const std::string& record) {
  if (!out_) {
    waiting_.push_back(record);
    if (now() - started_ < kShort) return;
    // A journal of before is replaced whole: what it had is among the records that wait.
    std::filesystem::path beside = file_;
    beside += ".new";
    out_.reset(std::fopen(beside.c_str(), "wbe"));
    if (!out_) return waiting_.clear();  // a sweep does without
    std::fputs((key_ + "\n").c_str(), out_.get());
    for (const std::string& one : std::exchange(waiting_, {}))
      std::fputs(line_of(sha256(one), one).c_str(), out_.get());
    if (std::fflush(out_.get()) != 0 || std::rename(beside.c_str(), file_.c_str()) != 0)
      unlink(beside.c_str());
    note_resumable();
    return;
  }
  std::fputs(line_of(hash_of_long(record), record).c_str(), out_.get());
  std::fflush(out_.get());
}

void SweepJournal::remove() {
  out_.reset();
  unlink(file_.c_str());
}

}  // namespace shardline::cli
