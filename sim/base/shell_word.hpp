// Texts as words of a shell's command line.
#pragma once

#include <string>
#include <string_view>

namespace shardline {

/// As one word: quoted where a shell would read more in it than its characters.
std::string shell_word(std::string_view text);

/// The same of a file or a name that stands where options may: one that begins with a dash is none of these.
std::string shell_operand(std::string_view text);

/// As the message of "${NAME:?message}", of which a shell would run what stands in $() or
/// <(), and take quotes away.
std::string shell_message(std::string_view text);

}  // namespace shardline
