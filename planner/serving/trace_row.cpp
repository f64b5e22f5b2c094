#include "planner/serving/trace_row.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <utility>

namespace shardline {

namespace {

// A whole number that is all of the text.
template <class Number>
std::optional<Number> whole(std::string_view text) {
  Number v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return v;
}

// Digits only, as many as there are.
std::optional<int> digits(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return whole<int>(text);
}

}  // namespace

std::vector<TraceCell> trace_cells(std::string_view line) {
  std::vector<TraceCell> out;
  for (std::size_t at = 0;;) {
    const std::size_t comma = std::min(line.find(',', at), line.size());
    std::size_t first = std::min(line.find_first_not_of(" \t", at), comma), last = comma;
    while (last > first && (line[last - 1] == ' ' || line[last - 1] == '\t')) --last;
    out.push_back({line.substr(first, last - first), first + 1});
    if (comma == line.size() || out.size() > kMostTraceCells) return out;
    at = comma + 1;
  }
}

std::optional<BlockRun> block_run(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto first = whole<std::uint64_t>(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : whole<std::uint64_t>(text.substr(dash + 1));
  // The largest number is none: a loop to it would not end.
  if (!first || !last || *last < *first || *last == ~std::uint64_t{0}) return std::nullopt;
  return BlockRun{*first, *last};
}

std::optional<std::int64_t> clock_tick(std::string_view text) {
  if (text.ends_with("+00:00")) text.remove_suffix(6);
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || (text[10] != ' ' && text[10] != 'T') ||
      text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  std::array<int, 6> part{};
  constexpr std::array<std::pair<std::size_t, std::size_t>, 6> kPlaces{
      {{0, 4}, {5, 2}, {8, 2}, {11, 2}, {14, 2}, {17, 2}}};
  for (std::size_t i = 0; i < part.size(); ++i) {
    const auto v = digits(text.substr(kPlaces[i].first, kPlaces[i].second));
    if (!v) return std::nullopt;
    part[i] = *v;
  }
  std::int64_t fraction = 0;
  if (text.size() > 19) {
    const std::string_view after = text.substr(20);
    if (text[19] != '.' || after.size() > 7 || !digits(after)) return std::nullopt;
    fraction = *digits(after);
    for (std::size_t i = after.size(); i < 7; ++i) fraction *= 10;
  }
  const std::chrono::year_month_day day{std::chrono::year(part[0]),
                                        std::chrono::month(static_cast<unsigned>(part[1])),
                                        std::chrono::day(static_cast<unsigned>(part[2]))};
  if (!day.ok() || part[3] > 23 || part[4] > 59 || part[5] > 59) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(day).time_since_epoch().count();
  return (((days * 24 + part[3]) * 60 + part[4]) * 60 + part[5]) * 10'000'000 + fraction;
}

void JsonRow::skip() { at_ = std::min(line_.find_first_not_of(" \t", at_), line_.size()); }

bool JsonRow::take(char c) {
  skip();
  if (at_ == line_.size() || line_[at_] != c) return false;
  ++at_;
  return true;
}

bool JsonRow::fail(std::string what) {
  column_ = at_ + 1;
  error_ = std::move(what);
  return false;
}

bool JsonRow::next() {
  if (!error_.empty()) return false;
  if (!std::exchange(begun_, true)) {
    if (!take('{')) return fail("expected an object, {\"timestamp\": ...}");
    if (take('}')) return fail("an empty object is no request");
  } else {
    if (take('}')) {
      skip();
      return at_ == line_.size() ? false : fail("more text after the object");
    }
    if (!take(',')) return fail(at_ == line_.size() ? "the row ends in the middle" : "expected , or }");
  }
  return read_key() && read_value();
}

bool JsonRow::read_key() {
  if (!take('"')) return fail(at_ == line_.size() ? "the row ends in the middle" : "expected a key");
  key_column_ = at_;
  const std::size_t end = line_.find('"', at_);
  if (end == std::string_view::npos) return fail("the key is never closed");
  key_ = line_.substr(at_, end - at_);
  at_ = end + 1;
  return take(':') || fail(at_ == line_.size() ? "the row ends in the middle" : "expected :");
}

std::string_view JsonRow::number() {
  const std::size_t end = std::min(line_.find_first_not_of("0123456789+-.eE", at_), line_.size());
  const std::string_view out = line_.substr(at_, end - at_);
  at_ = end;
  return out;
}

bool JsonRow::read_value() {
  array_ = take('[');
  skip();
  column_ = array_ ? at_ : at_ + 1;
  if (array_) return read_ids();
  value_ = number();
  if (!value_.empty()) return true;
  return fail(at_ == line_.size() ? "the row ends in the middle" : "expected a number or a list of numbers");
}

bool JsonRow::read_ids() {
  const std::size_t column = column_;
  ids_.clear();
  while (!take(']')) {
    if (!ids_.empty() && !take(','))
      return fail(at_ == line_.size() ? "the row ends in the middle" : "expected , or ]");
    skip();
    const std::size_t begin = at_;
    const auto id = whole<std::uint64_t>(number());
    if (!id) {
      const bool end = at_ == line_.size();
      at_ = begin;
      return fail(end ? "the row ends in the middle" : "expected a block's number");
    }
    ids_.push_back(*id);
  }
  column_ = column;
  return true;
}

}  // namespace shardline
