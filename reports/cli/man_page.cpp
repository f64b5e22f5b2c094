// Manual pages, in the macros of man(7).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "reports/cli/command_text.hpp"

namespace shardline::cli {

namespace {

// Text as roff prints it: a backslash begins an escape, a bare minus may become a hyphen, which no shell
// takes, and a point or apostrophe at the beginning of a line would name a macro.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string bold(const std::string& text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + roff(text) + "\\fR"; }

// A sentence begins in upper case and ends with a point.
std::string sentence(std::string text) {
  if (text.empty()) return text;
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  if (text.back() != '.') text += '.';
  return text;
}

std::string tagged(const std::string& tag, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", tag, roff(text));
}

std::string described(const ArgumentText& a) {
  std::string text = sentence(a.help);
  if (!a.limits.empty()) text += " " + sentence(a.limits);
  if (a.required) text += " Required.";
  return text;
}

std::string tag(const ArgumentText& a) {
  if (a.positional()) return italic(a.names.front()) + (a.repeated ? " ..." : "");
  std::string out;
  for (const std::string& name : a.names) out += (out.empty() ? "" : ", ") + bold(name);
  if (!a.value.empty()) out += " " + italic(a.value) + (a.repeated ? " ..." : "");
  return out;
}

std::string sections_of(const std::deque<ArgumentText>& arguments) {
  std::string positional, options;
  for (const ArgumentText& a : arguments)
    (a.positional() ? positional : options) += tagged(tag(a), described(a));
  return (positional.empty() ? "" : ".SH ARGUMENTS\n" + positional) +
         (options.empty() ? "" : ".SH OPTIONS\n" + options);
}

std::string synopsis(const ProgramText& program, const CommandText* command) {
  if (command == nullptr)
    return fmt::format("{} {} [{} ...]\n", bold(program.name), italic("command"), italic("argument"));
  std::string text = bold(program.name + " " + command->name);
  for (const ArgumentText& a : command->arguments) {
    if (!a.positional() && a.required) text += fmt::format(" {} {}", bold(a.names.back()), italic(a.value));
  }
  text += fmt::format(" [{} ...]", italic("option"));
  for (const ArgumentText& a : command->arguments) {
    if (a.positional()) text += a.required ? " " + tag(a) : " [" + tag(a) + "]";
  }
  return text + "\n";
}

std::string commands_section(const ProgramText& program) {
  std::string text = ".SH COMMANDS\n";
  for (const CommandText& c : program.commands) text += tagged(bold(c.name), sentence(c.summary));
  return text;
}

std::string see_also(const ProgramText& program, const CommandText* command) {
  std::vector<std::string> pages;
  if (command != nullptr) pages.push_back(program.name);
  for (const CommandText& c : program.commands) {
    if (&c != command) pages.push_back(program.name + "-" + c.name);
  }
  std::string text = ".SH SEE ALSO\n";
  for (std::size_t i = 0; i < pages.size(); ++i)
    text += fmt::format(".BR {} (1){}\n", roff(pages[i]), i + 1 < pages.size() ? "," : "");
  return text;
}

}  // namespace

std::string man_page(const ProgramText& program, const CommandText* command) {
  const std::string name = command == nullptr ? program.name : program.name + "-" + command->name;
  std::string title = name;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const std::string& summary = command == nullptr ? program.summary : command->summary;
  std::string text = fmt::format(".TH {} 1 {} \"{} {}\" \"User Commands\"\n", roff(title), program.date,
                                 program.name, program.version);
  text += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(summary.substr(0, summary.find('.'))));
  text += ".SH SYNOPSIS\n" + synopsis(program, command);
  text += ".SH DESCRIPTION\n" + roff(sentence(summary)) + "\n";
  text += command == nullptr ? commands_section(program) + sections_of(program.options)
                             : sections_of(command->arguments);
  text += fmt::format(".SH EXAMPLES\n.nf\n{}\n.fi\n",
                      roff(command == nullptr ? program.example : command->example));
  text += ".SH EXIT STATUS\n";
  for (const Meaning& m : program.exit_codes) text += tagged(bold(m.name), sentence(m.meaning));
  if (!program.environment.empty()) text += ".SH ENVIRONMENT\n";
  for (const Meaning& m : program.environment) text += tagged(bold(m.name), sentence(m.meaning));
  return text + see_also(program, command);
}

}  // namespace shardline::cli
