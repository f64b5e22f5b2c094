#include "reports/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void on_signal(int number) {
  g_interrupted = 1;
  std::signal(number, SIG_DFL);
}

[[noreturn]] void fail(const std::filesystem::path& file, int error) {
  throw UserError(fmt::format("cannot write {}: {}", file.string(), std::strerror(error)));
}

// A descriptor and its temporary file; both go unless keep() is called.
class Temporary {
 public:
  explicit Temporary(const std::filesystem::path& file) : name_(file.string() + ".XXXXXX") {
    descriptor_ = mkstemp(name_.data());
    if (descriptor_ < 0) fail(file, errno);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    close();
    if (!kept_) unlink(name_.c_str());
  }
  int descriptor() const { return descriptor_; }
  const std::string& name() const { return name_; }
  bool close() {
    const int d = descriptor_;
    descriptor_ = -1;
    return d < 0 || ::close(d) == 0;
  }
  void keep() { kept_ = true; }

 private:
  std::string name_;
  int descriptor_ = -1;
  bool kept_ = false;
};

}  // namespace

void catch_interrupts() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

bool interrupted() { return g_interrupted != 0; }

void write_file(const std::filesystem::path& file, std::string_view text) {
  Temporary temporary(file);
  while (!text.empty()) {
    if (interrupted()) throw UserError(fmt::format("interrupted before {} was written", file.string()));
    const ssize_t n = ::write(temporary.descriptor(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(file, errno);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  // mkstemp makes private files; results are meant to be shared as any other file.
  const mode_t mask = umask(0);
  umask(mask);
  if (fchmod(temporary.descriptor(), 0666 & ~mask) != 0 || fsync(temporary.descriptor()) != 0)
    fail(file, errno);
  if (!temporary.close()) fail(file, errno);
  if (std::rename(temporary.name().c_str(), file.c_str()) != 0) fail(file, errno);
  temporary.keep();
}

void make_output_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw UserError(fmt::format("cannot create the folder {}: {}", folder.string(), error.message()));
  if (!std::filesystem::is_directory(folder))
    throw UserError(folder.string() + " exists and is not a folder");
  if (access(folder.c_str(), W_OK | X_OK) != 0) fail(folder, errno);
}

}  // namespace shardline
