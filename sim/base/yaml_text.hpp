// Internal to reader.cpp: a checked text with positions, ready for yaml-cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/read_text.hpp"

namespace shardline::detail {

constexpr std::size_t kMostBrackets = 10'000;
constexpr std::size_t kMostMarks = 2'000'000;  // brackets and commas

/// Zero-based line and byte, as yaml-cpp counts.
struct Place {
  int line = 0;
  int column = 0;
  int source = 0;  // 0: the document's own text; else a value that was set behind it, counted from 1
};

inline bool continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

/// Cut between characters, for messages.
inline std::string shortened(std::string_view text, std::size_t most = 60) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && continuation(text[most])) --most;
  return std::string(text.substr(0, most)) + "...";
}

/// Length of the UTF-8 character at the front of `text`, or 0 if it is none (overlong, surrogate, truncated).
inline std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (!continuation(text[i])) return 0;
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

class SourceText {
 public:
  /// Throws UserError for texts that no YAML file can be. Line ends become "\n"; a byte-order mark is
  /// dropped.
  SourceText(std::string name, std::string_view raw) : name_(std::move(name)) {
    if (raw.size() > kLargestDocument) {
      Diagnostic d;
      d.where.file = name_;
      d.what = fmt::format("a text of {} bytes; at most 16 MiB are read", raw.size());
      throw UserError({d});
    }
    if (raw.starts_with("\xef\xbb\xbf")) raw.remove_prefix(3);
    text_.reserve(raw.size());
    CancelCheck check;
    for (std::size_t i = 0; i < raw.size();) {
      check();
      const std::size_t end = std::min(raw.find('\r', i), raw.size());
      text_.append(raw.substr(i, end - i));
      if (end < raw.size() && (end + 1 == raw.size() || raw[end + 1] != '\n')) text_ += '\n';
      i = end + 1;
    }
    starts_.push_back(0);
    for (std::size_t i = text_.find('\n'); i != std::string::npos; i = text_.find('\n', i + 1)) {
      check();
      starts_.push_back(i + 1);
    }
    check_characters();
    check_brackets();
  }

  const std::string& name() const { return name_; }

  /// The text from `place` on.
  std::string_view at(Place place) const { return std::string_view(text_).substr(offset(place)); }

  std::string_view line(int number) const {
    const std::size_t i = row(number);
    const std::size_t end = i + 1 < starts_.size() ? starts_[i + 1] - 1 : text_.size();
    return std::string_view(text_).substr(starts_[i], end - starts_[i]);
  }

  Location location(Place place) const {
    constexpr std::size_t kReach = 1000;  // bytes kept either side of the column
    const std::string_view whole = line(place.line);
    const std::size_t start = starts_[row(place.line)];
    const std::size_t column = offset(place) - start;
    std::size_t first = column > kReach ? column - kReach : 0;
    std::size_t last = std::min(whole.size(), column + kReach);
    while (first > 0 && continuation(whole[first])) --first;
    while (last < whole.size() && continuation(whole[last])) ++last;
    const auto characters = [&](std::size_t bytes) {
      const std::string_view part = whole.substr(0, bytes);
      return static_cast<int>(
          std::count_if(part.begin(), part.end(), [](char c) { return !continuation(c); }));
    };
    Location out;
    out.file = name_;
    out.line = static_cast<int>(row(place.line)) + 1;
    out.column = characters(column) + 1;
    out.source_line = whole.substr(first, last - first);
    out.source_column = characters(first) + 1;
    out.source_cut = last < whole.size();
    return out;
  }

  /// For the parser: its marks fit Place.
  const std::string& text() const { return text_; }

  /// JSON, or YAML that is one flow collection: indentation means nothing there.
  bool flow() const {
    const std::size_t begin = text_.find_first_not_of(" \t\n");
    return begin != std::string::npos && (text_[begin] == '{' || text_[begin] == '[');
  }

  /// Just after the last character that is not blank.
  Place last_place() const {
    const std::size_t last = text_.find_last_not_of(" \t\n");
    return place(last == std::string::npos ? 0 : last + 1);
  }

  /// Of a byte of text().
  Place place(std::size_t offset_in_text) const {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), offset_in_text);
    const auto i = static_cast<std::size_t>(after - starts_.begin()) - 1;
    return {static_cast<int>(i), static_cast<int>(offset_in_text - starts_[i])};
  }

 private:
  std::size_t row(int number) const {
    return std::min(static_cast<std::size_t>(std::max(number, 0)), starts_.size() - 1);
  }
  std::size_t offset(Place p) const {
    return starts_[row(p.line)] +
           std::min(static_cast<std::size_t>(std::max(p.column, 0)), line(p.line).size());
  }

  [[noreturn]] void refuse(std::size_t offset_in_text, std::string what) const {
    throw UserError({Diagnostic{location(place(offset_in_text)), std::move(what), {}}});
  }

  // How many characters are so: in sums of a byte, of which compilers make many at a time, as most texts have
  // none of those that the checks below look for one by one.
  template <class Is>
  std::size_t count(Is is) const {
    constexpr std::size_t kMostOfAByte = 255;
    std::size_t all = 0;
    for (std::size_t from = 0; from < text_.size(); from += kMostOfAByte) {
      unsigned char some = 0;
      const std::size_t end = std::min(from + kMostOfAByte, text_.size());
      for (std::size_t i = from; i < end; ++i)
        some = static_cast<unsigned char>(some + (is(static_cast<unsigned char>(text_[i])) ? 1 : 0));
      all += some;
    }
    return all;
  }

  // yaml-cpp takes control characters and invalid UTF-8 as text, and guesses UTF-16 from NUL bytes.
  void check_characters() const {
    const std::size_t plain =
        count([](unsigned char c) { return (c >= 0x20 && c < 0x80) || c == '\t' || c == '\n'; });
    if (plain == text_.size()) return;
    for (std::size_t i = 0; i < text_.size();) {
      const auto c = static_cast<unsigned char>(text_[i]);
      if (c < 0x20 && c != '\t' && c != '\n')
        refuse(i, fmt::format("control character 0x{:02x} in the text", c));
      const std::size_t length = c < 0x80 ? 1 : utf8_length(std::string_view(text_).substr(i, 4));
      if (length == 0) refuse(i, fmt::format("byte 0x{:02x} is not UTF-8", c));
      i += length;
    }
  }

  // yaml-cpp tokenises an open flow collection to its end before its first event, so its size and depth are
  // bounded here roughly (quotes and comments count too) and exactly in the event handler.
  void check_brackets() const {
    const std::size_t open = count([](unsigned char c) { return c == '[' || c == '{'; });
    if (open <= kMostBrackets && open + count([](unsigned char c) { return c == ','; }) <= kMostMarks) return;
    std::size_t depth = 0;
    std::size_t marks = 0;
    for (std::size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if ((c == ']' || c == '}') && depth > 0) --depth;
      if (c != '[' && c != '{' && c != ',') continue;
      if (++marks > kMostMarks) refuse(i, fmt::format("more than {} brackets and commas", kMostMarks));
      if (c != ',' && ++depth > kMostBrackets)
        refuse(i, fmt::format("more than {} open brackets", kMostBrackets));
    }
  }

  std::string name_;
  std::string text_;
  std::vector<std::size_t> starts_;  // offset of each line
};

}  // namespace shardline::detail
