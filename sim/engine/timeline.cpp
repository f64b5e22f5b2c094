#include "sim/engine/timeline.hpp"

#include <algorithm>
#include <span>

#include "sim/base/error.hpp"

namespace shardline {

Seconds Timeline::makespan() const {
  Seconds latest;
  for (const Span& span : spans) latest = std::max(latest, span.end);
  return latest;
}

std::vector<TaskId> critical_path(const TaskGraph& graph, const Timeline& timeline) {
  const std::vector<Span>& spans = timeline.spans;
  SL_CHECK(spans.size() == graph.size(), "the timeline has one span per task of the graph");
  const auto decides_before = [&](TaskId a, TaskId b) {
    return spans[a].end > spans[b].end || (spans[a].end == spans[b].end && a < b);
  };
  std::vector<TaskId> path;
  if (spans.empty()) return path;
  TaskId current = 0;
  for (TaskId id = 1; id < graph.size(); ++id) {
    if (decides_before(id, current)) current = id;
  }
  path.push_back(current);
  for (auto before = graph.dependencies(current); !before.empty(); before = graph.dependencies(current)) {
    const TaskId decisive = *std::min_element(before.begin(), before.end(), decides_before);
    SL_CHECK(spans[decisive].end == spans[current].start, "the timeline belongs to the graph");
    current = decisive;
    path.push_back(current);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace shardline
