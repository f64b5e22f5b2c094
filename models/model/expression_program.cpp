#include "models/model/expression_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace shardline::checkpoint {

namespace {

using Op = Expression::Op;
using Set = Expression::Set;
using Step = Expression::Step;

constexpr std::size_t kEver = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kMostTimes = 1'000'000;  // any larger count is as much beyond kMostSteps

struct Wrong {
  std::string why;
};
struct Unread {
  std::string clause;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr char kOtherCase = 'a' - 'A';

Set range(char first, char last) {
  Set s;
  for (int c = first; c <= last; ++c) s.set(static_cast<std::size_t>(c));
  return s;
}

Set only(char c) { return range(c, c); }

// Of Python's classes what is ASCII.
Set digits() { return range('0', '9'); }
Set words() { return digits() | range('a', 'z') | range('A', 'Z') | only('_'); }
Set spaces() { return range('\t', '\r') | range('\x1c', '\x1f') | only(' '); }

[[noreturn]] void python_alone(std::string_view part) {
  throw Unread{fmt::format("whose {} is Python's alone", part)};
}

Step split(std::size_t to, std::size_t other) {
  return {Op::split, 0, static_cast<std::int16_t>(to), static_cast<std::int16_t>(other)};
}

Step jump(std::ptrdiff_t to) { return {Op::jump, 0, static_cast<std::int16_t>(to)}; }

}  // namespace

ExpressionProgram::ExpressionProgram(std::string_view text) : text_(text) {
  try {
    if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
      throw Unread{"whose characters are not all ASCII"};
    if (text_.starts_with("(?i)")) {
      either_case_ = true;
      at_ = 4;
    }
    alternatives(0);
    if (more()) throw Wrong{"a ) without its ("};
    add({Op::match});
  } catch (const Wrong& e) {
    wrong = fmt::format("{}, at character {}", e.why, at_ + 1);
  } catch (const Unread& e) {
    unread = e.clause;
  }
}

void ExpressionProgram::add(Step step) {
  if (steps.size() >= kMostSteps)
    throw Unread{fmt::format("which repeats to more than {} steps", kMostSteps)};
  steps.push_back(step);
}

void ExpressionProgram::add(const Set& set) {
  auto at = std::find(sets.begin(), sets.end(), set);
  if (at == sets.end()) at = sets.insert(at, set);
  add({Op::set, 0, 1, static_cast<std::int16_t>(at - sets.begin())});
}

void ExpressionProgram::add_character(char c) {
  if (either_case_ && is_letter(c)) {
    add(either_case(only(c)));
  } else {
    add({Op::character, c});
  }
}

Set ExpressionProgram::either_case(Set set) const {
  if (!either_case_) return set;
  for (char c = 'A'; c <= 'Z'; ++c) {
    const auto upper = static_cast<std::size_t>(c), lower = static_cast<std::size_t>(c + kOtherCase);
    if (set[upper] || set[lower]) set.set(upper).set(lower);
  }
  return set;
}

void ExpressionProgram::alternatives(std::size_t depth) {
  if (depth > kDeepestGroup)
    throw Unread{fmt::format("whose groups nest deeper than {} levels", kDeepestGroup)};
  std::vector<std::size_t> jumps;
  std::size_t begin = steps.size();
  sequence(depth);
  while (take('|')) {
    const std::size_t length = steps.size() - begin;
    add({Op::jump});  // its target is known at the end
    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(begin), split(1, length + 2));
    jumps.push_back(steps.size() - 1);
    begin = steps.size();
    sequence(depth);
  }
  for (const std::size_t at : jumps) steps[at].to = static_cast<std::int16_t>(steps.size() - at);
}

void ExpressionProgram::sequence(std::size_t depth) {
  while (more() && !next_is('|') && !next_is(')')) {
    const std::size_t begin = steps.size();
    const bool repeatable = atom(depth);
    repeat(begin, repeatable);
  }
}

// Whether it may be repeated.
bool ExpressionProgram::atom(std::size_t depth) {
  std::size_t behind = at_;
  if (counts(behind)) throw Wrong{"nothing to repeat"};
  const char c = text_[at_++];
  switch (c) {
    case '(':
      group(depth);
      return true;
    case '[':
      set_of_characters();
      return true;
    case '.':
      add(~only('\n'));
      return true;
    case '^':
      add({Op::begin});
      return false;
    case '$':
      add({Op::end});
      return false;
    case '\\':
      return escape();
    default:
      add_character(c);
      return true;
  }
}

void ExpressionProgram::group(std::size_t depth) {
  if (take('?') && !take(':')) {
    if (!more()) throw Wrong{"a ( without its )"};
    const std::string part = "(?" + std::string(1, text_[at_]);
    if (next_is('=') || next_is('!')) throw Unread{fmt::format("whose {} looks ahead", part)};
    python_alone(part);
  }
  alternatives(depth + 1);
  if (!take(')')) throw Wrong{"a ( without its )"};
}

bool ExpressionProgram::escape() {
  if (take('b')) {
    add({Op::boundary});
    return false;
  }
  if (take('B')) {
    add({Op::inside});
    return false;
  }
  if (more() && is_digit(text_[at_]) && text_[at_] != '0')
    throw Unread{fmt::format("whose \\{} refers back", text_[at_])};
  const Characters c = escaped();
  if (c.one) {
    add_character(*c.one);
  } else {
    add(either_case(c.set));
  }
  return true;
}

// Behind a backslash.
ExpressionProgram::Characters ExpressionProgram::escaped() {
  if (!more()) throw Wrong{"a \\ at the end"};
  const char c = text_[at_++];
  switch (c) {
    case 'd':
      return {digits(), {}};
    case 'D':
      return {~digits(), {}};
    case 'w':
      return {words(), {}};
    case 'W':
      return {~words(), {}};
    case 's':
      return {spaces(), {}};
    case 'S':
      return {~spaces(), {}};
    case 'x':
      return hexadecimal();
    case 'A':
    case 'Z':
    case 'u':
    case 'U':
    case 'N':
      python_alone(std::string("\\") + c);
    default:
      break;
  }
  constexpr std::string_view kNames = "tnrfva", kMeant = "\t\n\r\f\v\a";
  if (const auto at = kNames.find(c); at != kNames.npos) return {{}, kMeant[at]};
  if (is_digit(c)) python_alone(std::string("\\") + c);  // an octal number
  if (is_letter(c)) throw Wrong{fmt::format("\\{} means nothing", c)};
  return {{}, c};
}

ExpressionProgram::Characters ExpressionProgram::hexadecimal() {
  int value = 0;
  for (int i = 0; i < 2; ++i) {
    const char c = more() ? text_[at_] : ' ';
    const char low = is_letter(c) ? static_cast<char>(c | kOtherCase) : c;
    const int digit = is_digit(c) ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
    if (digit < 0) throw Wrong{"\\x without two hexadecimal digits"};
    value = value * 16 + digit;
    ++at_;
  }
  if (value >= 0x80) throw Unread{"whose characters are not all ASCII"};
  return {{}, static_cast<char>(value)};
}

ExpressionProgram::Characters ExpressionProgram::part_of_set() {
  if (!more()) throw Wrong{"a [ without its ]"};
  const char c = text_[at_++];
  if (c != '\\') return {{}, c};
  if (take('b')) return {{}, '\b'};
  return escaped();
}

void ExpressionProgram::set_of_characters() {
  const bool opposite = take('^');
  Set all;
  bool first = true;
  while (first || !next_is(']')) {
    first = false;
    const Characters from = part_of_set();
    const bool ranged = next_is('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
    if (!ranged) {
      all |= from.one ? only(*from.one) : from.set;
      continue;
    }
    ++at_;
    const Characters to = part_of_set();
    if (!from.one || !to.one || *from.one > *to.one) throw Wrong{"a range of no characters"};
    all |= range(*from.one, *to.one);
  }
  ++at_;
  all = either_case(all);
  add(opposite ? ~all : all);
}

// The quantifier at `at`, which moves behind it: * + ? {m} {m,} {,n} {m,n}. Other braces stand for
// themselves.
std::optional<ExpressionProgram::Counts> ExpressionProgram::counts(std::size_t& at) const {
  if (at >= text_.size()) return std::nullopt;
  const char c = text_[at];
  if (c == '*' || c == '+' || c == '?') {
    ++at;
    return Counts{c == '+' ? 1U : 0U, c == '?' ? 1U : kEver};
  }
  if (c != '{') return std::nullopt;
  std::size_t i = at + 1;
  const auto number = [&](std::size_t otherwise) {
    const std::size_t begin = i;
    std::size_t value = 0;
    for (; i < text_.size() && is_digit(text_[i]); ++i)
      value = std::min(value * 10 + static_cast<std::size_t>(text_[i] - '0'), kMostTimes);
    return i == begin ? otherwise : value;
  };
  const std::size_t least = number(kEver);
  Counts found{least, least};
  if (i < text_.size() && text_[i] == ',') {
    ++i;
    found = {least == kEver ? 0 : least, number(kEver)};
  } else if (least == kEver) {
    return std::nullopt;
  }
  if (i >= text_.size() || text_[i] != '}') return std::nullopt;
  at = i + 1;
  return found;
}

// A quantifier behind what begins at `begin`. That it is lazy changes what is matched, not whether.
void ExpressionProgram::repeat(std::size_t begin, bool repeatable) {
  const auto times = counts(at_);
  if (!times) return;
  if (!repeatable) throw Wrong{"nothing to repeat"};
  if (times->most < times->least) throw Wrong{"a repetition of at most fewer times than at least"};
  if (next_is('+')) python_alone(std::string(1, text_[at_ - 1]) + "+");
  take('?');
  std::size_t behind = at_;
  if (counts(behind)) throw Wrong{"a repetition of a repetition"};
  expand(begin, *times);
}

void ExpressionProgram::expand(std::size_t begin, const Counts& c) {
  const std::vector<Step> body(steps.begin() + static_cast<std::ptrdiff_t>(begin), steps.end());
  const std::size_t length = body.size();
  steps.resize(begin);
  if (length == 0) return;
  const auto copy = [&] {
    for (const Step& s : body) add(s);
  };
  for (std::size_t i = 0; i < c.least; ++i) copy();
  if (c.most == kEver) {
    if (c.least > 0) {
      add({Op::split, 0, static_cast<std::int16_t>(-static_cast<std::ptrdiff_t>(length)), 1});
      return;
    }
    add(split(1, length + 2));
    copy();
    add(jump(-static_cast<std::ptrdiff_t>(length) - 1));
    return;
  }
  for (std::size_t left = c.most - c.least; left > 0; --left) {
    add(split(1, std::min(left * (length + 1), kMostSteps)));
    copy();
  }
}

}  // namespace shardline::checkpoint
