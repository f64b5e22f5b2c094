#include "models/model/checkpoint_patterns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>

#include "models/model/checkpoint_names.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::checkpoint {

namespace {

/// Of an expression, for messages: those that are refused may be long.
std::string shown(std::string_view expression) {
  constexpr std::size_t kMost = 80;
  return expression.size() <= kMost ? std::string(expression)
                                    : std::string(expression.substr(0, kMost)) + "...";
}

}  // namespace

std::size_t character_set(std::string_view pattern, char c, bool& in) {
  std::size_t at = 1;
  const bool negated = at < pattern.size() && pattern[at] == '!';
  if (negated) ++at;
  const std::size_t close = pattern.find(']', at + 1);
  if (close == std::string_view::npos) return 0;
  bool found = false;
  while (at < close) {
    if (at + 2 < close && pattern[at + 1] == '-') {
      found = found || (pattern[at] <= c && c <= pattern[at + 2]);
      at += 3;
    } else {
      found = found || pattern[at] == c;
      ++at;
    }
  }
  in = found != negated;
  return close + 1;
}

bool glob(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, from = 0;
  while (t < text.size()) {
    std::size_t step = 0;  // what of the pattern stands for this character
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
      continue;
    }
    if (p < pattern.size() && pattern[p] == '[') {
      bool in = false;
      const std::size_t length = character_set(pattern.substr(p), text[t], in);
      step = length > 0 ? (in ? length : 0) : (text[t] == '[' ? 1 : 0);
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      step = 1;
    }
    if (step > 0) {
      p += step;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

Pattern::Pattern(const Reader& at, std::string text, Listed listed) : text_(std::move(text)) {
  if (listed == Listed::parts) {
    kind_ = Kind::part;
    return;
  }
  // Not find_first_of(), which calls a function of the C library for every character.
  const auto special =
      std::find_if(text_.begin(), text_.end(), [](char c) { return c == '*' || c == '?' || c == '['; });
  literal_ = static_cast<std::size_t>(special - text_.begin());
  if (!text_.starts_with("re:")) {
    if (literal_ < text_.size()) kind_ = Kind::glob;
    return;
  }
  kind_ = Kind::expression;
  const std::string_view expression = std::string_view(text_).substr(3);
  expression_.emplace(expression);
  if (!expression_->wrong().empty())
    at.fault(fmt::format("\"{}\" is no regular expression: {}", shown(expression), expression_->wrong()));
  if (!expression_->unread().empty())
    unread_ = fmt::format("the expression \"{}\", {}", shown(expression), expression_->unread());
}

bool Pattern::matches(const std::string& name) const {
  switch (kind_) {
    case Kind::expression:
      return expression_->matches(name);
    case Kind::part:
      return name.find(text_) != std::string::npos;
    case Kind::plain: {
      bool found = false;
      each_run(name, [&](std::string_view run) { found = found || run == text_; });
      return found;
    }
    case Kind::glob:
      break;
  }
  if (name.compare(0, literal_, text_, 0, literal_) != 0) return false;
  for (std::size_t end = 0; end < name.size(); ++end) {
    end = std::min(name.find('.', end), name.size());
    if (glob(text_, std::string_view(name).substr(0, end))) return true;
  }
  return false;
}

std::optional<std::size_t> Patterns::first(const std::vector<std::string>& names) const {
  std::size_t best = size_;
  CancelCheck check;
  for (const std::string& name : names) {
    each_run(name, [&](std::string_view run) {
      const auto at = places_.empty() ? places_.end() : places_.find(run);
      if (at != places_.end()) best = std::min(best, at->second);
    });
    for (const auto& [order, pattern] : others_) {
      if (order >= best) break;
      check();
      if (pattern.matches(name)) best = order;
    }
  }
  return best < size_ ? std::optional(best) : std::nullopt;
}

std::vector<std::string_view> Patterns::without_match(
    const std::vector<std::vector<std::string>>& names) const {
  std::unordered_set<std::string_view> known;
  if (!plain_.empty()) {
    for (const auto& of_one : names) {
      for (const std::string& name : of_one)
        each_run(name, [&](std::string_view run) { known.emplace(run); });
    }
  }
  std::vector<std::pair<std::size_t, std::string_view>> found;
  for (const auto& [order, text] : plain_) {
    if (without_type(text)) continue;
    const bool matched = has_expert(text) ? known.contains(of_first_expert(text)) : known.contains(text);
    const bool first_of_it = places_.size() == plain_.size() || places_.at(text) == order;
    if (!matched && first_of_it) found.emplace_back(order, text);
  }
  const auto plain = static_cast<std::ptrdiff_t>(found.size());
  CancelCheck check;
  for (const auto& [order, pattern] : others_) {
    const Pattern& p = pattern;  // what a structure was taken apart into is not captured by clang 14
    const bool any = std::any_of(names.begin(), names.end(), [&](const auto& of_one) {
      return std::any_of(of_one.begin(), of_one.end(), [&](const std::string& n) {
        check();
        return p.matches(n);
      });
    });
    if (!any && !without_type(pattern.text())) found.emplace_back(order, pattern.text());
  }
  std::inplace_merge(found.begin(), found.begin() + plain, found.end());
  std::vector<std::string_view> out;
  out.reserve(found.size());
  for (const auto& [order, text] : found) out.push_back(text);
  return out;
}

}  // namespace shardline::checkpoint
