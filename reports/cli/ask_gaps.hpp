// How long a command works between two questions whether to stop: for the test that no loop goes on for
// longer than 50 ms without asking (tests/golden/asks.py).
#pragma once

#include "sim/base/cancel.hpp"

namespace shardline::cli {

/// Asks by `interrupted`. Where SHARDLINE_ASK_GAPS names a file, the longest work of a thread between two
/// questions, in seconds of its processor, is written to it when the object ends, with where the first and
/// the second one were asked: addresses in the program, for addr2line. Work before a thread's first question
/// and behind the main thread's last one counts, too; but where that one was answered by yes, what is behind
/// it is written beside the longest, as the time that the end takes: memory of millions of ops is given back.
/// Processor time is what a signal would wait for on an
/// idle machine, whatever else runs. One at a time.
class AskGaps {
 public:
  explicit AskGaps(CancelQuestion interrupted);
  ~AskGaps();
  AskGaps(const AskGaps&) = delete;
  AskGaps& operator=(const AskGaps&) = delete;

  const CancelQuestion& question() const { return question_; }

 private:
  CancelQuestion interrupted_, question_;
};

}  // namespace shardline::cli
