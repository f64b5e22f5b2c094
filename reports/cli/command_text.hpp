// What is said of a command line: its manual pages and the completions of shells are made of it. Filled while
// the commands are declared (command.cpp), so that an option is in both as soon as it is there.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "sim/base/option_names.hpp"

namespace shardline::cli {

/// What a shell offers for a value, beside names.
enum class Files { none, files, folders };

struct ArgumentText {
  std::vector<std::string> names;  // "-o", "--out"; of a positional argument its one name
  std::string value = {};          // "TEXT", "INT", "FLOAT"; empty for a flag
  std::string help = {};
  std::string limits = {};  // "from 1 to 1024"; empty: none
  bool required = false;
  bool repeated = false;
  Files files = Files::none;
  bool output = false;                              // a folder that the command writes
  bool document = false;                            // a file that it writes
  std::vector<std::string> choices = {};            // no other value is taken
  std::vector<std::string> (*offered)() = nullptr;  // names that are known, among other values

  bool positional() const { return names.front().front() != '-'; }
};

struct CommandText {
  std::string name, summary, example;
  std::deque<ArgumentText> arguments;  // those that Argument refers to stay where they are
};

struct ProgramText {
  std::string name, version, date, summary, example;
  std::span<const Meaning> exit_codes, environment;
  std::vector<CommandText> commands;
  std::deque<ArgumentText> options;  // of the program, in place of a command
};

/// A manual page of section 1, in the macros of man(7). `command`: one of the program's, or null for the page
/// of the program, which names those of all commands.
std::string man_page(const ProgramText& program, const CommandText* command);

/// A completion script. `shell`: one of completed_shells(). Throws UserError.
std::string completion(const ProgramText& program, const std::string& shell);
std::vector<std::string> completed_shells();

}  // namespace shardline::cli
