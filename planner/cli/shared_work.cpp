#include "planner/cli/shared_work.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <string_view>
#include <utility>

#include "reports/standard_output.hpp"

namespace shardline::cli {

namespace {

bool shares_work(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "plan") return false;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--slo" || word.starts_with("--slo=")) return true;
  }
  return false;
}

void silence(int stream) {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  dup2(nowhere, stream);
  close(nowhere);
}

}  // namespace

std::optional<int> begin_shared_work(int argc, char** argv) {
  const LaunchedRank launched = launched_rank();
  if (launched.count == 1) return std::nullopt;
  const bool shares = shares_work(argc, argv);
  if (launched.rank == 0) {
    if (!shares)
      say(fmt::format("note: of {} processes one answers: only plan --slo shares its work\n",
                      launched.count));
    return std::nullopt;
  }
  if (!shares) return 0;
  silence(STDOUT_FILENO);
  // On its machine another one says what is wrong with the question, or with what is installed there.
  if (launched.on_machine > 0) silence(STDERR_FILENO);
  return std::nullopt;
}

SharedProgress::SharedProgress(std::string what, std::size_t ranks)
    : what_(std::move(what)), ranks_(ranks), begin_(std::chrono::steady_clock::now()), last_(begin_) {}

void SharedProgress::show(std::uint64_t done, std::uint64_t all) {
  const auto now = std::chrono::steady_clock::now();
  if (ranks_ < 2 || now - last_ < std::chrono::seconds(10)) return;
  last_ = now;
  say(fmt::format("{}: {} of {} candidates after {:.0f} s, {} ranks\n", what_, done, all,
                  std::chrono::duration<double>(now - begin_).count(), ranks_));
}

SharedRanks::~SharedRanks() {
  if (ranks_) ranks_->close(lost_);
}

}  // namespace shardline::cli
