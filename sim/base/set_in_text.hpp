// Settings of a command line written into a text, where Document::set() puts them into a tree.
#pragma once

#include <string>

namespace shardline {

/// `text`, a mapping whose keys each stand on a line of their own, with KEY=VALUE in place of what it says of
/// KEY or behind its last line: the document then reads as the first one does after Document::set(). The
/// setting has been read before, thus is sound.
std::string set_in_text(std::string text, const std::string& setting);

}  // namespace shardline
