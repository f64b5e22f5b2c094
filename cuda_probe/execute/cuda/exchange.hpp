// The messages of an op as calls of a transport, with copies where a region is not contiguous or would be
// overwritten before it is read.
#pragma once

#include <functional>
#include <vector>

#include "cuda_probe/execute/cuda/collective.hpp"
#include "cuda_probe/execute/cuda/memory.hpp"

namespace shardline {

/// Enqueues work; its memory and arguments stand.
using Launch = std::function<void(Gpu&, Stream)>;

struct CollectiveCall {
  Collective collective;
  std::vector<Buffers> buffers;  // one per member
};

/// What an op with messages enqueues: on each rank's stream `before`, then one exchange of all `messages` or
/// the collectives, then `after`.
struct ExchangePlan {
  std::vector<std::vector<Launch>> before, after;  // [rank]; empty on ranks of other processes
  std::vector<Message> messages;
  std::vector<CollectiveCall> collectives;
  bool empty() const { return messages.empty() && collectives.empty(); }
};

/// All sources are read before any target is written; adding and overwriting happens in the order of the
/// moves. With `collectives`, those of the library are used where the messages are theirs.
ExchangePlan plan_exchange(const Schedule& schedule, const Layout& layout, OpIndex op, Transport& transport,
                           RankMemory& memory, bool collectives);

/// Enqueues the plan; `streams` has one entry per rank.
void enqueue(const ExchangePlan& plan, Transport& transport, std::span<const Stream> streams);

}  // namespace shardline
