#include "reports/cli/ask_gaps.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace shardline::cli {

namespace {

constexpr int kMostFrames = 24;

// Where a question was asked.
struct Place {
  std::array<void*, kMostFrames> frames{};
  int depth = 0;

  void note() { depth = backtrace(frames.data(), kMostFrames); }
};

struct Longest {
  std::atomic<double> seconds{0};
  std::mutex mutex;  // of the places
  Place first, second;
};
Longest g_longest;
std::atomic<bool> g_stopped = false;  // a question was answered yes

double processor_time() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

thread_local double g_asked_at = 0;  // a thread's processor time begins at 0
thread_local Place g_asked_in;

void note_question() {
  const double now = processor_time(), gap = now - g_asked_at;
  if (gap > g_longest.seconds.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(g_longest.mutex);
    if (gap > g_longest.seconds.load()) {
      g_longest.seconds = gap;
      g_longest.first = g_asked_in;
      g_longest.second.note();
    }
  }
  g_asked_in.note();
  g_asked_at = processor_time();  // what was noted took time, too
}

const char* file_of_gaps() { return std::getenv("SHARDLINE_ASK_GAPS"); }

void write_place(const Place& place, std::FILE* file) {
  for (int i = 0; i < place.depth; ++i) {
    Dl_info found{};
    void* const frame = place.frames[static_cast<std::size_t>(i)];
    if (dladdr(frame, &found) == 0) continue;
    const auto at =
        reinterpret_cast<std::uintptr_t>(frame) - reinterpret_cast<std::uintptr_t>(found.dli_fbase);
    std::fprintf(file, " %#lx", static_cast<unsigned long>(at));
  }
  std::fprintf(file, "\n");
}

void write_gaps(const char* name, double ending) {
  std::FILE* const file = std::fopen(name, "w");
  if (file == nullptr) return;
  std::fprintf(file, "%.6f %.6f\n", g_longest.seconds.load(), ending);
  write_place(g_longest.first, file);
  write_place(g_longest.second, file);
  std::fclose(file);
}

}  // namespace

AskGaps::AskGaps(CancelQuestion interrupted) : interrupted_(interrupted), question_(std::move(interrupted)) {
  if (file_of_gaps() == nullptr) return;
  question_ = [ask = std::move(question_)] {
    note_question();
    const bool stop = ask();
    if (stop) g_stopped.store(true, std::memory_order_relaxed);
    return stop;
  };
}

AskGaps::~AskGaps() {
  if (file_of_gaps() == nullptr) return;
  // Once the answer was yes the work has ended, and what it had is given back.
  const bool stopped = g_stopped.load(std::memory_order_relaxed) || interrupted_();
  const double ending = stopped ? processor_time() - g_asked_at : 0;
  if (!stopped) note_question();
  write_gaps(file_of_gaps(), ending);
}

}  // namespace shardline::cli
