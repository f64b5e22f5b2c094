// Texts of users that become names of files and folders: a name from an input file must not lead out of the
// folder that the user chose for the output.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace shardline {

/// Why `name` cannot be the name of a file in a folder ("is ..", "holds a /"), to follow "name"; nothing if
/// it can. Refused are the empty name, "." and "..", separators, control characters (they would reach the
/// terminal, too), the beginning of what this program has not yet finished (".shardline-") and names above
/// 128 bytes, which leaves room for an ending in the 255 that file systems allow. Shows no byte of the name
/// that a terminal would obey.
std::optional<std::string> not_a_file_name(std::string_view name);

/// `text` as the name of one file in a folder. A name that not_a_file_name() accepts is unchanged; of others
/// the offending bytes become %XX, and a long text is cut and ends in a hash of all of it, so that two long
/// texts of one beginning stay apart.
std::string file_name_of(std::string_view text);

}  // namespace shardline
