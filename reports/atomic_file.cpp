#include "reports/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "reports/standard_output.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/read_text.hpp"

namespace shardline {

namespace {

// Set by a signal on whichever thread it comes to, read by all of them: std::sig_atomic_t is for one thread
// alone.
std::atomic<bool> g_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait for a lock");

bool g_ended_late = false;  // set before the handlers
std::atomic<int> g_signal = 0;
bool g_resumable = false;
std::vector<std::string> g_written;  // by the thread of the command
std::atomic<int> g_steps = 0;        // files on their way to their places

constexpr suseconds_t kGrace = 400'000, kAgain = 20'000;  // us: 0.5 s are promised

void end_in(suseconds_t microseconds) {
  const itimerval once{{}, {0, microseconds}};
  setitimer(ITIMER_REAL, &once, nullptr);
}

// Only what may be called from a handler of signals. Files have no name until they are whole; folders beside
// their places are removed by the next run that writes there.
void on_late(int) {
  if (g_steps.load(std::memory_order_relaxed) > 0) return end_in(kAgain);
  constexpr std::string_view kText =
      "interrupted; what was not finished is lost, what was written is whole\n";
  if (::write(STDERR_FILENO, kText.data(), kText.size()) < 0)
    _exit(128 + g_signal.load(std::memory_order_relaxed));
  _exit(128 + g_signal.load(std::memory_order_relaxed));
}

void on_signal(int number) {
  g_signal.store(number, std::memory_order_relaxed);
  g_interrupted.store(true, std::memory_order_relaxed);
  // Within that time it says no more if it comes again: timeout(1) signals its child, then its group.
  std::signal(number, g_ended_late ? SIG_IGN : SIG_DFL);
  if (!g_ended_late) return;
  std::signal(SIGALRM, on_late);
  end_in(kGrace);
}

[[noreturn]] void fail(const std::filesystem::path& file, int error) {
  throw UserError(fmt::format("cannot write {}: {}", file.string(), std::strerror(error)));
}

// A file that has no name until it is written, so that nothing is left of it whatever ends the process. On
// file systems that have no such files, and without /proc, through which it gets its name, it has a name of
// its own. Names do not grow with the file's, which may be as long as a name can be.
class Temporary {
 public:
  /// `shown`: the file's name in messages.
  Temporary(const std::filesystem::path& file, const std::filesystem::path& shown)
      : folder_(file.has_parent_path() ? file.parent_path() : std::filesystem::path(".")) {
    if (access("/proc/self/fd", X_OK) == 0)
      descriptor_ = ::open(folder_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (descriptor_ >= 0) return;
    name_ = (folder_ / ".shardline-XXXXXX").string();
    descriptor_ = mkstemp(name_.data());
    if (descriptor_ < 0) name_.clear(), fail(shown, errno);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    close();
    if (!name_.empty()) unlink(name_.c_str());
  }
  int descriptor() const { return descriptor_; }
  // Puts it where `file` is or is to be. False: errno says why.
  bool replace(const std::filesystem::path& file) {
    if (name_.empty() && !find_name()) return false;
    if (!close() || std::rename(name_.c_str(), file.c_str()) != 0) return false;
    name_.clear();
    return true;
  }

 private:
  bool close() {
    const int d = descriptor_;
    descriptor_ = -1;
    return d < 0 || ::close(d) == 0;
  }
  // linkat() does not replace what is there.
  bool find_name() {
    constexpr int kTries = 100;
    const std::string open = fmt::format("/proc/self/fd/{}", descriptor_);
    for (int i = 0; i < kTries; ++i) {
      const std::string name = (folder_ / fmt::format(".shardline-{}-{}", getpid(), i)).string();
      if (linkat(AT_FDCWD, open.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
        name_ = name;
        return true;
      }
      if (errno != EEXIST) return false;
    }
    return false;
  }

  std::filesystem::path folder_;
  std::string name_;  // empty: none
  int descriptor_ = -1;
};

// --json has taken standard output for its document: what else is asked for there would be lost, and nobody
// told.
void refuse_what_is_lost(const std::filesystem::path& file) {
  if (SilentOutput::any())
    throw UserError(fmt::format("cannot write {}: standard output has the document of --json; name a file",
                                file.string()));
}

// Where the bytes of an output file go.
struct Destination {
  std::filesystem::path file;    // to be replaced, at the end of all links
  bool written_through = false;  // a device or a pipe
  int stream = -1;               // the standard stream that is the same, or what is kept of it, or none
};

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// A link may lead to a file that does not exist yet, which canonical() refuses.
std::filesystem::path end_of_links(std::filesystem::path file) {
  constexpr int kMostLinks = 40;  // as the kernel's
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(file, error); ++i) {
    const auto target = std::filesystem::read_symlink(file, error);
    if (error) fail(file, error.value());
    file = file.parent_path() / target;  // an absolute target stands for itself
  }
  return file;
}

Destination destination_of(const std::filesystem::path& file) {
  Destination out{file};
  if (const auto kept = DocumentOutput::descriptor_of(file)) return {file, true, *kept};
  if (file == "-" || file == "/dev/stdout" || file == "/dev/fd/1" || file == "/proc/self/fd/1")
    refuse_what_is_lost(file);
  if (file == "-") return {file, true, STDOUT_FILENO};
  struct stat found {};
  if (stat(file.c_str(), &found) != 0) {
    if (errno != ENOENT) fail(file, errno);
    out.file = end_of_links(file);
    return out;
  }
  if (S_ISDIR(found.st_mode)) fail(file, EISDIR);
  // /dev/stdout may lead to a file that the shell has opened: replaced, it would lose all that is printed.
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat open {};
    if (fstat(stream, &open) == 0 && same_file(open, found)) out.stream = stream;
  }
  out.written_through = out.stream >= 0 || !S_ISREG(found.st_mode);
  if (!out.written_through) out.file = end_of_links(file);
  return out;
}

void refuse_interrupted(const std::filesystem::path& file, AfterInterrupt interrupt) {
  if (interrupt == AfterInterrupt::write) return;
  if (interrupted()) throw UserError(fmt::format("interrupted before {} was written", file.string()));
  check_cancelled();
}

// Of a pipe that nobody reads from, or not fast enough: whoever waits can be stopped, which a wait of the
// system's cannot.
constexpr int kLook = 20;  // ms

int open_to_write(const std::filesystem::path& file, AfterInterrupt interrupt) {
  for (;;) {
    const int descriptor = ::open(file.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor >= 0) return descriptor;
    struct stat found {};
    const int error = errno;
    const bool pipe = error == ENXIO && stat(file.c_str(), &found) == 0 && S_ISFIFO(found.st_mode);
    if (!pipe) fail(file, error);
    refuse_interrupted(file, interrupt);
    poll(nullptr, 0, kLook);
  }
}

// `printed`: to a standard stream, whose reader may go while other files of the command are still to be
// written.
void write_all(int descriptor, const std::filesystem::path& file, std::string_view text,
               AfterInterrupt interrupt, bool printed = false) {
  constexpr std::size_t kPiece = std::size_t{1} << 22;  // milliseconds
  while (!text.empty()) {
    refuse_interrupted(file, interrupt);
    const ssize_t n = ::write(descriptor, text.data(), std::min(text.size(), kPiece));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd wanted{descriptor, POLLOUT, 0};
      poll(&wanted, 1, kLook);
      continue;
    }
    if (n < 0 && printed && outlasted(errno)) return;
    if (n < 0) fail(file, errno);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void write_through(const Destination& to, const std::filesystem::path& file, std::string_view text,
                   AfterInterrupt interrupt) {
  if (to.stream >= 0) {
    if (to.stream <= STDERR_FILENO && std::fflush(to.stream == STDOUT_FILENO ? stdout : stderr) != 0)
      fail(file, errno);
    return write_all(to.stream, file, text, interrupt, true);
  }
  const int descriptor = open_to_write(file, interrupt);
  try {
    write_all(descriptor, file, text, interrupt);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  if (::close(descriptor) != 0) fail(file, errno);
}

// mkstemp makes private files; results are meant to be shared as any other file. One that is there keeps who
// may read it: to replace a private file must not publish it.
mode_t mode_of(const std::filesystem::path& file) {
  struct stat found {};
  if (stat(file.c_str(), &found) == 0) return found.st_mode & 0777;
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

// A folder lets one replace files that one may not write to: `>` of a shell does not, and nobody expects it
// here.
void require_writable(const std::filesystem::path& file, const std::filesystem::path& shown) {
  if (faccessat(AT_FDCWD, file.c_str(), W_OK, AT_EACCESS) != 0 && errno != ENOENT) fail(shown, errno);
}

// `shown`: the file's name in messages, and the one that it is to have, or leads to it.
void replace_file(const std::filesystem::path& file, const std::filesystem::path& shown,
                  std::string_view text, AfterInterrupt interrupt) {
  require_writable(file, shown);
  Temporary temporary(file, shown);
  write_all(temporary.descriptor(), shown, text, interrupt);
  if (fchmod(temporary.descriptor(), mode_of(shown)) != 0 || fsync(temporary.descriptor()) != 0)
    fail(shown, errno);
  const InOneStep step;
  if (!temporary.replace(file)) fail(shown, errno);
}

}  // namespace

void catch_interrupts(bool end_late) {
  g_ended_late = end_late;
  // Also where the parent ignores them: shells let a command in the background of a script ignore SIGINT
  // (POSIX, Shell Command Language, 2.11), and whoever ends that script does not mean to be left with the
  // command.
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  // Whoever has left the terminal is not to find half of what was written; `nohup` means that it goes on.
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  // A parent that ignores it would make a fault of a reader that goes.
  std::signal(SIGPIPE, SIG_DFL);
  // A file beyond `ulimit -f` is then a write that fails, told and tidied up after like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  // Who starts programs and does not want to hear how they ended hands that on: nobody would know whether
  // gnuplot has drawn a picture.
  std::signal(SIGCHLD, SIG_DFL);
}

bool interrupted() { return g_interrupted.load(std::memory_order_relaxed); }

int interrupt_signal() { return g_signal.load(std::memory_order_relaxed); }

InOneStep::InOneStep() { g_steps.fetch_add(1); }
InOneStep::~InOneStep() { g_steps.fetch_sub(1); }

void note_written(const std::filesystem::path& path) { g_written.push_back(path.string()); }

void note_resumable(bool resumable) { g_resumable = resumable; }

std::string resumable_text() {
  return g_resumable ? "what was done is kept; the same command goes on where it was\n" : "";
}

std::string interrupted_text(std::string_view program) {
  std::string kept;
  for (const std::string& path : g_written) kept += (kept.empty() ? "" : ", ") + path;
  return fmt::format("{}: interrupted; {}{}\n", program,
                     kept.empty() ? "nothing was written" : "kept whole: " + kept,
                     g_resumable ? "; the same command goes on where it was" : "");
}

void refuse_to_lose(const std::filesystem::path& file, std::string_view instead) {
  if (was_read(file))
    throw UserError(fmt::format("cannot write {}: this file is read; written, it would be lost; {}",
                                file.string(), instead));
}

void write_file(const std::filesystem::path& file, std::string_view text, AfterInterrupt interrupt,
                IfRead if_read) {
  const Destination to = destination_of(file);
  if (if_read == IfRead::refuse) refuse_to_lose(to.file, "name another");
  if (to.written_through) return write_through(to, file, text, interrupt);
  replace_file(to.file, file, text, interrupt);
  note_written(file);
}

void write_staged_file(const std::filesystem::path& stage, const std::filesystem::path& place,
                       const std::filesystem::path& name, std::string_view text) {
  std::error_code error;
  std::filesystem::create_directories((stage / name).parent_path(), error);
  if (error) fail(place / name, error.value());
  replace_file(stage / name, place / name, text, AfterInterrupt::refuse);
}

void make_folder_of(const std::filesystem::path& file) {
  const Destination to = destination_of(file);
  if (!to.written_through && to.file.has_parent_path()) make_output_folder(to.file.parent_path());
}

void require_place_of(const std::filesystem::path& file, MissingFolder missing) {
  if (file.empty()) return;
  const Destination to = destination_of(file);
  if (to.written_through) return;
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(to.file, error).parent_path();
  if (error) fail(file, error.value());  // the folder that this process stands in is gone
  if (missing == MissingFolder::is_refused && !std::filesystem::exists(folder, error)) fail(file, ENOENT);
  while (folder.has_relative_path() && !std::filesystem::exists(folder, error)) folder = folder.parent_path();
  if (!std::filesystem::is_directory(folder, error))
    throw UserError(fmt::format("cannot write {}: {} is not a folder", file.string(), folder.string()));
  if (access(folder.c_str(), W_OK | X_OK) != 0) fail(file, errno);
  require_writable(to.file, file);
}

void require_replaceable(const std::filesystem::path& file) { require_writable(file, file); }

void require_own(const std::filesystem::path& file, std::string_view option, std::string_view begins) {
  if (file.empty()) return;
  const Destination to = destination_of(file);
  std::error_code error;
  if (to.written_through || !std::filesystem::exists(to.file, error)) return;
  std::string first(begins.size(), '\0');
  std::ifstream in(to.file, std::ios::binary);
  in.read(first.data(), static_cast<std::streamsize>(first.size()));
  if (in.gcount() == 0 || first == begins) return;
  throw UserError(
      fmt::format("{} {}: this file is there, and {} did not write it; name another, or remove it", option,
                  file.string(), option));
}

void refuse_to_overwrite(std::string_view option, const std::filesystem::path& out,
                         const std::vector<std::string>& inputs) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(out, error)) return;
  const std::filesystem::path folder = out.has_parent_path() ? out.parent_path() : ".";
  for (const std::string& input : inputs) {
    const bool within =
        out.extension() == ".csv" && std::filesystem::equivalent(folder, input, error) && !error;
    const bool same = std::filesystem::equivalent(out, input, error) && !error;
    if (same || within)
      throw UserError(fmt::format("{} {}: this file is read; written, it would be lost; name another", option,
                                  out.string()));
  }
}

void make_output_folder(const std::filesystem::path& folder) {
  std::error_code error;
  if (std::filesystem::is_symlink(folder, error) && !std::filesystem::exists(folder, error))
    throw UserError(folder.string() + " is a symbolic link that leads nowhere");
  std::filesystem::create_directories(folder, error);
  if (error)
    throw UserError(fmt::format("cannot create the folder {}: {}", folder.string(), error.message()));
  if (!std::filesystem::is_directory(folder, error))
    throw UserError(folder.string() + " exists and is not a folder");
  if (access(folder.c_str(), W_OK | X_OK) != 0) fail(folder, errno);
}

}  // namespace shardline
