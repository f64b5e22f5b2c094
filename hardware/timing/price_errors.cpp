#include "hardware/timing/price_errors.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"

namespace shardline {

TaskError task_error(const Calibration& calibration, const PriceInterval& interval) {
  const ErrorBand& b = interval.band;
  return {true,
          source_of(calibration, interval),
          {std::exp(b.low), std::exp((b.low + b.high) / 2), std::exp(b.high)}};
}

std::array<double, 3> makespans_of_errors(const TaskGraph& graph, const Timeline& timeline,
                                          std::span<const TaskError> errors, ErrorSourceId source,
                                          std::vector<std::array<double, 3>>& ends) {
  SL_CHECK(timeline.spans.size() == graph.size() && errors.size() == graph.size(),
           "a span and an error of every task");
  ends.resize(graph.size());
  std::array<double, 3> last{};
  for (TaskId t = 0; t < graph.size(); ++t) {
    std::array<double, 3> end{};
    for (const TaskId d : graph.dependencies(t)) {
      for (std::size_t k = 0; k < end.size(); ++k) end[k] = std::max(end[k], ends[d][k]);
    }
    const double length = (timeline.spans[t].end - timeline.spans[t].start).value;
    const bool hit = errors[t].any && errors[t].source == source;
    for (std::size_t k = 0; k < end.size(); ++k) {
      end[k] += hit ? length * errors[t].factors[k] : length;
      last[k] = std::max(last[k], end[k]);
    }
    ends[t] = end;
  }
  return last;
}

}  // namespace shardline
