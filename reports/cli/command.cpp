#include "reports/cli/command.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "reports/atomic_file.hpp"
#include "reports/standard_output.hpp"
#include "sim/base/error.hpp"

namespace shardline::cli {

namespace {

// CLI11's own message spells out the largest double.
const CLI::Validator kPositive(
    [](std::string& text) {
      double value = 0;
      const bool number = CLI::detail::lexical_cast(text, value);
      return number && value > 0 ? std::string{} : "expected a positive number, found " + text;
    },
    "POSITIVE");

// CLI11 says of a misspelt command only that a command is required.
void refuse_unknown_command(const Program& program, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const Command* c : program.commands) names.emplace_back(c->name);
  if (std::find(names.begin(), names.end(), argv[1]) != names.end()) return;
  throw UserError(
      {Diagnostic{{}, std::string("unknown command ") + argv[1], expected_one_of(argv[1], names)}});
}

int parse_and_run(const Program& program, int argc, char** argv) {
  CLI::App app{program.summary};
  app.set_version_flag("--version", fmt::format("{} {}", program.name, program.version));
  app.require_subcommand(1);
  app.footer(program.footer);
  std::vector<std::pair<const CLI::App*, Run>> commands;
  for (const Command* c : program.commands) {
    CLI::App* command = app.add_subcommand(c->name, c->summary);
    command->footer(fmt::format("Example:\n  {}", c->example));
    Arguments arguments(*command);
    commands.emplace_back(command, c->prepare(arguments));
  }
  refuse_unknown_command(program, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  catch_interrupts();
  Provenance made_by{program.name, program.version};
  for (int i = 1; i < argc; ++i) made_by.command += std::string(" ") + argv[i];
  for (const auto& [command, run] : commands) {
    if (command->parsed()) return run(made_by);
  }
  SL_CHECK(false, "a command was parsed, for one is required");
  return 1;
}

}  // namespace

Argument& Argument::required() {
  option_->required();
  return *this;
}

Argument& Argument::range(long long least, long long most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Argument& Argument::real_range(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Argument& Argument::positive() {
  option_->check(kPositive);
  return *this;
}

Argument& Argument::one_of(const std::vector<std::string>& names) {
  option_->check(CLI::IsMember(names));
  return *this;
}

template <class T>
Argument Arguments::add(const char* names, T& value, const char* help) {
  return Argument(*app_->add_option(names, value, help));
}

template Argument Arguments::add(const char*, std::string&, const char*);
template Argument Arguments::add(const char*, int&, const char*);
template Argument Arguments::add(const char*, double&, const char*);
template Argument Arguments::add(const char*, std::uint64_t&, const char*);  // std::size_t too
template Argument Arguments::add(const char*, std::optional<std::string>&, const char*);
template Argument Arguments::add(const char*, std::optional<double>&, const char*);
template Argument Arguments::add(const char*, std::optional<long long>&, const char*);
template Argument Arguments::add(const char*, std::vector<std::string>&, const char*);

void Arguments::flag(const char* names, bool& value, const char* help) { app_->add_flag(names, value, help); }

void Arguments::flag_off(const char* names, bool& value, const char* help) {
  app_->add_flag_callback(
      names, [&value] { value = false; }, help);
}

int run_program(const Program& program, int argc, char** argv) {
  reserve_standard_streams();
  int code = 1;
  try {
    code = parse_and_run(program, argc, argv);
  } catch (const UserError& e) {
    std::fputs(e.what(), stderr);
    code = 2;
  } catch (const std::exception& e) {
    if (!standard_output_failed()) fmt::print(stderr, "{}", program.fault_text(e.what()));
  }
  return after_output(program.name, code);
}

}  // namespace shardline::cli
