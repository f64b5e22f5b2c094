// What standard output is, as far as text depends on it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shardline {

/// Columns that text should take: $COLUMNS where it is a number, else those of the terminal; 0 where standard
/// output is no terminal and nobody says.
std::size_t output_width();

/// The same of standard error.
std::size_t error_width();

/// Whether standard output shows colours: it is a terminal, not a dumb one, and $NO_COLOR is empty
/// (no-color.org).
bool output_colours();

/// Of the longest line.
std::size_t columns_of_lines(std::string_view text);

/// Whether $TERM says that the terminal knows no escape sequences: "dumb", as of editors' shells.
bool dumb_terminal();

enum class Emphasis : unsigned char { strong, good, bad };
/// The text in bold, green or red; as it is where `colours` is false.
std::string emphasised(std::string_view text, Emphasis how, bool colours);

/// The text in lines of at most `width` columns, broken at blanks (but not before "%"), each but the first
/// behind `indent`, each with its line's end. 0: one line.
std::string wrapped(std::string_view text, std::size_t width, std::string_view indent = "");

/// Messages of several lines: those longer than `width` are wrapped behind two blanks; lines that begin with
/// a blank (a source line and its caret) stay as they are. 0: nothing is wrapped, so that programs that read
/// file:line:column find one line per message.
std::string wrapped_messages(std::string_view text, std::size_t width);

/// Lines of notes: those wider than `width` are wrapped behind two blanks more than they begin with. 0:
/// nothing is wrapped.
std::string wrapped_lines(std::string_view text, std::size_t width);

/// A command over lines of at most `width` columns, continued by " \", each behind two more blanks than
/// `indent`; quoted words are not broken, and options stay with their values.
std::string wrapped_command(const std::string& command, std::size_t width, std::string_view indent);

}  // namespace shardline
