// What wrong prices do to the makespan of a graph that was played. hardware/README.md [H66].
#pragma once

#include <array>
#include <span>
#include <vector>

#include "hardware/cost/error_terms.hpp"
#include "hardware/timing/lowering.hpp"

namespace shardline {

/// A task's time if its price is as far off as the low end, the middle and the high end of its band say, as
/// multiples of what it is.
struct TaskError {
  bool any = false;  // a join has no price
  ErrorSourceId source = 0;
  std::array<double, 3> factors{1, 1, 1};
};
TaskError task_error(const Calibration& calibration, const PriceInterval& interval);

/// [H66] Seconds that a played graph takes if the tasks of one source take their factors' multiples of the
/// time that they took, whatever that consists of, and every task still begins when the last of its
/// dependencies ends. `errors` has an entry per task, the timeline is the graph's own; `ends` is scratch
/// space.
std::array<double, 3> makespans_of_errors(const TaskGraph& graph, const Timeline& timeline,
                                          std::span<const TaskError> errors, ErrorSourceId source,
                                          std::vector<std::array<double, 3>>& ends);

}  // namespace shardline
