// Text of others, for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace shardline {

/// One line: control characters, bidirectional marks and what is no UTF-8 become '?', tabs a space.
std::string harmless(std::string_view text);
/// Whether that changes the text, tabs and ends of lines apart.
bool is_harmful(std::string_view text);
/// The same of several lines, whose ends stay.
std::string harmless_lines(std::string_view text);
/// JSON with the same characters as \uXXXX: the text that it means is as before.
std::string harmless_json(std::string_view json);

}  // namespace shardline
