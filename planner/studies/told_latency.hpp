// What is told of the latencies of a play, of their values as they come.
#pragma once

#include <array>

#include "planner/requests/cluster.hpp"
#include "planner/studies/request_service.hpp"
#include "sim/queue/quantiles.hpp"

namespace shardline {

/// Values of a latency, of all requests and of parts of them in their order.
struct LatencyRecord {
  RunQuantiles all;
  std::array<RunQuantiles, ClusterRun::kParts> parts;
};

/// `pictures`: with a curve.
ToldLatency told(const LatencyRecord& record, bool pictures);

}  // namespace shardline
