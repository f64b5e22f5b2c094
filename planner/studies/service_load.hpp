// Requests of a question as they come, for players. planner/requests/README.md [R7].
#pragma once

#include <cstdint>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "planner/serving/synthetic.hpp"
#include "planner/serving/trace.hpp"
#include "planner/studies/request_service.hpp"

namespace shardline {

/// What requests are and when they come, anew for every play: with one seed the same. `rate` of a trace is
/// the factor by which it is played faster; 0: as it is.
class ServiceLoad {
 public:
  ServiceLoad(const ServiceQuestion& question, const Case& c, double rate);
  ServiceLoad(const ServiceLoad&) = delete;  // the load points to it
  ServiceLoad& operator=(const ServiceLoad&) = delete;
  const ClusterLoad& load() const { return load_; }

 private:
  void trace_requests(const ServiceQuestion& question, double rate);

  SyntheticLaw law_;
  SyntheticRequests made_up_;
  std::uint64_t next_ = 0;
  std::ifstream file_;
  std::unique_ptr<TraceReader> reader_;
  std::deque<TraceRequest> read_;
  std::unique_ptr<Arrivals> arrivals_;
  ClusterLoad load_;
};

/// Requests and seconds of a trace.
struct TraceSize {
  std::uint64_t requests = 0;
  double seconds = 0, input = 0, output = 0;  // tokens, means
  std::int64_t longest = 0;                   // tokens of a prompt and its answer, at most
};
/// It is read to its end, so that every fault of it is told before anything is played: UserError. `step` is
/// called now and then and may throw to stop.
TraceSize size_of(const std::string& trace, const std::function<void(std::uint64_t, std::uint64_t)>& step);

}  // namespace shardline
