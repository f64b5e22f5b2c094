// Internal to yaml_builder.hpp: folded blocks of plain integers, which are most of a calibration, read
// without yaml-cpp's lexer, whose time goes with every byte.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "sim/base/cancel.hpp"

namespace shardline::detail {

/// A text in which lines of folded blocks were left empty, so that all else keeps its line and column, and
/// what the blocks say.
struct FoldedBlocks {
  struct Block {
    std::string_view lines;  // of the text that was given, from the first one's indentation on
    std::size_t indent = 0;  // of each
    bool taken = false;
  };
  std::string rest;
  std::unordered_map<int, Block> at;  // by the line of the key, from 0

  /// Whether the parser met all of them where they were thought to be: else what looked like one was part of
  /// a longer text, and nothing that came of `rest` counts.
  bool all_taken() const {
    return std::all_of(at.begin(), at.end(), [](const auto& b) { return b.second.taken; });
  }

  /// The value of a block: its lines, folded.
  static std::string value(const Block& block) {
    std::string out;
    out.reserve(block.lines.size());
    for (std::size_t i = 0; i < block.lines.size();) {
      const std::size_t end = std::min(block.lines.find('\n', i), block.lines.size());
      if (!out.empty()) out += ' ';
      out += block.lines.substr(i + block.indent, end - i - block.indent);
      i = end + 1;
    }
    return out;
  }
};

/// Blocks `key: >-` all of whose lines are equally indented, deeper than the key, and hold nothing but
/// integers and single blanks; after them comes a line that is no deeper than the key, or the end.
inline FoldedBlocks cut_folded_blocks(std::string_view text) {
  constexpr std::string_view kMark = ": >-";
  FoldedBlocks out;
  std::size_t copied = 0;
  int line = 0;
  const auto end_of = [&](std::size_t i) { return std::min(text.find('\n', i), text.size()); };
  const auto indent_of = [&](std::size_t i) {
    return std::min(text.find_first_not_of(' ', i), text.size()) - i;
  };
  const auto integers = [&](std::size_t from, std::size_t to) {
    return from < to && text[to - 1] != ' ' &&
           std::all_of(text.begin() + static_cast<std::ptrdiff_t>(from),
                       text.begin() + static_cast<std::ptrdiff_t>(to),
                       [](char c) { return (c >= '0' && c <= '9') || c == '-' || c == ' '; });
  };
  const auto is_key = [](std::string_view s) {
    return !s.empty() &&
           std::all_of(s.begin(), s.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
  };
  CancelCheck check;
  for (std::size_t i = 0; i < text.size();) {
    check();
    const std::size_t end = end_of(i);
    const std::string_view own = text.substr(i, end - i);
    const int key_line = line++;
    const std::size_t key_indent = indent_of(i);
    i = end + 1;
    if (!own.ends_with(kMark) || !is_key(own.substr(key_indent, own.size() - key_indent - kMark.size())) ||
        i >= text.size())
      continue;
    const std::size_t first = i, indent = indent_of(i);
    if (indent <= key_indent) continue;
    int lines = 0;
    for (; i < text.size() && indent_of(i) == indent && integers(i + indent, end_of(i)); i = end_of(i) + 1)
      ++lines;
    const std::size_t after = std::min(text.find_first_not_of('\n', i), text.size());
    line += lines;
    if (lines == 0 || (after < text.size() && (after != i || indent_of(i) > key_indent))) continue;
    out.at[key_line] = {text.substr(first, i - 1 - first), indent, false};
    out.rest.append(text.substr(copied, first - copied));
    out.rest.append(static_cast<std::size_t>(lines), '\n');
    copied = std::min(i, text.size());
  }
  if (!out.at.empty()) out.rest.append(text.substr(copied));
  return out;
}

}  // namespace shardline::detail
