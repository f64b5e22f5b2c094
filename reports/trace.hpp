// Timelines as Chrome trace events, which Perfetto (ui.perfetto.dev) opens.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/units.hpp"

namespace shardline {

struct TraceEvent {
  int process = 0;  // shown as one group: a pipeline stage or rank
  int lane = 0;
  std::string name, category;
  Seconds start, duration;
  std::vector<std::pair<std::string, std::string>> arguments;
};

/// An arrow: the event `to` waited for the event `from`, by their places in the list of events. An event that
/// lasts less than a nanosecond gets none.
struct TraceFlow {
  std::size_t from = 0, to = 0;
  std::string name;
};

struct TraceNames {
  std::vector<std::pair<int, std::string>> processes;
  std::vector<std::pair<std::pair<int, int>, std::string>> lanes;  // {process, lane} -> name
  std::optional<int> top{};  // the process that is shown above the others
};

std::string trace_json(const TraceNames& names, const std::vector<TraceEvent>& events,
                       const std::vector<TraceFlow>& flows = {});

}  // namespace shardline
