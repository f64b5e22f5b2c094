// Internal to checkpoint_patterns.cpp: regular expressions as Python's re reads them, matched in time linear
// in the text. The program of an expression is Thompson's automaton (Regular Expression Search Algorithm,
// CACM 11(6), 1968), whose sets of states are kept once they were met.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardline::checkpoint {

/// An expression longer than this, or that repeats to more steps or nests its groups deeper, is not read:
/// those of checkpoints have tens of characters.
constexpr std::size_t kLongestExpression = 4096, kMostSteps = 2000, kDeepestGroup = 50;

/// A regular expression of ASCII characters, as Python's re.compile takes it: literals, '.', sets, \d \w \s
/// and their opposites, \b \B, groups, alternatives, * + ? {m,n} also lazy, ^ $, "(?i)" at its beginning. Not
/// to be asked by several threads at once.
class Expression {
 public:
  using Set = std::bitset<256>;

  explicit Expression(std::string_view text);

  /// Why it is no expression; empty: it is one.
  const std::string& wrong() const { return wrong_; }
  /// A clause that says why it is not read ("whose (?< is Python's alone"); empty: it is.
  const std::string& unread() const { return unread_; }
  /// Of its program: what it needs of memory and, at worst, of time per character.
  std::size_t steps() const { return steps_.size(); }
  /// Whether it matches from the start of `text`, not necessarily all of it, as Python's re.match. False for
  /// what is wrong or unread. `text` has no line ends, before the last of which Python's '$' matches.
  bool matches(std::string_view text) const;

  enum class Op : std::uint8_t { character, set, split, jump, begin, end, boundary, inside, match };
  /// Goes on at its own place + `to`, and split also at that + `other`; a set's `other` is its number.
  struct Step {
    Op op;
    char character = 0;
    std::int16_t to = 1, other = 0;
  };

 private:
  static constexpr std::size_t kSymbols = 257, kEnd = 256;  // characters and the end of the text
  static constexpr std::int16_t kUnknown = -1, kNone = -2, kMatched = -3;

  // Where matching may stand: steps that read a character or ask what is around them.
  struct Position {
    std::vector<std::uint16_t> steps;
    bool first = false, after_word = false;
    std::array<std::int16_t, kSymbols> next;
  };
  struct Reached;
  struct Around;

  void follow(std::size_t from, const Around* around, Reached& reached) const;
  std::int16_t advance(std::size_t from, std::size_t symbol) const;
  std::int16_t place(std::vector<std::uint16_t> steps, bool first, bool after_word) const;

  std::vector<Step> steps_;
  std::vector<Set> sets_;
  bool asks_words_ = false;
  std::string wrong_, unread_;
  mutable std::vector<Position> positions_;  // at most kMostPositions, the first of them the start
};

}  // namespace shardline::checkpoint
