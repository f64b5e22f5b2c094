// Markdown as text for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shardline {

/// A document of headings, paragraphs, lists and tables, in at most `width` columns: paragraphs are wrapped
/// anew, tables are drawn as Table::text_within does. Everything else, blocks of code among it, stays as it
/// is. 0: the document.
std::string markdown_within(std::string_view text, std::size_t width);

}  // namespace shardline
