#include "models/model/checkpoint_patterns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

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
  expression_ = std::make_unique<const Expression>(expression);
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

std::string_view Pattern::run() const {
  const std::string_view text = text_;
  if (kind_ == Kind::part) {
    const std::size_t first = text.find('.'), last = text.rfind('.');
    return first == last ? std::string_view() : text.substr(first + 1, last - first - 1);
  }
  if (kind_ != Kind::glob) return {};
  // What is matched begins with a name and ends with a part of it.
  const std::size_t dot = text.substr(0, literal_).rfind('.');
  const std::string_view head = dot == text.npos ? std::string_view() : text.substr(0, dot);
  if (text.find('[') != text.npos) return head;
  const std::string_view behind = text.substr(text.find_last_of("*?") + 1);
  const std::size_t first = behind.find('.');
  const std::string_view tail = first == behind.npos ? std::string_view() : behind.substr(first + 1);
  return tail.size() > head.size() ? tail : head;
}

void NameTable::reserve(std::size_t count) {
  ends_.reserve(count);
  places_.reserve(count);
}

std::size_t NameTable::add(std::string_view text) {
  if (const auto known = find(text)) return *known;
  const std::size_t place = size();
  texts_ += text;
  ends_.push_back(static_cast<std::uint32_t>(texts_.size()));
  places_.add(HashedPlaces::hash(text), place);
  const std::string_view first = text.substr(0, text.find('.'));
  auto counts = counts_.find(first);
  if (counts == counts_.end()) counts = counts_.emplace(std::string(first), 0).first;
  const auto dots = static_cast<std::size_t>(std::count(text.begin(), text.end(), '.'));
  counts->second |= std::uint64_t{1} << std::min(dots, kMostCounted - 1);
  return place;
}

void Patterns::add(Pattern pattern) {
  const std::size_t order = size_++;
  if (pattern.plain()) {
    if (plain_.add(pattern.text()) == orders_.size()) orders_.push_back(order);
    return;
  }
  const auto place = static_cast<std::uint32_t>(others_.size());
  if (const std::string_view run = pattern.run(); !run.empty()) {
    const std::size_t at = runs_.add(run);
    if (at == by_run_.size()) by_run_.emplace_back();
    by_run_[at].push_back(place);
    most_alike_ = std::max(most_alike_, by_run_[at].size());
  } else {
    by_none_.push_back(place);
    if (pattern.steps() == 0) most_alike_ = std::max(most_alike_, ++without_run_);
  }
  others_.emplace_back(order, std::move(pattern));
}

template <class Look>
void Patterns::each_candidate(std::string_view name, Look look) const {
  const auto each = [&](const std::vector<std::uint32_t>& places) {
    for (const std::uint32_t place : places)
      if (!look(place)) return;
  };
  each(by_none_);
  runs_.each_in(name, [&](std::size_t run) { each(by_run_[run]); });
}

std::optional<std::size_t> Patterns::first(const std::vector<std::string>& names) const {
  std::size_t best = size_;
  CancelCheck check;
  for (const std::string& name : names) {
    plain_.each_in(name, [&](std::size_t place) { best = std::min(best, orders_[place]); });
    if (others_.empty()) continue;
    each_candidate(name, [&](std::uint32_t place) {
      const std::size_t order = others_[place].first;
      if (order >= best) return false;  // as are those that come behind it
      check();
      if (others_[place].second.matches(name)) best = order;
      return true;
    });
  }
  return best < size_ ? std::optional(best) : std::nullopt;
}

// Of each text of plain_.
std::vector<bool> Patterns::matched_names(std::span<const Matrix> matrices) const {
  std::vector<bool> matched(plain_.size());
  NameTable firsts;  // what stands for the names of all experts
  std::vector<std::pair<std::size_t, std::size_t>> stood_for;
  for (std::size_t i = 0; i < plain_.size(); ++i) {
    if (has_expert(plain_.text(i))) stood_for.emplace_back(i, firsts.add(of_first_expert(plain_.text(i))));
  }
  std::vector<bool> first_matched(firsts.size());
  for (const Matrix& one : matrices) {
    for (const std::string& name : one.names) {
      plain_.each_in(name, [&](std::size_t place) { matched[place] = true; });
      firsts.each_in(name, [&](std::size_t place) { first_matched[place] = true; });
    }
  }
  for (const auto& [place, first] : stood_for) matched[place] = first_matched[first];
  return matched;
}

// Of each of others_.
std::vector<bool> Patterns::matched_others(std::span<const Matrix> matrices) const {
  std::vector<bool> matched(others_.size());
  CancelCheck check;
  for (const Matrix& one : matrices) {
    for (const std::string& name : one.names) {
      if (others_.empty()) return matched;
      each_candidate(name, [&](std::uint32_t place) {
        check();
        if (!matched[place]) matched[place] = others_[place].second.matches(name);
        return true;
      });
    }
  }
  return matched;
}

std::vector<std::string_view> Patterns::without_match(std::span<const Matrix> matrices) const {
  std::vector<std::pair<std::size_t, std::string_view>> found;
  const std::vector<bool> names = matched_names(matrices), others = matched_others(matrices);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!names[i] && !without_type(plain_.text(i))) found.emplace_back(orders_[i], plain_.text(i));
  }
  const auto plain = static_cast<std::ptrdiff_t>(found.size());
  for (std::size_t i = 0; i < others.size(); ++i) {
    const std::string& text = others_[i].second.text();
    if (!others[i] && !without_type(text)) found.emplace_back(others_[i].first, text);
  }
  std::inplace_merge(found.begin(), found.begin() + plain, found.end());
  std::vector<std::string_view> out;
  out.reserve(found.size());
  for (const auto& [order, text] : found) out.push_back(text);
  return out;
}

}  // namespace shardline::checkpoint
