// What a program prints is a result like any file: lost, it must not look like success.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace shardline {

/// Exit code of a program whose output could not be written, to a file or to standard output: that of bad
/// input, as the fault is in what the program was given and not in the program.
inline constexpr int kLostOutput = 2;

/// Call first in main. A standard stream that is closed is taken by the next file that is opened, which would
/// then receive what is printed; this gives the number to a descriptor that refuses. Why a write to standard
/// output failed is kept from then on, for after_output().
void reserve_standard_streams();

/// For work that writes files: who reads what is printed, and goes (`| head`), does not end it before they
/// are written. What is printed from then on is dropped, and after_output() ends as a closed pipe ends a
/// program.
void outlast_readers();
/// Whether this fault of a write to a standard stream is such a reader's, and no loss.
bool outlasted(int error);

/// While it lives, what is printed on standard output goes nowhere.
class SilentOutput {
 public:
  SilentOutput();
  ~SilentOutput();
  SilentOutput(const SilentOutput&) = delete;
  SilentOutput& operator=(const SilentOutput&) = delete;

  /// Whether one lives.
  static bool any();

 private:
  int kept_ = -1;  // where standard output goes else
};

/// While it lives, standard output is kept for one file, and what is printed goes to standard error: who
/// reads the one shall not find the other in it.
class DocumentOutput {
 public:
  /// Whether this name of an output file stands for standard output: "-", or a path that leads to what it
  /// goes to. Terminals and /dev/null are only meant by "-": there is nothing to be told apart.
  static bool is_standard(const std::filesystem::path& file);

  explicit DocumentOutput(std::filesystem::path file);
  ~DocumentOutput();
  DocumentOutput(const DocumentOutput&) = delete;
  DocumentOutput& operator=(const DocumentOutput&) = delete;

  /// Where the bytes of that file go while one lives for it.
  static std::optional<int> descriptor_of(const std::filesystem::path& file);

 private:
  std::filesystem::path file_;
  int kept_ = -1;  // where standard output goes else
};

/// True once something printed to standard output was lost. What is printed with fmt then throws, too: main
/// tells that exception from a fault of ours by this.
bool standard_output_failed();

/// Writes to standard error and never throws: what fmt prints there does, where it is lost.
void say(std::string_view text);
bool standard_error_failed();

/// Call last in main: empties the buffer of standard output. Returns `code`, or kLostOutput with a message to
/// standard error if any of what was printed was lost; kLostOutput, too, where warnings of a success were.
/// Where a reader was outlasted and the work is done, SIGPIPE ends the process.
int after_output(std::string_view program, int code);

}  // namespace shardline
