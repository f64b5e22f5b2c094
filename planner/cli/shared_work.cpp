#include "planner/cli/shared_work.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <string_view>
#include <thread>
#include <utility>

#include "reports/atomic_file.hpp"
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

bool g_leaves_words_to_others = false;  // this process has no standard error

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
  if (launched.on_machine > 0) {
    silence(STDERR_FILENO);
    g_leaves_words_to_others = true;
  }
  return std::nullopt;
}

int end_shared_work(int code) {
  // Whoever says what is wrong needs no longer for it than this one did, but for the machine's other work.
  constexpr std::chrono::seconds kPatience(3);
  constexpr std::chrono::milliseconds kLook(50);
  if (code == 0 || !g_leaves_words_to_others) return code;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < until && !interrupted()) std::this_thread::sleep_for(kLook);
  return code;
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
