// Requests that come to one engine, served step by step; what their users see of it.
#pragma once

#include <cstdint>
#include <functional>

#include "planner/requests/step_times.hpp"
#include "planner/requests/vllm_scheduler.hpp"
#include "planner/serving/trace.hpp"
#include "sim/queue/quantiles.hpp"

namespace shardline {

/// One request that was answered. Times since the beginning of the trace.
struct AnsweredRequest {
  std::uint64_t number = 0;   // in the order in which they came, those that were refused not counted
  Seconds came, first, last;  // its first and its last token
  std::uint32_t prompt = 0, answer = 0, found = 0, preempted = 0;  // tokens; times
};

/// Seconds. TPOT is of requests of two tokens at least, (last - first) / (answer - 1); ITL is of every token
/// but the first of each.
struct ServedRequests {
  RunQuantiles ttft, tpot, itl, e2e;
  std::uint64_t answered = 0, refused = 0, preemptions = 0;
  std::uint64_t steps = 0, events = 0;  // an event plays one step or a stretch of them
  std::uint64_t prompt_tokens = 0, found_tokens = 0, answer_tokens = 0;
  Seconds end, busy;  // of the last step; all steps together
};

/// [R5] Plays requests to the end. `next` gives them in the order in which they come (checked), and false
/// after the last. With `jump`, steps that are alike are played as one event: k of them take
/// k start + slope k (k - 1) / 2; who comes meanwhile waits for the end of the step, as without.
ServedRequests play_requests(const std::function<bool(TraceRequest&)>& next, VllmScheduler& scheduler,
                             const StepTimes& times, bool jump = true,
                             const std::function<void(const AnsweredRequest&)>& answered = {});

}  // namespace shardline
