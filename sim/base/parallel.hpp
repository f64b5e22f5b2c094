// A loop over indices on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace shardline {

/// `asked` threads, or as many as there are cores where none are asked for.
std::size_t thread_count(int asked);

/// Runs body(index, slot) for every index of [begin, end) on up to `threads` threads. Two bodies that run at
/// once have different slots, below `threads`. Throws what a body throws.
void parallel_for(std::size_t begin, std::size_t end, std::size_t threads,
                  const std::function<void(std::size_t index, std::size_t slot)>& body);

}  // namespace shardline
