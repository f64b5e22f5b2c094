// Traces that are read twice and more: first for their length and faults, then as they are played.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "planner/serving/trace.hpp"
#include "sim/base/error.hpp"

namespace shardline {

/// Requests and seconds of a trace.
struct TraceSize {
  std::uint64_t requests = 0;
  double seconds = 0, input = 0, output = 0;  // tokens, means
  std::int64_t longest = 0;                   // tokens of a prompt and its answer, at most
  /// Of all that is said of the first `digested` requests, which are those that are played.
  std::uint64_t digested = 0, digest = 0;
  /// Ids of blocks of their prompts, as TextMemory has room for them.
  double texts = 0;
};

/// It is read to its end, so that every fault of it is told before anything is played: UserError. `played`:
/// its requests that will be, 0: all. `step` is called now and then and may throw to stop.
TraceSize size_of(const std::string& trace, std::uint64_t played,
                  const std::function<void(std::uint64_t, std::uint64_t)>& step);

/// UserError where a rate (in 1/s, above 0) is asked of a trace that has none: all of it comes at 0 s.
void require_pace(const std::string& trace, const TraceSize& size, double rate);

/// A trace is not what it was when its size was found: another program has written to it since.
class TraceChanged : public UserError {
 public:
  using UserError::UserError;
};

/// Requests of a trace whose size is known, which is found again or TraceChanged is thrown.
class SizedTrace {
 public:
  SizedTrace(const std::string& trace, const TraceSize& size);
  bool next(TraceRequest& out);

 private:
  [[noreturn]] void changed(std::string how) const;

  std::string name_;
  TraceSize size_;
  std::ifstream file_;
  std::optional<TraceReader> reader_;
  std::uint64_t rows_ = 0, digest_ = 0;  // of what was read
};

}  // namespace shardline
