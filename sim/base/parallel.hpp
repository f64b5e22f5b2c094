// A loop over indices on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace shardline {

/// `asked` threads, or as many as there are cores where none are asked for; no more than 4 of each core,
/// or 16.
std::size_t thread_count(int asked);

/// Cores that this process may run on: all, unless it was bound to some (taskset, mpirun --bind-to).
std::size_t bound_cores();

/// So many of `asked` threads as the system makes; a refusal is kept for fewer_threads().
std::size_t threads_to_be_had(std::size_t asked);

/// 0, or where the system refused to make a thread, how many loops have run on since.
std::size_t fewer_threads();

/// 0, or where more threads were asked for than thread_count() gives, the most that it gives.
std::size_t threads_of_use();

/// Runs body(index, slot) for every index of [begin, end) on up to `threads` threads, on fewer
/// where the system makes no more. Two bodies that run at
/// once have different slots, below `threads`. Throws what a body throws, and Cancelled (cancel.hpp) between
/// two bodies.
void parallel_for(std::size_t begin, std::size_t end, std::size_t threads,
                  const std::function<void(std::size_t index, std::size_t slot)>& body);

}  // namespace shardline
