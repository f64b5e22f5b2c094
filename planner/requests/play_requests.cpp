#include "planner/requests/play_requests.hpp"

#include <limits>
#include <optional>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

ServedRequests play_requests(const std::function<bool(TraceRequest&)>& next, Scheduler& scheduler,
                             const StepTimes& times, bool jump,
                             const std::function<void(const AnsweredRequest&)>& answered) {
  PlayedEngine engine(scheduler, times, jump, answered);
  std::optional<TraceRequest> coming;
  std::uint64_t number = 0;
  const auto read = [&] {
    TraceRequest request;
    const Seconds before = coming ? coming->arrival : Seconds(0);
    coming.reset();
    if (!next(request)) return;
    SL_CHECK(request.arrival >= before, "requests come in order");
    request.number = number++;
    coming = std::move(request);
  };
  read();
  while (coming || !engine.idle()) {
    if (coming && (engine.idle() || coming->arrival <= engine.now())) {
      engine.take(*coming, coming->arrival);
      read();
    } else {
      engine.play(coming ? coming->arrival : Seconds(std::numeric_limits<double>::infinity()));
    }
  }
  return engine.take_served();
}

}  // namespace shardline
