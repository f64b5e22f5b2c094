// Commands and options that there are not: what is meant by them.
#pragma once

#include "reports/cli/command.hpp"
#include "reports/cli/command_text.hpp"

namespace shardline::cli {

/// Throws UserError of a first word that is no command.
void refuse_unknown_command(const Program& program, int argc, char** argv);

/// Throws UserError of all options that the command has not.
void refuse_unknown_options(const Program& program, const ProgramText& text, int argc, char** argv);

}  // namespace shardline::cli
