// Internal to expression.cpp: the program of an expression's automaton.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/model/expression.hpp"

namespace shardline::checkpoint {

/// Reads an expression by Python's rules (re/_parser.py of CPython 3.12), one character after another: what a
/// part of it compiles to is the end of the program, whose steps are relative, so that repeating it copies
/// it.
class ExpressionProgram {
 public:
  explicit ExpressionProgram(std::string_view text);

  std::vector<Expression::Step> steps;
  std::vector<Expression::Set> sets;
  std::string wrong, unread;  // as Expression's

 private:
  struct Counts {
    std::size_t least, most;
  };
  // What a backslash or a part of a set stands for.
  struct Characters {
    Expression::Set set;
    std::optional<char> one;
  };

  void alternatives(std::size_t depth);
  void sequence(std::size_t depth);
  bool atom(std::size_t depth);
  void group(std::size_t depth);
  bool escape();
  void set_of_characters();
  Characters part_of_set();
  Characters escaped();
  Characters hexadecimal();
  std::optional<Counts> counts(std::size_t& at) const;
  void repeat(std::size_t begin, bool repeatable);
  void expand(std::size_t begin, const Counts& c);

  void add(Expression::Step step);
  void add(const Expression::Set& set);
  void add_character(char c);
  Expression::Set either_case(Expression::Set set) const;
  bool more() const { return at_ < text_.size(); }
  bool next_is(char c) const { return more() && text_[at_] == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool either_case_ = false;
};

}  // namespace shardline::checkpoint
