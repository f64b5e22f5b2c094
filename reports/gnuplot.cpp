// Runs gnuplot on the scripts of plot.cpp.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/plot.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/harmless.hpp"

namespace shardline {

namespace {

// A file in memory, for which no folder has to have room: gnuplot does not tell of a disk that is full, and
// what it drew would be cut.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("shardline", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {}
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int descriptor() const { return descriptor_; }
  std::size_t size() const {
    struct stat found {};
    return fstat(descriptor_, &found) == 0 ? static_cast<std::size_t>(found.st_size) : 0;
  }
  // Whoever has it open writes no more to it.
  void close_for_all() const { fcntl(descriptor_, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK); }
  // False: errno says why not.
  bool write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::write(descriptor_, text.data(), text.size());
      if (n < 0 && errno != EINTR) return false;
      text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    }
    return lseek(descriptor_, 0, SEEK_SET) == 0;
  }
  // Of a longer one the beginning.
  std::string text(std::size_t most = std::numeric_limits<std::size_t>::max()) const {
    std::string out(std::min(size(), most), '\0');
    std::size_t had = 0;
    for (ssize_t n = 1; had < out.size() && n > 0; had += static_cast<std::size_t>(std::max<ssize_t>(n, 0)))
      n = pread(descriptor_, out.data() + had, out.size() - had, static_cast<off_t>(had));
    out.resize(had);
    return out;
  }

 private:
  int descriptor_;
};

// What gnuplot, or whatever has that name in PATH, says to a terminal: a fault is said in the first lines.
std::string said_in(const MemoryFile& log) {
  constexpr std::size_t kMost = 4096;
  return harmless_lines(log.text(kMost));
}

// With all that it has started: a program of this name may be a script, with others behind it.
void end(pid_t child) {
  kill(-child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// A picture has megabytes and takes a second where the machine is busy. Whatever else has gnuplot's name in
// PATH could fill the memory, or never end.
constexpr std::size_t kMostDrawn = std::size_t{1} << 28, kMostSaid = std::size_t{1} << 20;
constexpr std::chrono::seconds kLongest{120};

std::optional<std::string> beyond_limits(const MemoryFile& output, const MemoryFile& log,
                                         std::chrono::steady_clock::duration passed) {
  if (output.size() > kMostDrawn) return fmt::format("gnuplot drew more than {} MiB", kMostDrawn >> 20);
  if (log.size() > kMostSaid) return "gnuplot said more than 1 MiB: " + said_in(log);
  if (passed > kLongest) return fmt::format("gnuplot took longer than {} s", kLongest.count());
  return std::nullopt;
}

// Waits a little. Whoever interrupts does not wait for the picture.
void end_if_cancelled(pid_t child) {
  try {
    check_cancelled();
  } catch (...) {
    end(child);
    throw;
  }
  constexpr timespec kPause{0, 2'000'000};
  nanosleep(&kPause, nullptr);
}

// Nothing when gnuplot ended well, else the reason.
std::optional<std::string> run_gnuplot(const MemoryFile& script, const MemoryFile& output,
                                       const MemoryFile& log) {
  std::string program = "gnuplot", defaults = "--default-settings";
  const std::array<char*, 3> arguments{program.data(), defaults.data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, script.descriptor(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, output.descriptor(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, log.descriptor(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t taken;  // signals that this program ignores
  sigemptyset(&taken);
  for (const int number : {SIGPIPE, SIGXFSZ}) sigaddset(&taken, number);
  posix_spawnattr_setsigdefault(&attributes, &taken);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  // A terminal of somebody's own, which may not be there, comes before the script's.
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("GNUTERM=")) environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, "gnuplot", &files, &attributes, arguments.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error == ENOENT) return "gnuplot was not found in PATH; install the Debian package gnuplot-nox";
  if (error != 0) return fmt::format("gnuplot did not start: {}", std::strerror(error));
  int status = 0;
  const auto start = std::chrono::steady_clock::now();
  for (pid_t ended = 0; ended == 0;) {
    ended = waitpid(child, &status, WNOHANG);
    if (ended < 0 && errno != EINTR)
      return fmt::format("waiting for gnuplot failed: {}", std::strerror(errno));
    if (ended != 0) continue;
    if (auto why = beyond_limits(output, log, std::chrono::steady_clock::now() - start)) {
      output.close_for_all();
      log.close_for_all();
      end(child);
      return why;
    }
    end_if_cancelled(child);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  return "gnuplot failed: " + said_in(log);
}

template <class Picture>
Rendered render_picture(const Picture& picture, const std::string& terminal) {
  MemoryFile script, output, log;
  for (const MemoryFile* file : {&script, &output, &log}) {
    if (file->descriptor() < 0) return {{}, fmt::format("no file in memory: {}", std::strerror(errno))};
  }
  constexpr const char* kStandardOutput = "";
  if (!script.write(gnuplot_script(picture, terminal, kStandardOutput)))
    return {{}, fmt::format("cannot write gnuplot's script: {}", std::strerror(errno))};
  if (auto error = run_gnuplot(script, output, log)) return {{}, *error};
  Rendered rendered{output.text(), {}};
  if (rendered.bytes.empty()) rendered.error = "gnuplot drew nothing: " + said_in(log);
  return rendered;
}

}  // namespace

Rendered render(const Plot& plot, const std::string& terminal) { return render_picture(plot, terminal); }
Rendered render(const Gantt& gantt, const std::string& terminal) { return render_picture(gantt, terminal); }

}  // namespace shardline
