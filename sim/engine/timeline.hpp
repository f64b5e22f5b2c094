// When each task ran, and which tasks decided the end.
#pragma once

#include <vector>

#include "sim/base/units.hpp"
#include "sim/engine/task_graph.hpp"

namespace shardline {

/// A task's life [S1]: from the end of its last dependency, through its latency, to the end of its work.
struct Span {
  Seconds start;
  Seconds end;
  bool operator==(const Span&) const = default;
};

/// One span per task, by id.
struct Timeline {
  std::vector<Span> spans;
  /// The latest end; zero without tasks. Linear in the number of tasks.
  Seconds makespan() const;
};

/// A chain of tasks, each starting when the one before ends, from time zero to the makespan [S6]; ties go to
/// the smallest id. The timeline must be the graph's own (checked).
std::vector<TaskId> critical_path(const TaskGraph& graph, const Timeline& timeline);

}  // namespace shardline
