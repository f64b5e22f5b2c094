// Requests of a question as they come, for players. planner/requests/README.md [R7].
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "planner/serving/synthetic.hpp"
#include "planner/serving/trace.hpp"
#include "planner/studies/request_service.hpp"
#include "planner/studies/sized_trace.hpp"
#include "planner/studies/study_memory.hpp"

namespace shardline {

/// As many as are asked for, else all of the trace, ten of each user, or 2000.
std::uint64_t requests_played(const ServiceQuestion& question, const std::optional<TraceSize>& size);

/// Ids of blocks of kTraceBlock tokens of the prompts that may wait at once, with the room that TextMemory
/// has for them: of a closed loop those of all users, else of all requests.
double texts_waiting(const ServiceQuestion& q, const std::optional<TraceSize>& size);

/// The question's requests as need_of_requests() asks for them. `sends`: of a pair the server that prefills
/// sends caches. Blocks of caches are left to the caller.
PlayedRequests played_requests(const ServiceQuestion& q, const std::optional<TraceSize>& size, bool sends);

/// How many wait, and whether a load that is above what is answered lets the queue grow as long as it lasts:
/// by more than a fiftieth of the requests that come, from the middle third of them to the last, to a queue
/// that is no mere burst.
void note_queue(const ClusterRun& run, ServedLoadAnswer& out);

/// What requests are and when they come, anew for every play: with one seed the same. `rate` of a trace is
/// the factor by which it is played faster; 0: as it is. `size`: of the trace, where there is one.
class ServiceLoad {
 public:
  ServiceLoad(const ServiceQuestion& question, const Case& c, double rate,
              const std::optional<TraceSize>& size);
  ServiceLoad(const ServiceLoad&) = delete;  // the load points to it
  ServiceLoad& operator=(const ServiceLoad&) = delete;
  const ClusterLoad& load() const { return load_; }

 private:
  void trace_requests(double rate);

  SyntheticLaw law_;
  SyntheticRequests made_up_;
  std::uint64_t next_ = 0;
  std::optional<SizedTrace> trace_;
  std::deque<TraceRequest> read_;
  std::unique_ptr<Arrivals> arrivals_;
  ClusterLoad load_;
};

}  // namespace shardline
