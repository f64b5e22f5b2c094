#include "sim/base/parallel.hpp"

#include <algorithm>
#include <thread>

#ifdef __SANITIZE_THREAD__
#include <atomic>
#include <vector>
#else
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#endif

namespace shardline {

std::size_t thread_count(int asked) {
  return asked > 0 ? static_cast<std::size_t>(asked)
                   : std::max<std::size_t>(1, std::thread::hardware_concurrency());
}

void parallel_for(std::size_t begin, std::size_t end, std::size_t threads,
                  const std::function<void(std::size_t index, std::size_t slot)>& body) {
  // Nothing is shared out, and a loop inside another does not hold the outer one to one thread.
  if (threads == 1) {
    for (std::size_t i = begin; i < end; ++i) body(i, 0);
    return;
  }
#ifdef __SANITIZE_THREAD__
  // The distribution's oneTBB is not instrumented: ThreadSanitizer would see races inside it, and so miss
  // ours.
  std::atomic<std::size_t> next{begin};
  std::vector<std::jthread> pool;
  for (std::size_t slot = 0; slot < threads; ++slot) {
    pool.emplace_back([&, slot] {
      for (std::size_t i = next++; i < end; i = next++) body(i, slot);
    });
  }
#else
  // More threads than cores only where they are asked for.
  const oneapi::tbb::global_control limit(oneapi::tbb::global_control::max_allowed_parallelism, threads);
  oneapi::tbb::task_arena arena(static_cast<int>(threads));
  arena.execute([&] {
    oneapi::tbb::parallel_for(begin, end, [&](std::size_t i) {
      body(i, static_cast<std::size_t>(oneapi::tbb::this_task_arena::current_thread_index()));
    });
  });
#endif
}

}  // namespace shardline
