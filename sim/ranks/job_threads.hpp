// Threads of one process that do jobs as they are given. sim/README.md [S19].
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "sim/base/cancel.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// What a job's bytes ask for, as bytes. Called by several threads at once; the same bytes have the same
/// answer in every process.
using DoJob = std::function<std::string(std::string_view job)>;

struct FinishedJob {
  std::uint64_t id = 0;
  std::string result;
  std::exception_ptr fault;  // in place of a result
};

/// Jobs ask whoever may cancel the thread that made this; its memory limit is theirs, and its words. The end
/// of this ends them, as they ask.
class JobThreads {
 public:
  /// On fewer where the system makes no more; where it makes none, whoever waits does the jobs.
  JobThreads(std::size_t threads, DoJob job);
  ~JobThreads();
  JobThreads(const JobThreads&) = delete;
  JobThreads& operator=(const JobThreads&) = delete;

  std::size_t count() const { return std::max<std::size_t>(threads_.size(), 1); }
  void push(std::uint64_t id, std::string job);
  /// What was finished since the last call.
  std::vector<FinishedJob> finished();
  /// Returns once a job is finished, and after `most` in any case where there are threads.
  void wait(std::chrono::microseconds most);

 private:
  void work();
  void do_next(std::unique_lock<std::mutex>& lock);

  DoJob job_;
  const CancelQuestion* outer_;
  std::optional<Bytes> memory_;
  bool library_;
  CancelQuestion stopping_;
  std::mutex mutex_;
  std::condition_variable given_, done_;
  std::deque<std::pair<std::uint64_t, std::string>> waiting_;
  std::vector<FinishedJob> finished_;
  std::size_t unfinished_ = 0;  // of those that were given
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace shardline
