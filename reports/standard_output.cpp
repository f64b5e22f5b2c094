#include "reports/standard_output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// A standard stream of which nobody reads any more.
struct Outlasting {
  int descriptor;
  std::atomic<bool> unread = false;
  std::atomic<int> error = 0;  // the first of a write; C's streams keep only that there was one
};
Outlasting g_output{STDOUT_FILENO}, g_error{STDERR_FILENO};
bool g_is_ours = false;   // stdout is the stream that is made here
bool g_outlasts = false;  // from before the threads of a command

// All of it, or less and errno. What nobody reads counts as written: fmt throws where printing fails, and the
// files that a command was to write after that would be lost.
ssize_t write_while_read(void* cookie, const char* text, std::size_t size) {
  auto& stream = *static_cast<Outlasting*>(cookie);
  std::size_t done = 0;
  while (done < size && !stream.unread) {
    const ssize_t n = ::write(stream.descriptor, text + done, size - done);
    const int error = n < 0 ? errno : 0;
    if (error == EPIPE && g_outlasts) {
      stream.unread = true;
    } else if (error == EAGAIN) {  // a stream that does not wait, of a reader that is slow
      pollfd wanted{stream.descriptor, POLLOUT, 0};
      poll(&wanted, 1, -1);
    } else if (error != 0 && error != EINTR) {
      int none = 0;
      stream.error.compare_exchange_strong(none, error);
      errno = error;
      return static_cast<ssize_t>(done);
    }
    done += static_cast<std::size_t>(n < 0 ? 0 : n);
  }
  return static_cast<ssize_t>(size);
}

std::FILE* outlasting(Outlasting& stream, int buffering) {
  std::FILE* const made = fopencookie(
      &stream, "w", {.read = nullptr, .write = write_while_read, .seek = nullptr, .close = nullptr});
  if (made != nullptr) std::setvbuf(made, nullptr, buffering, BUFSIZ);
  return made;
}

}  // namespace

void reserve_standard_streams() {
  // open() takes the lowest free number. Reading is refused where programs write, and the other way round.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    if (open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) break;
  }
  // Without memory for it, a loss is told without its reason.
  if (std::FILE* const output = outlasting(g_output, isatty(STDOUT_FILENO) != 0 ? _IOLBF : _IOFBF);
      output != nullptr) {
    stdout = output;
    g_is_ours = true;
  }
}

void outlast_readers() {
  std::FILE* const error = outlasting(g_error, _IONBF);
  if (error == nullptr || !g_is_ours) return;  // no memory: they end it as before
  stderr = error;
  g_outlasts = true;
  std::signal(SIGPIPE, SIG_IGN);
}

bool outlasted(int error) {
  if (error != EPIPE || !g_outlasts) return false;
  g_output.unread = true;
  return true;
}

namespace {

// As if the reader's going had.
void end_unread() {
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
}

std::atomic<int> g_silent = 0;  // how many SilentOutput there are

// Too few files may be open.
[[noreturn]] void fail_to_keep(int error) {
  throw UserError(std::string("cannot keep standard output: ") + std::strerror(error));
}

}  // namespace

bool SilentOutput::any() { return g_silent.load() > 0; }

SilentOutput::SilentOutput() {
  std::fflush(stdout);
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  kept_ = nowhere < 0 ? -1 : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  const int error = errno;
  if (kept_ >= 0) dup2(nowhere, STDOUT_FILENO);
  if (nowhere >= 0) close(nowhere);
  if (kept_ < 0) fail_to_keep(error);
  ++g_silent;
}

SilentOutput::~SilentOutput() {
  --g_silent;
  std::fflush(stdout);
  dup2(kept_, STDOUT_FILENO);
  close(kept_);
}

namespace {

const DocumentOutput* g_document = nullptr;  // made before the threads of a command, gone after them

}  // namespace

bool DocumentOutput::is_standard(const std::filesystem::path& file) {
  if (file == "-") return true;
  struct stat named {
  }, open{};
  if (stat(file.c_str(), &named) != 0 || fstat(STDOUT_FILENO, &open) != 0) return false;
  return named.st_dev == open.st_dev && named.st_ino == open.st_ino && !S_ISCHR(open.st_mode);
}

DocumentOutput::DocumentOutput(std::filesystem::path file) : file_(std::move(file)) {
  SL_CHECK(g_document == nullptr, "standard output has one document");
  std::fflush(stdout);
  kept_ = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (kept_ < 0) fail_to_keep(errno);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  g_document = this;
}

DocumentOutput::~DocumentOutput() {
  g_document = nullptr;
  std::fflush(stdout);
  dup2(kept_, STDOUT_FILENO);
  close(kept_);
}

std::optional<int> DocumentOutput::descriptor_of(const std::filesystem::path& file) {
  if (g_document == nullptr || g_document->file_ != file) return std::nullopt;
  return g_document->kept_;
}

void say(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

bool standard_error_failed() { return std::fflush(stderr) != 0 || std::ferror(stderr) != 0; }

bool standard_output_failed() { return std::ferror(stdout) != 0; }

int after_output(std::string_view program, int code) {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int error = g_output.error != 0 ? g_output.error.load() : flushed ? 0 : errno;
  if (code == 0 && !standard_output_failed() && (g_output.unread || g_error.unread)) end_unread();
  if (flushed && !standard_output_failed()) return code == 0 && standard_error_failed() ? kLostOutput : code;
  say(fmt::format("{}: cannot write standard output{}\n", program,
                  error == 0 ? "" : std::string(": ") + std::strerror(error)));
  return kLostOutput;
}

}  // namespace shardline
