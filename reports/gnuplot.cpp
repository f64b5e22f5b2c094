// Runs gnuplot on the scripts of plot.cpp.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "reports/plot.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

// Removes itself; empty name when it could not be made.
class TemporaryFile {
 public:
  TemporaryFile() {
    std::error_code error;
    const auto folder = std::filesystem::temp_directory_path(error);
    if (error) return;
    name_ = (folder / "shardline-XXXXXX").string();
    const int descriptor = mkstemp(name_.data());
    if (descriptor < 0 || close(descriptor) != 0) name_.clear();
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!name_.empty()) unlink(name_.c_str());
  }
  const std::string& name() const { return name_; }
  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(name_, std::ios::binary).rdbuf();
    return std::move(out).str();
  }

 private:
  std::string name_;
};

// Waits a little. A picture takes a second where the machine is busy: whoever interrupts does not wait for
// it.
void end_if_cancelled(pid_t child) {
  try {
    check_cancelled();
  } catch (...) {
    kill(child, SIGKILL);
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw;
  }
  constexpr timespec kPause{0, 2'000'000};
  nanosleep(&kPause, nullptr);
}

// Nothing when gnuplot ended well, else the reason.
std::optional<std::string> run_gnuplot(const TemporaryFile& script, const TemporaryFile& log) {
  std::string program = "gnuplot", defaults = "--default-settings", file = script.name();
  const std::array<char*, 4> arguments{program.data(), defaults.data(), file.data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log.name().c_str(), O_WRONLY | O_TRUNC, 0);
  pid_t child = 0;
  const int error = posix_spawnp(&child, "gnuplot", &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error == ENOENT) return "gnuplot was not found in PATH; install the Debian package gnuplot-nox";
  if (error != 0) return fmt::format("gnuplot did not start: {}", std::strerror(error));
  int status = 0;
  for (pid_t ended = 0; ended == 0;) {
    ended = waitpid(child, &status, WNOHANG);
    if (ended < 0 && errno != EINTR)
      return fmt::format("waiting for gnuplot failed: {}", std::strerror(errno));
    if (ended == 0) end_if_cancelled(child);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  return "gnuplot failed: " + log.text();
}

template <class Picture>
Rendered render_picture(const Picture& picture, const std::string& terminal) {
  const TemporaryFile script, output, log;
  if (script.name().empty() || output.name().empty() || log.name().empty())
    return {{}, "no temporary file can be made; is TMPDIR writable?"};
  std::ofstream out(script.name(), std::ios::binary);
  out << gnuplot_script(picture, terminal, output.name());
  out.close();
  if (!out) return {{}, fmt::format("cannot write {}", script.name())};
  if (auto error = run_gnuplot(script, log)) return {{}, *error};
  Rendered rendered{output.text(), {}};
  if (rendered.bytes.empty()) rendered.error = "gnuplot drew nothing: " + log.text();
  return rendered;
}

}  // namespace

Rendered render(const Plot& plot, const std::string& terminal) { return render_picture(plot, terminal); }
Rendered render(const Gantt& gantt, const std::string& terminal) { return render_picture(gantt, terminal); }

}  // namespace shardline
