// A program whose commands are the rows of a table. A row says all of a command: its name, its help, what it
// declares and what it runs; the program only walks the table.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/cli/command_text.hpp"
#include "reports/cli/parse_faults.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace shardline::cli {

/// The JSON of a command's result, which --json asks for in place of all that the command prints.
class Document {
 public:
  /// Once, whatever the exit code is.
  void set(std::string text) { text_ = std::move(text); }
  const std::optional<std::string>& text() const { return text_; }

 private:
  std::optional<std::string> text_;
};

/// What made a result: the command line, quoted for the shell, and the version.
struct Provenance {
  std::string command, version;
  Document* document = nullptr;  // to be set where --json asks for it; else null
};

/// What may be said of an option or a positional argument when it is declared.
class Argument {
 public:
  Argument(CLI::Option& option, ArgumentText& text) : option_(&option), text_(&text) {}
  Argument& required();
  /// Whole numbers from `least` to `most`.
  Argument& range(long long least, long long most);
  /// Numbers from `least` to `most`.
  Argument& real_range(double least, double most);
  /// Any number above 0.
  Argument& positive();
  /// Of a list: one value each time it is named, so that what follows is an argument of its own.
  Argument& each();
  Argument& one_of(const std::vector<std::string>& names);
  /// What shells offer: the names of files or folders, and names that are known when completions are made.
  Argument& files();
  Argument& folders();
  /// A folder that the command writes: no other run may write to it meanwhile.
  Argument& output_folder();
  /// A file that the command writes. Where it is standard output, what else is printed goes to standard
  /// error.
  Argument& output_file();
  Argument& offers(std::vector<std::string> (*names)());

 private:
  CLI::Option* option_;
  ArgumentText* text_;
};

/// The arguments of one command, over CLI11, whose header is heavy: only command.cpp reads it.
class Arguments {
 public:
  /// What is declared is added to `text`, too.
  Arguments(CLI::App& app, CommandText& text) : app_(&app), text_(&text) {}

  /// `names`: "-o,--out", or "scenario" for a positional argument. `value` is its default, and what is parsed
  /// is written there; it must outlive the parsing. T: std::string, int, double, std::size_t or
  /// std::uint64_t; std::optional of std::string, double or long long; std::vector<std::string>.
  template <class T>
  Argument add(const char* names, T& value, const char* help);
  /// Turns `value` on, or off.
  void flag(const char* names, bool& value, const char* help);
  void flag_off(const char* names, bool& value, const char* help);

 private:
  ArgumentText& described(const char* names, const char* help);

  CLI::App* app_;
  CommandText* text_;
};

/// Runs a command with what was parsed; returns the exit code.
using Run = std::function<int(const Provenance& made_by)>;

/// One row of the table.
struct Command {
  const char* name;
  const char* summary;
  const char* example;  // one command line, after "Example:" in the help
  Run (*prepare)(Arguments& arguments);
};

/// What stands in a row as `prepare`: `declare` names the arguments of a command and `run` takes their
/// values, a struct V whose defaults are those of the command.
template <class V, void (*declare)(Arguments&, V&), int (*run)(const V&, const Provenance&)>
Run prepare(Arguments& arguments) {
  const auto values = std::make_shared<V>();
  declare(arguments, *values);
  return [values](const Provenance& made_by) { return run(*values, made_by); };
}

struct Program {
  const char* name;
  const char* version;
  const char* date;  // of the version, "2026-11-23"
  const char* summary;
  const char* example;  // one command line
  std::span<const Meaning> exit_codes, environment;
  std::span<const Command* const> commands;  // in the order of the help
  /// What is said of a fault that is not the user's.
  std::string (*fault_text)(const char* what);
  /// Where the data are that the program reads: --version says it.
  std::string (*data_text)();
  bool documents = false;  // whether every command has --json
  bool patient = false;    // after a signal it ends by itself, however long that takes: it keeps measurements
  /// Options as other tools call them, and their names here, perhaps with more after a space: said where one
  /// is not known and the command has the other. A meaning that begins with no hyphen is a sentence, said of
  /// every command, or of the one that stands before the option, "list --set". Underscores and capitals are
  /// taken for hyphens and small letters.
  std::span<const Meaning> other_names = {};
  Advice advice = nullptr;
};

/// Parses a command line, runs the command that it names and turns faults into exit codes: 1 for a bug, 2 for
/// bad input or lost output, 128 and its number after a signal (130: SIGINT, 143: SIGTERM, 129: SIGHUP), else
/// what the command returns. Not in the help, for packages: `--man-page [COMMAND]` and `--completion SHELL`
/// print what command_text.hpp makes of the table.
int run_program(const Program& program, int argc, char** argv);

}  // namespace shardline::cli
