// Closed forms for repeated structure: the engine's exact answers without unrolling the graph.
#pragma once

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// One pass of a customer through a series of FIFO stations, each serving one customer at a time.
struct Cycle {
  Seconds latency;  // the whole pass with no other customer present: services and hops
  Seconds busiest;  // the longest service
};

/// `count` >= 0 equal blocks, each starting when all of the one before has ended [S7].
inline Seconds repeat(Seconds block_makespan, long count) {
  SL_CHECK(count >= 0, "a block is repeated zero times or more");
  return block_makespan * static_cast<double>(count);
}

/// `count` >= 1 equal customers that arrive together and pass the stations once, in order [S8].
inline Seconds pipeline(Cycle pass, long count) {
  SL_CHECK(count >= 1, "a pipeline carries one customer or more");
  return pass.latency + pass.busiest * static_cast<double>(count - 1);
}

/// The steady time of one round of `in_flight` >= 1 equal customers that circulate through the stations of a
/// ring; `round_trip` is a lone customer's [S9].
inline Seconds steady_period(Seconds round_trip, Seconds busiest_station, int in_flight) {
  SL_CHECK(in_flight >= 1, "a ring carries one customer or more");
  return std::max(round_trip, busiest_station * static_cast<double>(in_flight));
}
inline Seconds steady_period(Cycle cycle, int in_flight) {
  return steady_period(cycle.latency, cycle.busiest, in_flight);
}

}  // namespace shardline
