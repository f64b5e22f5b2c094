#include "planner/plan/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr long long kLongestPart = 1'000'000'000;

// The whole text as a number in [least, most].
template <class N>
bool read_number(std::string_view text, N least, N most, N& out) {
  N number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < least || number > most)
    return false;
  out = number;
  return true;
}

}  // namespace

void OptionValues::set(const Option& option, int value) {
  const auto begin = set_.begin(), end = begin + static_cast<std::ptrdiff_t>(size_);
  const std::string_view key = option.key;
  const auto at = std::find_if(begin, end, [&](const Value& v) { return key <= v.option->key; });
  const bool known = at != end && at->option == &option;
  if (option.lists && !(known && at->value == value)) list_.clear();
  if (value == option.absent) {
    if (!known) return;
    std::move(at + 1, end, at);
    set_[--size_] = {};
    return;
  }
  if (!known) {
    SL_CHECK(size_ < kMostOptions, "a plan has room for the options of its strategy");
    std::move_backward(at, end, end + 1);
    ++size_;
  }
  *at = {&option, value};
}

const std::vector<long long>& OptionValues::list(const Option& option) const {
  static const std::vector<long long> none;
  return option.lists && of(option) == static_cast<int>(option.words.size()) ? list_ : none;
}

void OptionValues::set_list(const Option& option, std::vector<long long> list) {
  SL_CHECK(option.lists, "the option lists");
  set(option, list.empty() ? option.absent : static_cast<int>(option.words.size()));
  list_ = std::move(list);
}

std::string values_text(const Option& option) {
  if (option.words.empty()) return fmt::format("{} to {}", option.least, option.most);
  std::string text = fmt::format("{}", fmt::join(option.words, " or "));
  return option.lists
             ? fmt::format("{}, or tokens of each rank, 1 to {}, as 3584/2611/2150", text, kLongestPart)
             : text;
}

std::string value_text(const Option& option, const OptionValues& values) {
  if (!values.list(option).empty()) return fmt::format("{}", fmt::join(values.list(option), "/"));
  return value_text(option, values.of(option));
}

std::string value_text(const Option& option, int value) {
  if (option.words.empty()) return std::to_string(value);
  return value < 0 ? std::string() : option.words[static_cast<std::size_t>(value)];
}

bool read_value(const Option& option, std::string_view text, OptionValues& values) {
  if (option.words.empty()) {
    int number = 0;
    if (!read_number(text, option.least, option.most, number)) return false;
    values.set(option, number);
    return true;
  }
  const auto word = std::find(option.words.begin(), option.words.end(), text);
  if (word != option.words.end()) {
    values.set(option, static_cast<int>(word - option.words.begin()));
    return true;
  }
  if (!option.lists) return false;
  std::vector<long long> list;
  for (std::string_view rest = text;;) {
    const std::string_view item = rest.substr(0, rest.find('/'));
    if (!read_number(item, 1LL, kLongestPart, list.emplace_back())) return false;
    if (item.size() == rest.size()) break;
    rest.remove_prefix(item.size() + 1);
  }
  values.set_list(option, std::move(list));
  return true;
}

}  // namespace shardline
