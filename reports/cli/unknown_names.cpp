#include "reports/cli/unknown_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/option_names.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline::cli {

namespace {

// Of an option in the place of a command CLI11 says that a command is missing, and nothing of the option.
void refuse_option_before_command(const Program& program, const std::string& word) {
  for (const char* own : {"-h", "--help", "--version"})
    if (word == own) return;
  throw UserError({Diagnostic{
      {},
      fmt::format("unknown option {} before a command", word.substr(0, word.find('='))),
      {fmt::format("{0} itself has --help and --version; options of a command stand behind it, for instance",
                   program.name),
       std::string("  ") + program.example}}});
}

}  // namespace

// CLI11 says of a misspelt command only that a command is required.
void refuse_unknown_command(const Program& program, int argc, char** argv) {
  if (argc < 2) return;
  if (argv[1][0] == '-') return refuse_option_before_command(program, argv[1]);
  std::vector<std::string> names;
  for (const Command* c : program.commands) names.emplace_back(c->name);
  if (std::find(names.begin(), names.end(), argv[1]) != names.end()) return;
  std::vector<std::string> details = expected_one_of(argv[1], names);
  if (program.advice != nullptr) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    for (std::string& line : program.advice("", argv[1], words)) details.push_back(std::move(line));
  }
  throw UserError({Diagnostic{{}, std::string("unknown command ") + argv[1], std::move(details)}});
}

namespace {

// What is known of an option that the command has not.
std::optional<std::string> meant_by(const Program& program, const CommandText& command,
                                    const std::vector<std::string>& longer, const std::string& name) {
  if (auto own = name_here(program.other_names, longer, command.name + " " + name)) return own;
  return name_here(program.other_names, longer, name);
}

// Of an option of one letter: the value of -o=x is no "=x".
std::optional<Diagnostic> fault_of_letter(const CommandText& command, const ArgumentText& letter,
                                          const std::string& name, const std::string& value) {
  if (letter.value.empty())
    return Diagnostic{
        {}, fmt::format("{} of {} takes no value", name, command.name), {"it is given or left out"}};
  return Diagnostic{{},
                    fmt::format("between {} of {} and its value is a space, not =", name, command.name),
                    {fmt::format("write {} {}", name, shell_word(value))}};
}

// What is wrong with `word`, which begins with one hyphen: -out is --out and not -o with the value "ut".
// Nothing: letters of options and what follows them, which CLI11 knows.
std::optional<Diagnostic> fault_of_one_hyphen(const Program& program, const CommandText& command,
                                              const std::string& word,
                                              const std::vector<std::string>& longer) {
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(0, equals), meant = "-" + name;
  for (const ArgumentText& a : command.arguments) {
    if (std::find(a.names.begin(), a.names.end(), name) == a.names.end()) continue;
    if (equals == std::string::npos) return std::nullopt;
    return fault_of_letter(command, a, name, word.substr(equals + 1));
  }
  const std::string unknown = fmt::format("unknown option {} of {}", name, command.name);
  if (std::find(longer.begin(), longer.end(), meant) != longer.end())
    return Diagnostic{{}, unknown, {"its name has two dashes: " + meant}};
  if (name.size() > 2) {
    if (const auto other = meant_by(program, command, longer, meant))
      return Diagnostic{{}, unknown, {*other}};
  }
  const auto begins = [&](const std::string& n) { return meant.starts_with(n); };  // -outdir, -output
  if (std::none_of(longer.begin(), longer.end(), begins)) return std::nullopt;
  return Diagnostic{{}, unknown, expected_one_of(meant, longer)};
}

}  // namespace

// CLI11 lists what is too much, without the nearest name, and only where nothing is missing.
void refuse_unknown_options(const Program& program, const ProgramText& text, int argc, char** argv) {
  const auto command = std::find_if(text.commands.begin(), text.commands.end(),
                                    [&](const CommandText& c) { return argc > 1 && c.name == argv[1]; });
  if (command == text.commands.end()) return;
  std::vector<std::string> names, shorter;
  for (const ArgumentText& a : command->arguments) {
    for (const std::string& name : a.names) (name.starts_with("--") ? names : shorter).push_back(name);
  }
  std::vector<Diagnostic> faults;
  for (int i = 2; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string word = argv[i], name = word.substr(0, word.find('='));
    if (word.starts_with("-") && !word.starts_with("--")) {
      if (auto fault = fault_of_one_hyphen(program, *command, word, names)) {
        faults.push_back(std::move(*fault));
        continue;
      }
    }
    if (!name.starts_with("-") || std::find(names.begin(), names.end(), name) != names.end() ||
        std::find(shorter.begin(), shorter.end(), name) != shorter.end())
      continue;
    const std::optional<std::string> other = meant_by(program, *command, names, name);
    if (!other && !name.starts_with("--")) continue;  // CLI11 knows several letters behind one hyphen
    faults.push_back({{},
                      fmt::format("unknown option {} of {}", name, command->name),
                      other ? std::vector<std::string>{*other} : expected_one_of(name, names)});
  }
  // Options of another command, beside an argument that is one of its own.
  if (!faults.empty() && program.advice != nullptr && argv[2][0] != '-') {
    const std::vector<std::string> words(argv + 1, argv + argc);
    for (std::string& line : program.advice(command->name, argv[2], words))
      faults.back().details.push_back(std::move(line));
  }
  if (!faults.empty()) throw UserError(std::move(faults));
}

}  // namespace shardline::cli
