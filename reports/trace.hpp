// Timelines as Chrome trace events, which Perfetto (ui.perfetto.dev) opens.
#pragma once

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

struct TraceNames {
  std::vector<std::pair<int, std::string>> processes;
  std::vector<std::pair<std::pair<int, int>, std::string>> lanes;  // {process, lane} -> name
};

std::string trace_json(const TraceNames& names, const std::vector<TraceEvent>& events);

}  // namespace shardline
