#include "sim/ranks/job_threads.hpp"

#include <new>
#include <system_error>

#include "sim/base/argument_names.hpp"
#include "sim/base/memory_limit.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

JobThreads::JobThreads(std::size_t threads, DoJob job)
    : job_(std::move(job)),
      outer_(cancel_question()),
      memory_(scoped_memory()),
      library_(asked_by_library()) {
  stopping_ = [this] { return stop_ || (outer_ != nullptr && (*outer_)()); };
  threads = threads_to_be_had(threads);
  threads_.reserve(threads);  // threads that run cannot be given up where there is no room for the next
  while (threads_.size() < threads) {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      break;
    } catch (const std::bad_alloc&) {
      break;
    }
  }
}

JobThreads::~JobThreads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  given_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void JobThreads::push(std::uint64_t id, std::string job) {
  {
    const std::lock_guard lock(mutex_);
    finished_.reserve(finished_.size() + unfinished_ + 1);
    waiting_.emplace_back(id, std::move(job));
    ++unfinished_;
  }
  given_.notify_one();
}

std::vector<FinishedJob> JobThreads::finished() {
  const std::lock_guard lock(mutex_);
  std::vector<FinishedJob> next;
  next.reserve(unfinished_);
  return std::exchange(finished_, std::move(next));
}

void JobThreads::wait(std::chrono::microseconds most) {
  std::unique_lock lock(mutex_);
  if (threads_.empty() && !waiting_.empty()) return do_next(lock);
  done_.wait_for(lock, most, [this] { return !finished_.empty(); });
}

// There is room for it among the finished: a thread has nobody to tell that there is none.
void JobThreads::do_next(std::unique_lock<std::mutex>& lock) {
  FinishedJob done{waiting_.front().first, {}, {}};
  const std::string bytes = std::move(waiting_.front().second);
  waiting_.pop_front();
  lock.unlock();
  try {
    done.result = job_(bytes);
  } catch (...) {
    done.fault = std::current_exception();
  }
  lock.lock();
  --unfinished_;
  finished_.push_back(std::move(done));
}

void JobThreads::work() {
  const CancelScope scope(&stopping_);
  const MemoryScope limited(memory_);
  const LibraryArguments names(library_);
  std::unique_lock lock(mutex_);
  while (true) {
    given_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    do_next(lock);
    done_.notify_one();
  }
}

}  // namespace shardline
