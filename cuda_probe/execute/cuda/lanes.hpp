// Streams and events of the local ranks. Devices do not give them back, so those who run many schedules keep
// one Lanes.
#pragma once

#include <vector>

#include "cuda_probe/transport/transport.hpp"
#include "models/ir/schedule.hpp"

namespace shardline {

class Lanes {
 public:
  explicit Lanes(Transport& transport)
      : transport_(transport), ranks_(static_cast<std::size_t>(transport.ranks())) {
    for (int r = 0; r < transport.ranks(); ++r) {
      if (!transport.local(r)) continue;
      for (Stream& s : at(r).streams) s = transport.gpu(r).stream();
    }
  }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  Transport& transport() const { return transport_; }
  Stream stream(int rank, Lane lane) const {
    return ranks_[static_cast<std::size_t>(rank)].streams[static_cast<std::size_t>(lane)];
  }
  /// An event of the rank's device that was not given out since start_over().
  Event event(int rank) {
    Rank& r = at(rank);
    if (r.used == r.events.size()) r.events.push_back(transport_.gpu(rank).event());
    return r.events[r.used++];
  }
  /// All events may be given out again: whoever got them is done.
  void start_over() {
    for (Rank& r : ranks_) r.used = 0;
  }

 private:
  struct Rank {
    Stream streams[kLanes];  // unused for ranks of other processes
    std::vector<Event> events;
    std::size_t used = 0;
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  Transport& transport_;
  std::vector<Rank> ranks_;
};

}  // namespace shardline
