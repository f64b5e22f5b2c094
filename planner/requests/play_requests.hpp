// Requests that come to one engine, served step by step; what their users see of it.
#pragma once

#include <functional>

#include "planner/requests/played_engine.hpp"

namespace shardline {

/// [R5] Plays requests to the end. `next` gives them in the order in which they come (checked), and false
/// after the last. With `jump`, steps that are alike are played as one event: k of them take
/// k start + slope k (k - 1) / 2; who comes meanwhile waits for the end of the step, as without.
ServedRequests play_requests(const std::function<bool(TraceRequest&)>& next, Scheduler& scheduler,
                             const StepTimes& times, bool jump = true,
                             const std::function<void(const AnsweredRequest&)>& answered = {});

}  // namespace shardline
