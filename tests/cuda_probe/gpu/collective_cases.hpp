// Random exchanges and collectives whose results are known; for any transport whose ranks are all local.
#pragma once

#include <string>

#include "cuda_probe/transport/transport.hpp"

namespace shardline {

/// Three exchanges of random messages (several per pair, to self, of zero bytes), the second out of what the
/// first brought, the third after the senders overwrote what they sent; no wait of the host between. Returns
/// what is wrong, the text of a GpuError, or "".
std::string exchange_fault(Transport& transport, std::uint64_t seed);

/// All collectives, out of place and in place, over a random subset of ranks and over all, each three times
/// back to back on the same buffers with new contents; no wait of the host between. Same result.
std::string collectives_fault(Transport& transport, std::uint64_t seed);

}  // namespace shardline
