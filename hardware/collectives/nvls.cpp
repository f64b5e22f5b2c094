// In-switch reduction (NVLink SHARP): a rank reads its reduced 1/n through the switch and multicasts it.
#include "hardware/collectives/collective.hpp"

namespace shardline {

CollectiveTime nvls_all_reduce(const GroupFabric& g, Bytes bytes) {
  return {Algorithm::nvls, g.whole.latency * 2.0, bytes * (1 + 1.0 / g.size), g.whole.pairwise};
}

}  // namespace shardline
