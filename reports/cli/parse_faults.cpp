#include "reports/cli/parse_faults.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "sim/base/error.hpp"
#include "sim/base/shell_word.hpp"
#include "sim/base/units.hpp"

namespace shardline::cli {

namespace {

const CommandText* command_of(const ProgramText& text, std::span<const std::string> words) {
  const auto found = std::find_if(text.commands.begin(), text.commands.end(),
                                  [&](const CommandText& c) { return !words.empty() && c.name == words[0]; });
  return found == text.commands.end() ? nullptr : &*found;
}

const ArgumentText* argument_of(const CommandText& command, std::string_view name) {
  const auto found =
      std::find_if(command.arguments.begin(), command.arguments.end(), [&](const ArgumentText& a) {
        return std::find(a.names.begin(), a.names.end(), name) != a.names.end();
      });
  return found == command.arguments.end() ? nullptr : &*found;
}

// "--ttl" of "--ttl=20" and of "--ttl: 1 required TEXT missing".
std::string name_in(const std::string& said) { return said.substr(0, said.find_first_of(":= ")); }

std::vector<std::string> meaning_of(const std::string& shown, const ArgumentText& argument,
                                    const CommandText& command) {
  std::vector<std::string> details{
      fmt::format("{}: {}{}", shown, argument.help, argument.limits.empty() ? "" : "; " + argument.limits)};
  if (argument.offered != nullptr) {
    const std::vector<std::string> names = argument.offered();
    details.push_back(fmt::format("known: {}", fmt::join(names, ", ")));
  }
  details.push_back("for instance " + command.example);
  return details;
}

UserError missing_command(const ProgramText& text) {
  std::vector<std::string> names;
  for (const CommandText& c : text.commands) names.push_back(c.name);
  return UserError(
      {Diagnostic{{},
                  "a command is missing",
                  {fmt::format("expected one of: {}", fmt::join(names, ", ")), "for instance " + text.example,
                   text.name + " --help says what each is for"}}});
}

// A fault of an argument of the command: `what` follows its name.
Diagnostic diagnostic_of(const ProgramText& text, std::span<const std::string> words, const std::string& name,
                         const char* what, std::vector<std::string> details) {
  const CommandText* const command = command_of(text, words);
  const ArgumentText* const argument = command == nullptr ? nullptr : argument_of(*command, name);
  if (argument == nullptr) return {{}, name + what, {}};
  std::string shown = argument->positional() ? name : argument->names.back();
  if (argument->positional())
    std::transform(shown.begin(), shown.end(), shown.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  for (std::string& line : meaning_of(shown, *argument, *command)) details.push_back(std::move(line));
  return {{}, fmt::format("{} of {}{}", shown, command->name, what), std::move(details)};
}

UserError fault_of(const ProgramText& text, std::span<const std::string> words, const std::string& name,
                   const char* what, std::vector<std::string> details) {
  return UserError({diagnostic_of(text, words, name, what, std::move(details))});
}

// Of what was given without an option's name: it may be meant for another command.
std::vector<std::string> advice_on_words(const ProgramText& text, std::span<const std::string> words,
                                         Advice advice) {
  const CommandText* const command = command_of(text, words);
  std::vector<std::string> details;
  if (advice == nullptr || command == nullptr) return details;
  for (std::size_t i = 1; i < words.size() && !words[i].starts_with("-"); ++i) {
    for (std::string& line : advice(command->name, words[i], words)) details.push_back(std::move(line));
  }
  return details;
}

// All that is required of the command and was not given: CLI11 names the first of them. The example of the
// command stands behind the last.
UserError missing_arguments(const CLI::App& app, const std::string& first, const ProgramText& text,
                            std::span<const std::string> words, Advice advice) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands()) {
    for (const CLI::Option* o : command->get_options()) {
      if (o->get_required() && o->count() == 0) names.push_back(o->get_name());
    }
  }
  if (names.empty()) names.push_back(first);
  std::vector<Diagnostic> faults;
  for (const std::string& name : names) {
    faults.push_back(
        diagnostic_of(text, words, name, " is missing",
                      faults.empty() ? advice_on_words(text, words, advice) : std::vector<std::string>{}));
    if (faults.size() < names.size() && !faults.back().details.empty()) faults.back().details.pop_back();
  }
  return UserError(std::move(faults));
}

// Two names of commands: which of them is meant is not known.
std::vector<std::string> second_command(const ProgramText& text, std::span<const std::string> words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (command_of(text, words.subspan(i)) == nullptr) continue;
    return {fmt::format("{} and {} are both commands: name one, {} {} ...", words[0], words[i], text.name,
                        words[0])};
  }
  return {};
}

// A value with spaces leaves the words behind its first one as arguments of their own: of the first of them
// the whole value is said, up to the next option, of the others nothing.
std::optional<std::vector<std::string>> quoted_with_option(std::span<const std::string> words,
                                                           const std::string& word) {
  if (word.starts_with('-')) return std::nullopt;
  for (std::size_t option = 0; option + 2 < words.size(); ++option) {
    if (!words[option].starts_with("--") || words[option].find('=') != std::string::npos) continue;
    std::string value;
    std::size_t end = option + 1;
    for (; end < words.size() && !words[end].starts_with("-"); ++end)
      value += (value.empty() ? "" : " ") + words[end];
    const auto behind = words.subspan(option + 1, end - option - 1);
    if (behind.size() < 2) continue;
    if (word == behind[1])
      return {{fmt::format("if it belongs to {0}: a value with a space needs quotes, {0} {1}", words[option],
                           shell_word(value))}};
    if (std::find(behind.begin() + 2, behind.end(), word) != behind.end()) return std::vector<std::string>{};
  }
  return std::nullopt;
}

UserError unexpected(const CLI::App& app, const ProgramText& text, std::span<const std::string> words,
                     Advice advice) {
  const CommandText* const command = command_of(text, words);
  const std::string of = command == nullptr ? text.name : command->name;
  std::vector<Diagnostic> faults;
  for (const std::string& word : app.remaining(true)) {
    std::vector<std::string> details;
    if (advice != nullptr) details = advice(of, word, words);
    if (details.empty()) details = second_command(text, words);
    if (details.empty()) {
      if (auto quoted = quoted_with_option(words, word)) {
        details = std::move(*quoted);
        // Said with the first word of its value, which may stand in it again.
        if (!faults.empty() && (details.empty() || details == faults.back().details)) continue;
      }
    }
    if (command != nullptr && details.empty() && word.starts_with('-') && !word.starts_with("--"))
      details.push_back(fmt::format("{} {} --help lists its options", text.name, of));
    if (command != nullptr && details.empty()) details.push_back("for instance " + command->example);
    if (!faults.empty() && details == faults.back().details) faults.back().details.clear();  // said once
    faults.push_back({{}, fmt::format("unexpected argument {} of {}", word, of), std::move(details)});
  }
  return UserError(std::move(faults));
}

// What is meant by two of an option may be known; else its meaning is said.
UserError given_twice(const ProgramText& text, std::span<const std::string> words, const std::string& name,
                      Advice advice) {
  const CommandText* const command = command_of(text, words);
  constexpr const char* kTwice = " is given more than once";
  if (advice != nullptr && command != nullptr) {
    if (std::vector<std::string> details = advice(command->name, name, words); !details.empty())
      return UserError(
          {Diagnostic{{}, fmt::format("{} of {}{}", name, command->name, kTwice), std::move(details)}});
  }
  return fault_of(text, words, name, kTwice, {});
}

}  // namespace

namespace {

// CLI11 takes 010 for 8 and 0x10 for 16, as C does and nobody else.
std::optional<long long> decimal_of(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// CLI11 takes 0x1p3, inf and 1e400 too, by strtold; files and quantities do not.
std::optional<double> real_of(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

CLI::Validator whole_number(long long least, long long most) {
  return {[=](std::string& text) {
            const auto plain = decimal_of(text);
            const auto value = plain ? plain : count_of(text);
            const bool several = text.find_first_of(",;") != text.npos;
            if (!value || *value < least || *value > most)
              return fmt::format("expected a whole number from {} to {}, found {}{}", least, most, text,
                                 several ? ": one number, without separators" : "");
            text = std::to_string(*value);
            return std::string{};
          },
          fmt::format("INT in [{} - {}]", least, most)};
}

CLI::Validator number(double least, double most) {
  return {[=](std::string& text) {
            const auto value = real_of(text);
            return value && *value >= least && *value <= most
                       ? std::string{}
                       : fmt::format("expected a number from {} to {}, found {}", least, most, text);
          },
          fmt::format("FLOAT in [{} - {}]", least, most)};
}

CLI::Validator positive_number() {
  return {[](std::string& text) {
            const auto value = real_of(text);
            return value && *value > 0 ? std::string{} : "expected a positive number, found " + text;
          },
          "POSITIVE"};
}

CLI::Validator member(const std::vector<std::string>& names) {
  return {[=](std::string& text) {
            if (std::find(names.begin(), names.end(), text) != names.end()) return std::string{};
            return fmt::format("{} is not known\n{}", text, fmt::join(expected_one_of(text, names), "\n"));
          },
          fmt::format("{{{}}}", fmt::join(names, ","))};
}

void refuse_empty_words(std::span<const std::string> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool valueless = word.starts_with("--") && word.size() > 2 && word.find('=') + 1 == word.size();
    if (!word.empty() && !valueless) continue;
    const bool behind_option = word.empty() && i > 0 && words[i - 1].starts_with("-");
    throw UserError({Diagnostic{{},
                                valueless       ? word.substr(0, word.size() - 1) + ": its value is empty"
                                : behind_option ? words[i - 1] + ": its value is empty"
                                                : fmt::format("argument {} is empty", i + 1),
                                {"leave out what is not wanted"}}});
  }
}

void refuse(const CLI::App& app, const CLI::ParseError& fault, const ProgramText& text,
            std::span<const std::string> words, Advice advice) {
  const std::string said = fault.what();
  const auto kind = static_cast<CLI::ExitCodes>(fault.get_exit_code());  // names of some are the command's
  if (kind == CLI::ExitCodes::ExtrasError) throw unexpected(app, text, words, advice);
  if (kind == CLI::ExitCodes::RequiredError && command_of(text, words) == nullptr)
    throw missing_command(text);
  if (kind == CLI::ExitCodes::RequiredError) throw missing_arguments(app, name_in(said), text, words, advice);
  if (kind == CLI::ExitCodes::ArgumentMismatch && said.find("missing") != std::string::npos)
    throw fault_of(text, words, name_in(said), ": its value is missing", {});
  if (kind == CLI::ExitCodes::ArgumentMismatch && said.find("At Most 1 required") != std::string::npos)
    throw given_twice(text, words, name_in(said), advice);
  // A flag with a value: "Could not convert: --json = out.json".
  constexpr std::string_view kUnconverted = "Could not convert: ";
  if (said.starts_with(kUnconverted) && said.find(" = ") != std::string::npos) {
    const std::string name = name_in(said.substr(kUnconverted.size()));
    throw fault_of(text, words, name, " takes no value",
                   {name == "--json" ? "it prints the document, which the shell writes: --json > FILE"
                                     : "it is given or left out"});
  }
  std::vector<std::string> lines = CLI::detail::split(said, '\n');  // of member()
  const std::string first = lines.front();
  lines.erase(lines.begin());
  throw UserError({Diagnostic{{}, first, std::move(lines)}});
}

const CLI::Option& option_of(const CLI::App& command, const std::string& name) {
  const std::vector<const CLI::Option*> all = command.get_options();
  const bool is_long = name.starts_with("--");
  const std::string bare = name.substr(is_long ? 2 : 1);
  const auto at = std::find_if(all.begin(), all.end(), [&](const CLI::Option* o) {
    const std::vector<std::string>& names = is_long ? o->get_lnames() : o->get_snames();
    return std::find(names.begin(), names.end(), bare) != names.end();
  });
  SL_CHECK(at != all.end(), "a command has the options that its text names");
  return **at;
}

}  // namespace shardline::cli
