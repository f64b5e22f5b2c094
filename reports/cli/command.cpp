#include "reports/cli/command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <new>
#include <sstream>
#include <string_view>
#include <variant>

#include "reports/atomic_file.hpp"
#include "reports/cli/ask_gaps.hpp"
#include "reports/cli/output_claims.hpp"
#include "reports/cli/stack_limit.hpp"
#include "reports/cli/unknown_names.hpp"
#include "reports/standard_output.hpp"
#include "reports/terminal.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/folder.hpp"
#include "sim/base/harmless.hpp"
#include "sim/base/memory_limit.hpp"
#include "sim/base/parallel.hpp"
#include "sim/base/read_text.hpp"
#include "sim/base/shell_word.hpp"
#include "sim/base/units.hpp"

namespace shardline::cli {

namespace {

// What is given on the command line is shown, in tables, pages and recorded commands: characters that a
// terminal obeys are refused once for all of them.
void refuse_harmful_words(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (harmless(argv[i]) == argv[i]) continue;
    throw UserError(fmt::format(
        "argument {}, {}: control characters, marks of text direction and bytes that are no UTF-8 "
        "are not accepted",
        i, argv[i]));
  }
}

// `--ttl 20 ms` without quotes leaves "ms" as an argument of its own.
void refuse_unquoted_units(int argc, char** argv) {
  constexpr std::array<std::string_view, 9> kUnits{"ns",    "us",     "ms", "s", "min",
                                                   "token", "tokens", "GB", "TB"};
  for (int i = 2; i + 1 < argc; ++i) {
    const std::string_view flag = argv[i - 1], number = argv[i], unit = argv[i + 1];
    const bool given = number.find_first_not_of("0123456789.KMGki") == std::string_view::npos &&
                       number.find_first_of("0123456789") == 0;
    if (!flag.starts_with("--") || !given || std::find(kUnits.begin(), kUnits.end(), unit) == kUnits.end())
      continue;
    throw UserError(fmt::format("{} {} {}: a number and its unit are one argument: {} \"{} {}\", or {} {}{}",
                                flag, number, unit, flag, number, unit, flag, number, unit));
  }
}

std::string version_text(const Program& program) {
  return fmt::format("{} {}\ndata: {}", program.name, program.version, program.data_text());
}

std::string footer(const Program& program) {
  std::string text = fmt::format("Example:\n  {}\n\nExit codes:", program.example);
  for (const Meaning& m : program.exit_codes) text += fmt::format("\n  {} {}", m.name, m.meaning);
  return text;
}

// A reader may be slow, and documents have hundreds of megabytes: between pieces it is asked whether to stop.
void write_document(std::string_view text) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  for (; !text.empty(); text.remove_prefix(std::min(kPiece, text.size()))) {
    check_cancelled();
    std::fwrite(text.data(), 1, std::min(kPiece, text.size()), stdout);
  }
}

// With --json the document stands alone on standard output, whatever else a command prints.
int run_command(const Program& program, const Command& command, const Run& run, Provenance made_by,
                bool json) {
  if (!json) return run(made_by);
  Document document;
  made_by.document = &document;
  int code = 0;
  {
    const SilentOutput silent;
    code = run(made_by);
  }
  SL_CHECK(document.text().has_value(),
           fmt::format("{} {} answers --json with a document", program.name, command.name));
  write_document(*document.text());
  return code;
}

// The table, declared: what CLI11 parses with, what runs, and what manual pages and completions say.
struct Declared {
  CLI::App app;
  std::vector<Run> runs;  // of the commands, in the order of the table
  ProgramText text;
  bool json = false;
  std::string memory;  // empty: a part of the machine's
};

// --memory, before any work.
void limit_memory_to(const std::string& text) {
  constexpr double kPart = 0.8;
  if (text.empty()) {
    if (const Bytes all = machine_memory(); all > Bytes(0)) limit_memory(all * kPart, kPart);
    return;
  }
  const auto bytes = parse_quantity<Bytes>(text);
  if (const auto* fault = std::get_if<std::string>(&bytes))
    throw UserError({Diagnostic{{}, "--memory: " + *fault, {"for instance --memory \"16 GB\""}}});
  if (std::get<Bytes>(bytes) < Bytes(1e6))
    throw UserError("--memory: " + text + " is less than the program itself has: 1 MB at least");
  limit_memory(std::get<Bytes>(bytes));
}

void declare(const Program& program, Declared& to) {
  to.app.description(program.summary);
  to.app.name(program.name);  // and not what it was called by, which may hold anything
  to.app.set_version_flag("--version", [&program] { return version_text(program); });
  to.app.require_subcommand(1);
  to.app.footer(footer(program));
  const ArgumentText help{.names = {"-h", "--help"}, .value = "", .help = "Print this help message and exit"};
  to.text = {program.name,       program.version,     program.date, program.summary, program.example,
             program.exit_codes, program.environment, {},           {help}};
  to.text.options.push_back(
      {.names = {"--version"}, .help = "Print the version, and where the data are, and exit"});
  for (const Command* c : program.commands) {
    CLI::App* command = to.app.add_subcommand(c->name, c->summary);
    command->footer(fmt::format("Example:\n  {}", c->example));
    CommandText& text = to.text.commands.emplace_back(CommandText{c->name, c->summary, c->example, {help}});
    Arguments arguments(*command, text);
    to.runs.push_back(c->prepare(arguments));
    if (!program.documents) continue;
    arguments.flag("--json", to.json, "Print the result as one JSON document, and nothing else");
    arguments.add("--memory", to.memory,
                  "What a question may need, for instance \"16 GB\"; one that needs more is refused "
                  "(default: 80 % of the machine's)");
  }
}

std::string man_page_of(const ProgramText& program, const std::string& name) {
  std::vector<std::string> names{program.name};
  for (const CommandText& c : program.commands) {
    if (c.name == name) return man_page(program, &c);
    names.push_back(c.name);
  }
  if (name == program.name) return man_page(program, nullptr);
  throw UserError({Diagnostic{{}, "no manual page for " + name, expected_one_of(name, names)}});
}

// --man-page [COMMAND] and --completion SHELL: what packages install.
std::optional<std::string> generated(const ProgramText& program, int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--man-page" && argc <= 3) return man_page_of(program, argc == 3 ? argv[2] : program.name);
  if (first == "--completion" && argc <= 3) return completion(program, argc == 3 ? argv[2] : "");
  return std::nullopt;
}

// CLI11 writes what an option means behind 30 columns, on one line. Where less than as many are left it
// stands below the option.
std::string wrapped_help(const std::string& text, std::size_t width) {
  constexpr std::size_t kColumn = 30, kBelow = 4;
  const bool narrow = width < 2 * kColumn;
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const bool means = line.size() > kColumn && line.starts_with("  ") && line[kColumn - 1] == ' ';
    if (width == 0 || line.size() <= width || !means) {
      out += width == 0 || line.empty() ? line + "\n" : wrapped_lines(line, width);
      continue;
    }
    const std::size_t indent = narrow ? kBelow : kColumn,
                      option = line.find_last_not_of(' ', kColumn - 1) + 1;
    const std::string further = wrapped(line.substr(kColumn), width > indent ? width - indent : 1);
    if (narrow)
      out += option > 0 ? line.substr(0, option) + "\n" : "";
    else
      out += line.substr(0, kColumn);
    for (std::size_t at = 0, end = 0; (end = further.find('\n', at)) != std::string::npos; at = end + 1)
      out += (at > 0 || narrow ? std::string(indent, ' ') : "") + further.substr(at, end - at) + "\n";
  }
  return out;
}

int parse_and_run(const Program& program, int argc, char** argv) {
  Declared declared;
  declare(program, declared);
  if (const auto text = generated(declared.text, argc, argv)) {
    fmt::print("{}", *text);
    return 0;
  }
  refuse_harmful_words(argc, argv);
  refuse_empty_words(std::vector<std::string>(argv + 1, argv + argc));
  refuse_unknown_command(program, argc, argv);
  refuse_unknown_options(program, declared.text, argc, argv);
  refuse_unquoted_units(argc, argv);
  try {
    declared.app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::ostringstream help, faults;
    if (declared.app.exit(e, help, faults) != 0)
      refuse(declared.app, e, declared.text, std::vector<std::string>(argv + 1, argv + argc), program.advice);
    fmt::print("{}", wrapped_help(help.str(), output_width()));
    return 0;
  }
  need_stack();
  catch_interrupts(!program.patient);
  const AskGaps gaps(interrupted);
  const CancelScope scope(&gaps.question());
  const PipesKept pipes;
  limit_memory_to(declared.memory);
  Provenance made_by{program.name, program.version};
  for (int i = 1; i < argc; ++i) made_by.command += " " + shell_word(argv[i]);
  for (std::size_t i = 0; i < declared.runs.size(); ++i) {
    const Command& command = *program.commands[i];
    if (!declared.app.got_subcommand(command.name)) continue;
    const OutputClaims claims(*declared.app.get_subcommand(command.name), declared.text.commands[i],
                              declared.json);
    return run_command(program, command, declared.runs[i], made_by, declared.json);
  }
  SL_CHECK(false, "a command was parsed, for one is required");
  return 1;
}

int end_interrupted(const Program& program) {
  say(interrupted_text(program.name));
  return 128 + interrupt_signal();
}

// The exit code; what goes wrong is told.
int ended(const Program& program, int argc, char** argv) {
  int code = 1;
  try {
    code = parse_and_run(program, argc, argv);
  } catch (const Cancelled&) {
    code = end_interrupted(program);
  } catch (const UserError& e) {
    say(wrapped_messages(e.what(), error_width()) + resumable_text());
    code = interrupted() ? 128 + interrupt_signal() : 2;
  } catch (const std::bad_alloc&) {
    say(fmt::format("{}: out of memory: ask for less at once, or run it with more\n", program.name) +
        resumable_text());
    code = 2;
  } catch (const std::exception& e) {
    if (standard_error_failed())
      code = kLostOutput;
    else if (!standard_output_failed())
      say(program.fault_text(e.what()));
  }
  if (const std::size_t threads = fewer_threads(); threads > 0)
    say(fmt::format("note: the system makes no more threads; {} were used\n", threads));
  else if (const std::size_t most = threads_of_use(); most > 0)
    say(fmt::format("note: no more than {} threads are of use on {} core{}; so many were used\n", most,
                    bound_cores(), bound_cores() == 1 ? "" : "s"));
  return after_output(program.name, code);
}

}  // namespace

Argument& Argument::required() {
  option_->required();
  text_->required = true;
  return *this;
}

Argument& Argument::range(long long least, long long most) {
  option_->transform(whole_number(least, most));  // 1K is handed on as 1024
  text_->limits = fmt::format("from {} to {}", least, most);
  return *this;
}

Argument& Argument::real_range(double least, double most) {
  option_->check(number(least, most));
  text_->limits = fmt::format("from {} to {}", least, most);
  return *this;
}

Argument& Argument::positive() {
  option_->check(positive_number());
  text_->limits = "above 0";
  return *this;
}

Argument& Argument::one_of(const std::vector<std::string>& names) {
  option_->check(member(names));
  text_->choices = names;
  text_->limits = fmt::format("one of: {}", fmt::join(names, ", "));
  return *this;
}

Argument& Argument::each() {
  option_->allow_extra_args(false);
  return *this;
}

Argument& Argument::files() {
  text_->files = Files::files;
  return *this;
}

Argument& Argument::folders() {
  text_->files = Files::folders;
  return *this;
}

namespace {

std::string to_place(const std::string& path) { return without_detours(path).string(); }

}  // namespace

Argument& Argument::output_folder() {
  text_->output = true;
  option_->transform(to_place);
  return folders();
}

Argument& Argument::output_file() {
  text_->document = true;
  option_->transform(to_place);
  return files();
}

Argument& Argument::offers(std::vector<std::string> (*names)()) {
  text_->offered = names;
  return *this;
}

ArgumentText& Arguments::described(const char* names, const char* help) {
  return text_->arguments.emplace_back(ArgumentText{.names = CLI::detail::split(names, ','), .help = help});
}

template <class T>
Argument Arguments::add(const char* names, T& value, const char* help) {
  CLI::Option* const option = app_->add_option(names, value, help);
  ArgumentText& text = described(names, help);
  text.value = option->get_type_name();
  text.repeated = option->get_expected_max() > 1;
  return {*option, text};
}

template Argument Arguments::add(const char*, std::string&, const char*);
template Argument Arguments::add(const char*, int&, const char*);
template Argument Arguments::add(const char*, double&, const char*);
template Argument Arguments::add(const char*, std::uint64_t&, const char*);  // std::size_t too
template Argument Arguments::add(const char*, std::optional<std::string>&, const char*);
template Argument Arguments::add(const char*, std::optional<double>&, const char*);
template Argument Arguments::add(const char*, std::optional<long long>&, const char*);
template Argument Arguments::add(const char*, std::vector<std::string>&, const char*);

void Arguments::flag(const char* names, bool& value, const char* help) {
  app_->add_flag(names, value, help);
  described(names, help);
}

void Arguments::flag_off(const char* names, bool& value, const char* help) {
  app_->add_flag_callback(
      names, [&value] { value = false; }, help);
  described(names, help);
}

int run_program(const Program& program, int argc, char** argv) {
  reserve_standard_streams();
  try {
    return ended(program, argc, argv);
  } catch (const std::bad_alloc&) {  // of a message
    say("out of memory: ask for less at once, or run it with more\n");
    return 2;
  } catch (...) {
    return 1;
  }
}

}  // namespace shardline::cli
