#include "sim/base/input_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr int kLook = 20;  // ms

[[noreturn]] void fail(const std::filesystem::path& file, int error) {
  throw UserError(fmt::format("cannot read {}: {}", file.string(),
                              error == ENOENT ? "no such file" : std::strerror(error)));
}

// In a folder, and not one that the shell or a test has made for two processes, which has a name in /proc
// alone.
bool is_named_pipe(int descriptor) {
  struct stat found {};
  struct statfs system {};
  return fstat(descriptor, &found) == 0 && S_ISFIFO(found.st_mode) && fstatfs(descriptor, &system) == 0 &&
         system.f_type != PIPEFS_MAGIC;
}

}  // namespace

// Without O_NONBLOCK to open a pipe waits for who writes to it (`man 7 fifo`).
InputFile::InputFile(const std::filesystem::path& file)
    : file_(file), descriptor_(open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)) {
  if (descriptor_ < 0) fail(file_, errno);
  waits_ = is_named_pipe(descriptor_);
}

InputFile::~InputFile() { close(descriptor_); }

std::size_t InputFile::read(char* to, std::size_t most) {
  for (;;) {
    check_cancelled();
    const ssize_t count = ::read(descriptor_, to, most);
    if (count > 0) {
      waits_ = false;
      return static_cast<std::size_t>(count);
    }
    if (count == 0 && !waits_) return 0;
    if (count < 0 && errno != EAGAIN && errno != EINTR) fail(file_, errno);
    pollfd wanted{descriptor_, POLLIN, 0};
    // A pipe that nobody has opened to write ends at once for read(), but not for poll(): there POLLHUP says
    // that somebody has written, or nothing at all, and is gone (Linux, fs/pipe.c, pipe_poll).
    if (poll(&wanted, 1, kLook) > 0 && count == 0 && (wanted.revents & (POLLIN | POLLHUP)) == POLLHUP)
      return 0;
  }
}

}  // namespace shardline
