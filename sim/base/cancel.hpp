// Ending work early: whoever starts it says how to ask, and loops that last ask.
#pragma once

#include <functional>
#include <stdexcept>

namespace shardline {

/// Thrown by check_cancelled(): the work was not done, and nothing is wrong with it.
class Cancelled : public std::runtime_error {
 public:
  Cancelled() : std::runtime_error("interrupted") {}
};

/// Whether to stop; asked from any thread, and often: it must be cheap.
using CancelQuestion = std::function<bool()>;

/// While it lives, check_cancelled() of this thread, and of those that parallel_for gives a part of its work,
/// asks `question`, which must outlive it. Scopes nest: the inner one is asked.
class CancelScope {
 public:
  explicit CancelScope(const CancelQuestion* question);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  const CancelQuestion* outer_;
};

/// What this thread asks, to be given to another; null where nobody can cancel.
const CancelQuestion* cancel_question();

/// Throws Cancelled where the work of this thread is to stop. To be called at least every few milliseconds by
/// what lasts longer than 50 ms.
void check_cancelled();

/// The same, once in `kEvery` calls: for loops of short turns.
class CancelCheck {
 public:
  void operator()() {
    if (++turns_ % kEvery == 0) check_cancelled();
  }

 private:
  static constexpr unsigned kEvery = 256;
  unsigned turns_ = 0;
};

}  // namespace shardline
