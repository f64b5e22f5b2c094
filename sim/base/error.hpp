// User errors are located and complete; internal errors say which condition failed. Infeasible plans are
// results, not errors, and do not pass through here.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

/// Where in which text: one-based line and column; line 0 when the fault has no place in a text.
struct Location {
  std::string file;
  int line = 0;
  int column = 0;
  std::string source_line;  // the line, for the caret; of a very long line only the part around the column
  int source_column = 1;    // column at which source_line begins
  bool source_cut = false;  // the line goes on after source_line
  // Of what is at fault: the path of a key ("workload.input", "gpus[2]"; of a missing one its own), the
  // column of a table, the key of a plan's text; empty: of none, as where a text is no YAML at all.
  std::string key = {};
};

/// One fault of the user's input.
struct Diagnostic {
  Location where;
  std::string what;                  // "unknown key plan.kv_paralel"
  std::vector<std::string> details;  // further lines: "expected one of: ...", "did you mean kv_parallel?"
};

/// file:line:column: what, source line, caret, details; each line ends with a newline. Words of more than
/// 1,000 bytes and lines of more than 4,000 lose their middle, and say how much of it.
std::string to_string(const Diagnostic& diagnostic);

/// Bad input (exit code 2). Carries every fault found, not only the first.
class UserError : public std::runtime_error {
 public:
  explicit UserError(std::vector<Diagnostic> diagnostics);
  explicit UserError(std::string message);
  std::span<const Diagnostic> diagnostics() const { return diagnostics_; }

 private:
  std::vector<Diagnostic> diagnostics_;
};

/// The one of `names` that has all parts of `name` between signs and fewest others (llama-3.1-70b of
/// llama3-70b), else the nearest within a third of its length in edits (transpositions count one), or empty.
std::string nearest_name(std::string_view name, std::span<const std::string> names);

/// The name of the list that `found` is, or is but for capitals; nothing: neither.
std::optional<std::string> name_in_any_case(std::string_view found, std::span<const std::string> names);

/// "expected one of: a, b, c" and, where a name is near, "did you mean b?".
std::vector<std::string> expected_one_of(std::string_view found, std::span<const std::string> names);

/// Throws std::logic_error (exit code 1) naming the place, the message and the condition.
[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);

}  // namespace shardline

/// An internal invariant; failing is our bug (exit code 1). The message states the condition being checked.
#define SL_CHECK(condition, message)                                                        \
  do {                                                                                      \
    if (!(condition)) ::shardline::check_failed(#condition, __FILE__, __LINE__, (message)); \
  } while (false)
