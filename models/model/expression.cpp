#include "models/model/expression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "models/model/expression_program.hpp"

namespace shardline::checkpoint {

namespace {

// With all their sets of steps these take 300 kB at most; names of a model's matrices need a few tens.
constexpr std::size_t kMostPositions = 64;

bool is_word(std::size_t symbol) {
  return symbol == '_' || (symbol >= '0' && symbol <= '9') || (symbol >= 'a' && symbol <= 'z') ||
         (symbol >= 'A' && symbol <= 'Z');
}

}  // namespace

struct Expression::Reached {
  explicit Reached(std::size_t count) : seen(count) {}
  std::vector<bool> seen;
  std::vector<std::uint16_t> steps;
  bool match = false;
};

struct Expression::Around {
  bool first, after_word;
  std::size_t symbol;  // that comes
};

Expression::Expression(std::string_view text) {
  if (text.size() > kLongestExpression) {
    unread_ = fmt::format("which is longer than {} characters", kLongestExpression);
    return;
  }
  ExpressionProgram program(text);
  wrong_ = std::move(program.wrong);
  unread_ = std::move(program.unread);
  if (!wrong_.empty() || !unread_.empty()) return;
  steps_ = std::move(program.steps);
  sets_ = std::move(program.sets);
  steps_.shrink_to_fit();
  asks_words_ = std::any_of(steps_.begin(), steps_.end(),
                            [](const Step& s) { return s.op == Op::boundary || s.op == Op::inside; });
}

// Adds what can be reached from a step without a character. Questions are answered with what is `around`;
// without it they stay.
void Expression::follow(std::size_t from, const Around* around, Reached& reached) const {
  std::vector<std::size_t> todo{from};
  while (!todo.empty()) {
    const std::size_t at = todo.back();
    todo.pop_back();
    if (reached.seen[at]) continue;
    reached.seen[at] = true;
    const Step& s = steps_[at];
    const auto behind = [&](std::int16_t by) {
      todo.push_back(static_cast<std::size_t>(static_cast<std::ptrdiff_t>(at) + by));
    };
    const auto ask = [&](auto holds) {
      if (around == nullptr) {
        reached.steps.push_back(static_cast<std::uint16_t>(at));
      } else if (holds(*around)) {
        behind(1);
      }
    };
    const auto at_boundary = [](const Around& a) { return a.after_word != is_word(a.symbol); };
    switch (s.op) {
      case Op::character:
      case Op::set:
        reached.steps.push_back(static_cast<std::uint16_t>(at));
        break;
      case Op::split:
        behind(s.other);
        behind(s.to);
        break;
      case Op::jump:
        behind(s.to);
        break;
      case Op::begin:
        ask([](const Around& a) { return a.first; });
        break;
      case Op::end:
        ask([](const Around& a) { return a.symbol == kEnd; });
        break;
      case Op::boundary:
        ask(at_boundary);
        break;
      case Op::inside:
        ask([&](const Around& a) { return !at_boundary(a); });
        break;
      case Op::match:
        reached.match = true;
        break;
    }
  }
}

// The number of such a position. Where there are too many, all but the start are forgotten.
std::int16_t Expression::place(std::vector<std::uint16_t> steps, bool first, bool after_word) const {
  std::sort(steps.begin(), steps.end());
  const auto known = std::find_if(positions_.begin(), positions_.end(), [&](const Position& p) {
    return p.first == first && p.after_word == after_word && p.steps == steps;
  });
  if (known != positions_.end()) return static_cast<std::int16_t>(known - positions_.begin());
  if (positions_.size() == kMostPositions) {
    positions_.resize(1);
    positions_[0].next.fill(kUnknown);
  }
  Position& p = positions_.emplace_back();
  p.steps = std::move(steps);
  p.first = first;
  p.after_word = after_word;
  p.next.fill(kUnknown);
  return static_cast<std::int16_t>(positions_.size() - 1);
}

std::int16_t Expression::advance(std::size_t from, std::size_t symbol) const {
  const Position& p = positions_[from];
  const Around around{p.first, p.after_word, symbol};
  Reached here(steps_.size());
  for (const std::uint16_t at : p.steps) follow(at, &around, here);
  if (here.match) return kMatched;
  if (symbol == kEnd) return kNone;
  Reached behind(steps_.size());
  for (const std::uint16_t at : here.steps) {
    const Step& s = steps_[at];
    const bool reads = s.op == Op::set ? sets_[static_cast<std::size_t>(s.other)][symbol]
                                       : static_cast<unsigned char>(s.character) == symbol;
    if (reads) follow(at + 1U, nullptr, behind);
  }
  if (behind.match) return kMatched;
  if (behind.steps.empty()) return kNone;
  return place(std::move(behind.steps), false, asks_words_ && is_word(symbol));
}

bool Expression::matches(std::string_view text) const {
  if (steps_.empty()) return false;
  if (positions_.empty()) {
    Reached start(steps_.size());
    follow(0, nullptr, start);
    place(std::move(start.steps), true, false);
    if (start.match) positions_[0].next.fill(kMatched);
  }
  std::size_t at = 0;
  for (std::size_t i = 0;; ++i) {
    const std::size_t symbol = i < text.size() ? static_cast<unsigned char>(text[i]) : kEnd;
    std::int16_t next = positions_[at].next[symbol];
    if (next == kUnknown) {
      const bool full = positions_.size() == kMostPositions;
      next = advance(at, symbol);
      const bool forgotten = full && positions_.size() < kMostPositions;
      if (!forgotten) positions_[at].next[symbol] = next;
    }
    if (next < 0) return next == kMatched;
    at = static_cast<std::size_t>(next);
  }
}

}  // namespace shardline::checkpoint
