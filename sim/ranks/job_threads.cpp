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
  while (threads_.size() < threads) {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;
      break;
    } catch (const std::bad_alloc&) {  // those that run already would end the process
      if (threads_.empty()) throw;
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
    waiting_.emplace_back(id, std::move(job));
  }
  given_.notify_one();
}

std::vector<FinishedJob> JobThreads::finished() {
  const std::lock_guard lock(mutex_);
  return std::exchange(finished_, {});
}

void JobThreads::wait(std::chrono::microseconds most) {
  std::unique_lock lock(mutex_);
  done_.wait_for(lock, most, [this] { return !finished_.empty(); });
}

void JobThreads::work() {
  const CancelScope scope(&stopping_);
  const MemoryScope limited(memory_);
  const LibraryArguments names(library_);
  std::unique_lock lock(mutex_);
  while (true) {
    given_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    auto [id, bytes] = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    FinishedJob done{id, {}, {}};
    try {
      done.result = job_(bytes);
    } catch (...) {
      done.fault = std::current_exception();
    }
    lock.lock();
    finished_.push_back(std::move(done));
    done_.notify_one();
  }
}

}  // namespace shardline
