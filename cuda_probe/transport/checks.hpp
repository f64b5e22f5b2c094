// What every transport demands of its callers.
#pragma once

#include "cuda_probe/transport/transport.hpp"

namespace shardline {

/// Throws GpuError unless there is one stream per rank, ranks exist, and pointers of local ranks are not null
/// where bytes > 0.
void check_exchange(const Transport& transport, std::span<const Message> messages,
                    std::span<const Stream> streams);

/// Throws GpuError unless the group's ranks exist and ascend, there is one entry per member in both lists,
/// and pointers of local members are not null where count > 0. `name` of the collective begins the text.
void check_collective(const Transport& transport, const char* name, std::span<const int> group,
                      std::span<const Buffers> buffers, std::size_t count, std::span<const Stream> streams);

}  // namespace shardline
