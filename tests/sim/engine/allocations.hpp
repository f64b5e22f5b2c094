// Counts the allocations of the test program.
#pragma once

namespace shardline {

/// Calls of operator new since the program began, on all threads.
long allocations();

}  // namespace shardline
