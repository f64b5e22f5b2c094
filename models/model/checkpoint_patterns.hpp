// Internal to checkpoint.cpp: names of matrices that files of quantisation list, and what they match.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/base/reader.hpp"

namespace shardline::checkpoint {

// '*' stands for any text.
inline bool glob(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

// A name or part of one ("lm_head", "model.layers.3.mlp"), with '*', or "re:" and a regular expression that
// matches from the start. A module stands for all that it contains.
class Pattern {
 public:
  explicit Pattern(const Reader& at) : Pattern(at, at.text()) {}
  Pattern(const Reader& at, std::string text) : text_(std::move(text)) {
    if (!text_.starts_with("re:")) return;
    try {
      expression_.emplace(text_.substr(3));
    } catch (const std::regex_error&) {
      at.fault(fmt::format("\"{}\" is no regular expression", text_.substr(3)));
    }
  }

  /// Whether it stands for itself: no star and no expression.
  bool plain() const { return !text_.starts_with("re:") && text_.find('*') == std::string::npos; }
  const std::string& text() const { return text_; }

  bool matches(const std::string& name) const {
    if (text_.starts_with("re:"))
      return expression_ && std::regex_search(name, *expression_, std::regex_constants::match_continuous);
    const bool part = text_.find_first_of(".*") == std::string::npos;
    for (std::size_t begin = 0, end = 0; end < name.size(); begin = end + 1) {
      end = std::min(name.find('.', begin), name.size());
      if (part ? std::string_view(name).substr(begin, end - begin) == text_
               : glob(text_, std::string_view(name).substr(0, end)))
        return true;
    }
    return false;
  }

 private:
  std::string text_;
  std::optional<std::regex> expression_;
};

// Patterns in their order, of which a file may have tens of thousands: those that stand for themselves are
// looked up by the parts of a name and by what it begins with, the others are tried one by one.
class Patterns {
 public:
  bool empty() const { return size_ == 0; }

  void add(Pattern pattern) {
    if (pattern.plain()) {
      plain_.emplace(pattern.text(), size_);
    } else {
      others_.emplace_back(size_, std::move(pattern));
    }
    ++size_;
  }

  /// Place of the first one that matches one of the names; nothing if none does.
  template <class Names>
  std::optional<std::size_t> first(const Names& names) const {
    std::size_t best = size_;
    const auto look = [&](std::string_view text) {
      const auto at = plain_.find(std::string(text));
      if (at != plain_.end()) best = std::min(best, at->second);
    };
    for (const std::string& name : names) {
      for (std::size_t begin = 0, end = 0; end < name.size(); begin = end + 1) {
        end = std::min(name.find('.', begin), name.size());
        if (begin > 0) look(std::string_view(name).substr(begin, end - begin));
        look(std::string_view(name).substr(0, end));
      }
      for (const auto& [order, pattern] : others_) {
        if (order >= best) break;
        if (pattern.matches(name)) best = order;
      }
    }
    return best < size_ ? std::optional(best) : std::nullopt;
  }

 private:
  std::size_t size_ = 0;
  std::unordered_map<std::string, std::size_t> plain_;  // to the first place
  std::vector<std::pair<std::size_t, Pattern>> others_;
};

}  // namespace shardline::checkpoint
