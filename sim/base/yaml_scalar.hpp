// Texts as scalars of YAML that is written: what Reader::text() reads of them is the text, but for control
// characters, marks of direction and what is not UTF-8, which the reader refuses in any file.
#pragma once

#include <string>
#include <string_view>

namespace shardline {

/// Between double quotes: quotes, backslashes and control characters (ends of lines and tabs among them) by
/// their escapes (YAML 1.2, 5.7).
std::string yaml_quoted(std::string_view text);

/// A name or path as it is where Reader reads no more in it than its characters, else between quotes. (Other
/// readers take `true` or `no` for more; Reader does so where a flag is asked for alone.)
std::string yaml_word(std::string_view text);

}  // namespace shardline
