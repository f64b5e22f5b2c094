// Long work of a report, step by step: whether it goes on, and how much of it there is.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <utility>

namespace shardline {

/// Asked before every step, by any thread. Work that begins a loop says how many steps it has, so that a
/// progress line can say how long they take; what has not begun is not known.
class WorkSteps {
 public:
  WorkSteps() = default;
  template <std::predicate GoOn>
  WorkSteps(GoOn go_on, std::function<void(std::uint64_t more)> expects = {})  // NOLINT: as the function
      : go_on_(std::move(go_on)), expects_(std::move(expects)) {}
  void expect(std::uint64_t more) const {
    if (expects_) expects_(more);
  }
  /// Whether to take the next step.
  bool go_on() const { return !go_on_ || go_on_(); }

 private:
  std::function<bool()> go_on_;
  std::function<void(std::uint64_t)> expects_;
};

}  // namespace shardline
