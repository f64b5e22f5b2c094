// How far one long work is, told to whoever wants to show it: a prompt of a million chunks is a single step,
// but takes many seconds.
#pragma once

#include <cstdint>
#include <functional>

namespace shardline {

/// `what` is counted ("chunks"), `done` of `total` of it. Works that follow one another count anew.
using WorkListener = std::function<void(const char* what, std::uint64_t done, std::uint64_t total)>;

/// While it lives, tell_work() of this thread, and of no other, calls `listener`, which must outlive it.
/// Scopes nest: the inner one is told.
class WorkScope {
 public:
  explicit WorkScope(const WorkListener* listener);
  ~WorkScope();
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

 private:
  const WorkListener* outer_;
};

/// To be called in each turn of a loop of `total` turns that may last; cheap where nobody listens.
void tell_work(const char* what, std::uint64_t done, std::uint64_t total);

}  // namespace shardline
