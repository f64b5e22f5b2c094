// Completions for bash, zsh and fish. Each script knows all options and what they take; names that are
// offered are those of the data when it was made.
#include <fmt/format.h>

#include <algorithm>

#include "reports/cli/command_text.hpp"
#include "sim/base/error.hpp"

namespace shardline::cli {

namespace {

// Within '...' of bash and zsh.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Within '...' of fish.
std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += (c == '\'' || c == '\\' ? std::string("\\") : "") + c;
  return out + "'";
}

// What zsh's _arguments and _describe read as its own, in the text of an option or command.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += (c == '[' || c == ']' || c == ':' || c == '\\' ? std::string("\\") : "") + c;
  return out;
}

std::vector<std::string> names_for(const ArgumentText& a) {
  std::vector<std::string> names = a.choices;
  if (a.offered != nullptr) {
    const auto offered = a.offered();
    names.insert(names.end(), offered.begin(), offered.end());
  }
  return names;
}

bool is_short(const std::string& name) { return name.size() == 2; }

std::string bash_offer(const ArgumentText& a) {
  std::string text = fmt::format("offer {}", quoted(fmt::format("{}", fmt::join(names_for(a), " "))));
  if (a.files == Files::files) text += "; offer_files -f";
  if (a.files == Files::folders) text += "; offer_files -d";
  return text;
}

std::string bash_options(const std::deque<ArgumentText>& arguments) {
  std::vector<std::string> names;
  for (const ArgumentText& a : arguments) {
    if (!a.positional()) names.insert(names.end(), a.names.begin(), a.names.end());
  }
  return fmt::format("{}", fmt::join(names, " "));
}

// The value after an option; else options after a minus, else what stands in the place of a positional
// argument.
std::string bash_command(const CommandText& c) {
  std::string values, places;
  for (const ArgumentText& a : c.arguments) {
    if (a.positional())
      places += bash_offer(a) + "; ";
    else if (!a.value.empty())
      values += fmt::format("        {}) {} ;;\n", fmt::join(a.names, "|"), bash_offer(a));
  }
  return fmt::format(
      "    {})\n      case \"$prev\" in\n{}        *) if [[ $cur == -* ]]; then offer {}; else {}:; fi ;;\n"
      "      esac ;;\n",
      c.name, values, quoted(bash_options(c.arguments)), places);
}

std::string bash(const ProgramText& program) {
  std::vector<std::string> names;
  std::string commands;
  for (const CommandText& c : program.commands) {
    names.push_back(c.name);
    commands += bash_command(c);
  }
  const std::string function = "_" + program.name;
  std::string text = fmt::format("# bash completion for {0} {1}; made by {0} --completion bash\n",
                                 program.name, program.version);
  text += function + "() {\n";
  text += R"(  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
  COMPREPLY=()
  # bash takes --option=value for three words.
  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
  offer() { local found; mapfile -t found < <(compgen -W "$1" -- "$cur"); COMPREPLY+=("${found[@]}"); }
  offer_files() {
    local found
    compopt -o filenames 2> /dev/null
    mapfile -t found < <(compgen "$1" -- "$cur")
    COMPREPLY+=("${found[@]}")
  }
)";
  text += fmt::format(
      "  if (( COMP_CWORD == 1 )); then\n    offer {}\n    unset -f offer offer_files\n    return\n  fi\n",
      quoted(fmt::format("{} {}", fmt::join(names, " "), bash_options(program.options))));
  text += "  case \"${COMP_WORDS[1]}\" in\n" + commands + "  esac\n  unset -f offer offer_files\n}\n";
  return text + fmt::format("complete -F {} {}\n", function, program.name);
}

std::string zsh_action(const ArgumentText& a) {
  const auto names = names_for(a);
  const std::string files = a.files == Files::files ? "_files" : a.files == Files::folders ? "_files -/" : "";
  if (names.empty()) return files.empty() ? " " : files;
  const std::string list = fmt::format("({})", fmt::join(names, " "));
  if (files.empty()) return list;
  return fmt::format("{{_alternative \"names:name:{}\" \"files:file:{}\"}}", list, files);
}

std::string zsh_argument(const ArgumentText& a, int place) {
  const std::string text = zsh_text(a.help);
  if (a.positional())
    return quoted(
        fmt::format("{}:{}:{}", a.repeated ? "*" : std::to_string(place), a.names.front(), zsh_action(a)));
  const std::string value = a.value.empty() ? "" : fmt::format(":{}:{}", a.value, zsh_action(a));
  if (a.names.size() == 1) return quoted(fmt::format("{}[{}]{}", a.names.front(), text, value));
  const std::string all = fmt::format("({})", fmt::join(a.names, " "));
  return quoted(all) + fmt::format("{{{}}}", fmt::join(a.names, ",")) +
         quoted(fmt::format("[{}]{}", text, value));
}

std::string zsh_arguments(const std::deque<ArgumentText>& arguments) {
  std::string out = "_arguments -s";
  int place = 0;
  for (const ArgumentText& a : arguments)
    out += " \\\n        " + zsh_argument(a, a.positional() ? ++place : 0);
  return out;
}

std::string zsh(const ProgramText& program) {
  std::string text =
      fmt::format("#compdef {0}\n# {0} {1}; made by {0} --completion zsh\n", program.name, program.version);
  text += fmt::format("_{}() {{\n  local -a commands=(\n", program.name);
  for (const CommandText& c : program.commands)
    text += "    " + quoted(zsh_text(c.name) + ":" + zsh_text(c.summary)) + "\n";
  text += "  )\n  if (( CURRENT == 2 )); then\n    if [[ $words[2] == -* ]]; then\n      ";
  text += zsh_arguments(program.options) +
          "\n    else\n      _describe -t commands command commands\n    fi\n    return\n  fi\n";
  text += "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n";
  for (const CommandText& c : program.commands)
    text += fmt::format("    {})\n      {} ;;\n", c.name, zsh_arguments(c.arguments));
  // Read by compinit the file is the function; read by a user it defines it.
  text += "  esac\n}\n";
  return text + fmt::format("if [[ $funcstack[1] == _{0} ]]; then _{0} \"$@\"; else compdef _{0} {0}; fi\n",
                            program.name);
}

std::string fish_line(const ProgramText& program, const std::string& condition, const ArgumentText& a) {
  std::string line = fmt::format("complete -c {} -n {}", program.name, quoted(condition));
  if (!a.positional()) {
    for (const std::string& name : a.names)
      line += is_short(name) ? " -s " + name.substr(1) : " -l " + name.substr(2);
    if (!a.value.empty()) line += a.files == Files::files ? " -r -F" : " -x";
    line += " -d " + fish_quoted(a.help);
  } else if (a.files == Files::files) {
    line += " -F";
  }
  const std::string names = fmt::format("{}", fmt::join(names_for(a), " "));
  const std::string folders = a.files == Files::folders ? "(__fish_complete_directories)" : "";
  if (!names.empty() || !folders.empty())
    line += " -a " + fish_quoted(names + (names.empty() || folders.empty() ? "" : " ") + folders);
  return line + "\n";
}

std::string fish(const ProgramText& program) {
  std::string text = fmt::format("# {0} {1}; made by {0} --completion fish\ncomplete -c {0} -f\n",
                                 program.name, program.version);
  for (const ArgumentText& a : program.options) text += fish_line(program, "__fish_use_subcommand", a);
  for (const CommandText& c : program.commands) {
    text += fmt::format("complete -c {} -n __fish_use_subcommand -a {} -d {}\n", program.name, c.name,
                        fish_quoted(c.summary));
    for (const ArgumentText& a : c.arguments)
      text += fish_line(program, "__fish_seen_subcommand_from " + c.name, a);
  }
  return text;
}

struct Shell {
  const char* name;
  std::string (*script)(const ProgramText& program);
};
constexpr Shell kShells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

}  // namespace

std::string completion(const ProgramText& program, const std::string& shell) {
  for (const Shell& s : kShells) {
    if (shell == s.name) return s.script(program);
  }
  throw UserError({Diagnostic{{}, "no completion for " + shell, expected_one_of(shell, completed_shells())}});
}

std::vector<std::string> completed_shells() {
  std::vector<std::string> names;
  for (const Shell& s : kShells) names.emplace_back(s.name);
  return names;
}

}  // namespace shardline::cli
