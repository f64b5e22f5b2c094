// The files of reports/page, which the build puts into the program: a page needs nothing beside it.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace shardline {

struct PageFile {
  std::string_view name, text;
};

/// All of them, in the order of reports/CMakeLists.txt.
std::span<const PageFile> page_files();
/// The text of one, which must be there.
std::string_view page_file(std::string_view name);

/// `pattern` with each {{name}} replaced by what `text_of` says; what that puts in is left as it is.
template <class TextOf>
std::string filled(std::string_view pattern, TextOf text_of) {
  std::string out;
  for (std::size_t at = 0; at < pattern.size();) {
    const std::size_t begin = std::min(pattern.find("{{", at), pattern.size());
    out += pattern.substr(at, begin - at);
    if (begin == pattern.size()) break;
    const std::size_t end = pattern.find("}}", begin);
    out += text_of(pattern.substr(begin + 2, end - begin - 2));
    at = end + 2;
  }
  return out;
}

}  // namespace shardline
