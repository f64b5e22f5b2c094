// Manual pages and completions of a made-up program, whose texts have all that roff and shells read as their
// own.
#include "reports/cli/command_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/base/error.hpp"

namespace shardline::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Meaning kExitCodes[] = {{"0", "fine"}};
constexpr Meaning kEnvironment[] = {{"MADE_UP", ".hidden beginning"}};

ProgramText made_up() {
  ProgramText p{
      "tool", "1.2.3", "2026-01-02", "Does things. And more.", "tool run 'a b'", kExitCodes, kEnvironment,
      {},     {}};
  p.options.push_back({.names = {"--version"}, .help = "print it"});
  CommandText& run = p.commands.emplace_back(CommandText{"run", "Runs [what]: it's given", "tool run x", {}});
  run.arguments.push_back({.names = {"file"},
                           .value = "TEXT",
                           .help = ".begins with a point",
                           .required = true,
                           .files = Files::files,
                           .offered = [] {
                             return std::vector<std::string>{"one", "two"};
                           }});
  run.arguments.push_back({.names = {"-o", "--out"},
                           .value = "TEXT",
                           .help = "A \\ and a user's [list]: x",
                           .files = Files::folders});
  run.arguments.push_back({.names = {"--kind"},
                           .value = "TEXT",
                           .help = "which",
                           .limits = "one of: a, b",
                           .required = true,
                           .choices = {"a", "b"}});
  run.arguments.push_back({.names = {"--loud"}, .help = "no value"});
  return p;
}

TEST(ManPage, OfACommand) {
  const ProgramText p = made_up();
  const std::string page = man_page(p, &p.commands[0]);
  EXPECT_EQ(page, R"(.TH TOOL\-RUN 1 2026-01-02 "tool 1.2.3" "User Commands"
.SH NAME
tool\-run \- Runs [what]: it's given
.SH SYNOPSIS
\fBtool run\fR \fB\-\-kind\fR \fITEXT\fR [\fIoption\fR ...] \fIfile\fR
.SH DESCRIPTION
Runs [what]: it's given.
.SH ARGUMENTS
.TP
\fIfile\fR
\&.begins with a point. Required.
.SH OPTIONS
.TP
\fB\-o\fR, \fB\-\-out\fR \fITEXT\fR
A \e and a user's [list]: x.
.TP
\fB\-\-kind\fR \fITEXT\fR
Which. One of: a, b. Required.
.TP
\fB\-\-loud\fR
No value.
.SH EXAMPLES
.nf
tool run x
.fi
.SH EXIT STATUS
.TP
\fB0\fR
Fine.
.SH ENVIRONMENT
.TP
\fBMADE_UP\fR
\&.hidden beginning.
.SH SEE ALSO
.BR tool (1)
)");
}

TEST(ManPage, OfTheProgramNamesItsCommands) {
  const std::string page = man_page(made_up(), nullptr);
  EXPECT_THAT(page, HasSubstr(".SH NAME\ntool \\- Does things\n"));
  EXPECT_THAT(page, HasSubstr(".SH COMMANDS\n.TP\n\\fBrun\\fR\nRuns [what]: it's given.\n"));
  EXPECT_THAT(page, HasSubstr("\n.BR tool\\-run (1)\n"));
}

TEST(Completion, BashOffersValuesInTheirPlace) {
  const std::string script = completion(made_up(), "bash");
  EXPECT_THAT(script, HasSubstr("-o|--out) offer ''; offer_files -d ;;"));
  EXPECT_THAT(script, HasSubstr("--kind) offer 'a b' ;;"));
  EXPECT_THAT(script, HasSubstr("offer 'one two'; offer_files -f"));
  EXPECT_THAT(script, HasSubstr("-o --out --kind --loud"));
  EXPECT_THAT(script, Not(HasSubstr("--loud)")));  // nothing follows it
}

TEST(Completion, ZshTextsAreEscaped) {
  const std::string script = completion(made_up(), "zsh");
  EXPECT_THAT(script, HasSubstr(R"('run:Runs \[what\]\: it'\''s given')"));
  EXPECT_THAT(script,
              HasSubstr(R"('(-o --out)'{-o,--out}'[A \\ and a user'\''s \[list\]\: x]:TEXT:_files -/')"));
  EXPECT_THAT(script, HasSubstr("'--kind[which]:TEXT:(a b)'"));
  EXPECT_THAT(script, HasSubstr("'--loud[no value]'"));
  // In braces, for else zsh hands _alternative options that it does not know.
  EXPECT_THAT(script, HasSubstr(R"x(:{_alternative "names:name:(one two)" "files:file:_files"}')x"));
}

TEST(Completion, FishTextsAreEscaped) {
  const std::string script = completion(made_up(), "fish");
  EXPECT_THAT(
      script,
      HasSubstr(R"(-s o -l out -x -d 'A \\ and a user\'s [list]: x' -a '(__fish_complete_directories)')"));
  EXPECT_THAT(script, HasSubstr("-l kind -x -d 'which' -a 'a b'"));
  EXPECT_THAT(script, HasSubstr("-l loud -d 'no value'"));
}

TEST(Completion, AnUnknownShellIsRefused) {
  try {
    completion(made_up(), "fisch");
    FAIL() << "no error";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("did you mean fish?"));
  }
}

}  // namespace
}  // namespace shardline::cli
