#include "sim/base/parallel.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "sim/base/argument_names.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/memory_limit.hpp"

#ifndef __SANITIZE_THREAD__
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#endif

namespace shardline {

namespace {

// More threads than were ever made are tried before they are used: where the system refuses one, oneTBB ends
// the process.
class ThreadsToBeHad {
 public:
  std::size_t of(std::size_t asked) {
    const std::lock_guard lock(mutex_);
    if (asked <= made_ || refused_) return std::min(asked, std::max<std::size_t>(made_, 1));
    std::latch all(1);  // outlives those who wait
    std::vector<std::jthread> others;
    try {
      while (others.size() + 1 < asked) others.emplace_back([&all] { all.wait(); });
    } catch (const std::system_error&) {
      refused_ = true;
    } catch (const std::bad_alloc&) {
      refused_ = true;
    }
    // Others are made in the meantime, and oneTBB's need memory of their own.
    made_ = 1 + (refused_ ? others.size() / 2 : others.size());
    all.count_down();
    return made_;
  }
  std::size_t refused() {
    const std::lock_guard lock(mutex_);
    return refused_ ? made_ : 0;
  }

 private:
  std::mutex mutex_;
  std::size_t made_ = 1;
  bool refused_ = false;
};

ThreadsToBeHad& all_threads() {
  static ThreadsToBeHad all;
  return all;
}

#ifndef __SANITIZE_THREAD__
// More threads than cores only where they are asked for, by the limit of the process: of several that stand
// at once oneTBB takes the least, and warns on standard error of what an arena asks for beyond. Each loop has
// an arena of its own size.
void allow_threads(std::size_t threads) {
  using Limit = oneapi::tbb::global_control;
  static std::mutex mutex;
  static Limit* limit = nullptr;  // there until the process is gone
  const std::lock_guard lock(mutex);
  if (threads <= Limit::active_value(Limit::max_allowed_parallelism)) return;
  delete limit;
  limit = new Limit(Limit::max_allowed_parallelism, threads);
}
#endif

// Threads that wait for a core gain nothing, have to be given one to hear that they are to stop, and each has
// memory of its own: 1,024 on two cores take seconds to begin and to end. Some more than cores are let be.
constexpr std::size_t kPerCore = 4, kAlways = 16;
std::atomic<std::size_t> g_most_of_use = 0;  // where more were asked for

}  // namespace

std::size_t bound_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return thread_count(0);  // more than a set holds
  return static_cast<std::size_t>(std::max(1, CPU_COUNT(&cores)));
}

std::size_t threads_to_be_had(std::size_t asked) { return all_threads().of(asked); }

std::size_t fewer_threads() { return all_threads().refused(); }

std::size_t threads_of_use() { return g_most_of_use.load(std::memory_order_relaxed); }

std::size_t thread_count(int asked) {
  if (asked <= 0) return std::max<std::size_t>(1, std::thread::hardware_concurrency());
  const std::size_t threads = static_cast<std::size_t>(asked),
                    most = std::max(kAlways, kPerCore * bound_cores());
  if (threads > most) g_most_of_use.store(most, std::memory_order_relaxed);
  return std::min(threads, most);
}

void parallel_for(std::size_t begin, std::size_t end, std::size_t asked,
                  const std::function<void(std::size_t index, std::size_t slot)>& body) {
  // Nothing is shared out, and a loop inside another does not hold the outer one to one thread.
  const std::size_t threads = all_threads().of(std::min(asked, std::max<std::size_t>(end - begin, 1)));
  if (threads == 1) {
    for (std::size_t i = begin; i < end; ++i) {
      check_cancelled();
      body(i, 0);
    }
    return;
  }
  const CancelQuestion* const question = cancel_question();
  const std::optional<Bytes> memory = scoped_memory();
  const bool library = asked_by_library();
#ifdef __SANITIZE_THREAD__
  // The distribution's oneTBB is not instrumented: ThreadSanitizer would see races inside it, and so miss
  // ours.
  std::atomic<std::size_t> next{begin};
  std::vector<std::jthread> pool;
  for (std::size_t slot = 0; slot < threads; ++slot) {
    pool.emplace_back([&, slot] {
      const CancelScope scope(question);
      const MemoryScope limited(memory);
      const LibraryArguments names(library);
      for (std::size_t i = next++; i < end; i = next++) body(i, slot);
    });
  }
#else
  allow_threads(threads);
  oneapi::tbb::task_arena arena(static_cast<int>(threads));
  arena.execute([&] {
    oneapi::tbb::parallel_for(begin, end, [&](std::size_t i) {
      const CancelScope scope(question);
      const MemoryScope limited(memory);
      const LibraryArguments names(library);
      check_cancelled();
      body(i, static_cast<std::size_t>(oneapi::tbb::this_task_arena::current_thread_index()));
    });
  });
#endif
}

}  // namespace shardline
