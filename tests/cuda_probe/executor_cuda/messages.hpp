// Schedules of messages only. Slots hold small integers, so that sums are exact in bfloat16.
#pragma once

#include <vector>

#include "tests/cuda_probe/executor_cuda/cases.hpp"

namespace shardline::testing {

/// `slots` slots of rows x columns on each rank, all of them inputs and outputs.
struct Messages {
  Messages(int ranks, int slots, std::int64_t rows, std::int64_t columns);
  /// A new op, after the one before.
  OpIndex begin(OpKind kind, Group group = {});
  void move(const Move& m) { schedule.flow->move(op, m); }
  void finish();

  Schedule schedule;
  ScheduleBuilder builder;
  Inputs inputs;
  OpIndex op;
};

}  // namespace shardline::testing
