// How far the time of a plan may be off. planner/README.md [P12].
#pragma once

#include <array>
#include <vector>

#include "hardware/timing/price_errors.hpp"

namespace shardline {

/// What errors of prices do to the time of a schedule whose blocks are played one by one.
class BlockErrors {
 public:
  /// `host` works beside the kernels of a step, off by the band of its system [P18].
  BlockErrors(CostModel& cost, const Schedule& schedule, Seconds host);
  /// A block as lower_block() lists its tasks, played. Every block once.
  void add(BlockIndex block, const TaskGraph& graph, const Timeline& timeline);
  /// In parts of the token time.
  ErrorTerms terms() const;

 private:
  struct Source {
    ErrorSourceId id;
    std::array<std::vector<double>, 3> makespans;  // [end of the band][block]
  };
  std::vector<double>& makespans(ErrorSourceId source, std::size_t end);

  CostModel& cost_;
  const Schedule& schedule_;
  const Seconds host_;
  std::vector<double> plain_;    // makespans without errors
  std::vector<Source> sources_;  // as they come
  std::vector<TaskError> errors_;
  std::vector<std::array<double, 3>> ends_;
};

/// The same of ranks of several classes, all of whose layers were played in the graph of lower_unfolded(): in
/// parts of its makespan, beside which `host` works.
ErrorTerms errors_of_classes(CostModel& cost, const Schedule& schedule, const TaskGraph& graph,
                             const Timeline& timeline, Seconds host);

}  // namespace shardline
