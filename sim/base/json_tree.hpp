// Internal to reader.cpp: builds the located tree of a text that is strict JSON, many times faster than
// YAML's parser. What is anything else, or faulty, it leaves to that parser, which says so.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "sim/base/cancel.hpp"
#include "sim/base/yaml_tree.hpp"

namespace shardline::detail {

/// Whether strings may hold tabs as they are, which YAML allows and JSON does not.
enum class TabsInStrings : bool { refused, allowed };

class JsonBuilder {
 public:
  JsonBuilder(YamlText& text, TabsInStrings tabs) : text_(text), in_(text.source.text()), tabs_(tabs) {}

  /// Whether the whole text is JSON of one mapping or sequence; otherwise the tree is as before.
  bool build() {
    YamlNode* const root = value(0);
    skip();
    if (root != nullptr && at_ == in_.size() && (root->kind == Kind::map || root->kind == Kind::sequence)) {
      text_.root = root;
      return true;
    }
    text_.nodes.clear();
    text_.strings.clear();
    text_.memory.release();
    return false;
  }

 private:
  static constexpr std::size_t kDeepestJson = 64, kMostValues = 1'000'000;

  void skip() {
    for (; at_ < in_.size(); ++at_) {
      if (in_[at_] == '\n') {
        ++line_;
        line_start_ = at_ + 1;
      } else if (in_[at_] != ' ' && in_[at_] != '\t') {
        return;
      }
    }
  }
  Place place() const { return {line_, static_cast<int>(at_ - line_start_)}; }
  bool take(char c) {
    skip();
    if (at_ == in_.size() || in_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool in_line(char c) const { return c != '\n' && (c != '\t' || tabs_ == TabsInStrings::allowed); }

  /// The text behind an opening quote, on one line, its escapes replaced; nothing where one is none of
  /// JSON's.
  bool quoted(std::string_view& out) {
    const std::size_t begin = at_;
    const auto stops = [&](char c) { return c == '"' || c == '\\' || !in_line(c); };
    at_ = static_cast<std::size_t>(
        std::find_if(in_.begin() + static_cast<std::ptrdiff_t>(begin), in_.end(), stops) - in_.begin());
    if (at_ == in_.size() || !in_line(in_[at_])) return false;
    if (in_[at_] == '"') {
      out = std::string_view(in_).substr(begin, at_++ - begin);
      return true;
    }
    std::string plain(in_, begin, at_ - begin);
    while (at_ < in_.size() && in_[at_] != '"' && in_line(in_[at_])) {
      if (in_[at_] != '\\') {
        plain += in_[at_++];
        continue;
      }
      if (at_ + 1 < in_.size() && in_[at_ + 1] == 'u') {
        if (!code_point(plain)) return false;
        continue;
      }
      constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
      const auto which = at_ + 1 < in_.size() ? kFrom.find(in_[at_ + 1]) : std::string_view::npos;
      if (which == std::string_view::npos) return false;
      plain += kTo[which];
      at_ += 2;
    }
    if (at_ == in_.size() || in_[at_] != '"') return false;
    ++at_;
    out = text_.strings.emplace_back(std::move(plain));
    return true;
  }

  /// \uXXXX at at_, or two of them that make one character, as RFC 8259 has them; no halves.
  bool code_point(std::string& out) {
    const auto unit = [&](std::size_t at, unsigned& value) {
      if (at + 6 > in_.size() || in_[at] != '\\' || in_[at + 1] != 'u') return false;
      const auto [end, code] = std::from_chars(in_.data() + at + 2, in_.data() + at + 6, value, 16);
      return code == std::errc{} && end == in_.data() + at + 6;
    };
    unsigned c = 0, low = 0;
    if (!unit(at_, c)) return false;
    at_ += 6;
    if (c >= 0xdc00 && c < 0xe000) return false;
    if (c >= 0xd800 && c < 0xdc00) {
      if (!unit(at_, low) || low < 0xdc00 || low >= 0xe000) return false;
      at_ += 6;
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    const auto put = [&](unsigned bits) { out += static_cast<char>(bits); };
    if (c < 0x80) {
      put(c);
      return true;
    }
    if (c >= 0x10000) put(0xf0 | (c >> 18));
    if (c >= 0x10000) put(0x80 | ((c >> 12) & 0x3f));
    if (c >= 0x800 && c < 0x10000) put(0xe0 | (c >> 12));
    if (c >= 0x800) put(0x80 | ((c >> 6) & 0x3f));
    if (c < 0x800) put(0xc0 | (c >> 6));
    put(0x80 | (c & 0x3f));
    return true;
  }

  /// Whether a text is a number by RFC 8259, section 6: no leading zeros or plus, digits on both sides of a
  /// point.
  static bool is_number(std::string_view text) {
    const auto digits = [&] {
      const std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
      text.remove_prefix(count);
      return count;
    };
    if (text.starts_with('-')) text.remove_prefix(1);
    const bool zero = text.starts_with('0');
    const std::size_t whole = digits();
    if (whole == 0 || (zero && whole > 1)) return false;
    if (text.starts_with('.')) {
      text.remove_prefix(1);
      if (digits() == 0) return false;
    }
    if (text.starts_with('e') || text.starts_with('E')) {
      text.remove_prefix(1);
      if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
      if (digits() == 0) return false;
    }
    return text.empty();
  }

  /// A number or a word of JSON; of others only what people's tools write for infinities.
  bool word(YamlNode& node) {
    const std::size_t begin = at_;
    const auto part = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
             c == '+' || c == '.';
    };
    while (at_ < in_.size() && part(in_[at_])) ++at_;
    const std::string_view text = std::string_view(in_).substr(begin, at_ - begin);
    node.kind = text == "null" ? Kind::null : Kind::scalar;
    node.scalar = text == "null" ? std::string_view() : text;
    return is_number(text) || text == "true" || text == "false" || text == "null" || text == "Infinity" ||
           text == "-Infinity" || text == "NaN";
  }

  bool members(YamlNode& map, std::size_t depth) {
    YamlKeys& keys = text_.keys(map);
    if (take('}')) return true;
    do {
      skip();
      const Place key_place = place();
      std::string_view key;
      if (!take('"') || !quoted(key) || !take(':')) return false;
      YamlNode* const child = value(depth);
      if (child == nullptr || !keys.emplace(key, child)) return false;
      child->key = key;
      child->key_place = key_place;
      add(map, *child);
    } while (take(','));
    return take('}');
  }

  bool items(YamlNode& list, std::size_t depth) {
    if (take(']')) return true;
    do {
      YamlNode* const child = value(depth);
      if (child == nullptr) return false;
      add(list, *child);
    } while (take(','));
    return take(']');
  }

  static void add(YamlNode& parent, YamlNode& child) {
    child.parent = &parent;
    child.index = parent.children.size();
    parent.children.push_back(&child);
    parent.height = std::max(parent.height, child.height + 1);
  }

  YamlNode* value(std::size_t depth) {
    check_();
    skip();
    if (at_ == in_.size() || depth >= kDeepestJson || text_.nodes.size() >= kMostValues) return nullptr;
    YamlNode& node = text_.nodes.emplace_back();
    node.place = place();
    const char c = in_[at_];
    if (c != '{' && c != '[' && c != '"') return word(node) ? &node : nullptr;
    ++at_;
    if (c == '"') {
      node.kind = Kind::scalar;
      node.quoted = true;
      return quoted(node.scalar) ? &node : nullptr;
    }
    node.kind = c == '{' ? Kind::map : Kind::sequence;
    node.height = 1;
    return (c == '{' ? members(node, depth + 1) : items(node, depth + 1)) ? &node : nullptr;
  }

  YamlText& text_;
  const std::string& in_;
  TabsInStrings tabs_;
  CancelCheck check_;
  std::size_t at_ = 0, line_start_ = 0;
  int line_ = 0;
};

}  // namespace shardline::detail
