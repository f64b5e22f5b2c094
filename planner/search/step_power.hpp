// Mean power of a GPU's board over a step, and the energy of what it computes. planner/README.md [P32].
#pragma once

#include <array>

#include "hardware/cost/error_terms.hpp"
#include "planner/requests/step_times.hpp"
#include "planner/search/evaluate.hpp"

namespace shardline {

/// Watts of one board, averaged over the time of a step and over the plan's ranks: of its kernels by the law
/// that they have [H78], and of the rest, in which it waits. Where kernels of two lanes overlap, `idle` is
/// less by what both have of it, and below 0 if they always do.
struct BoardWatts {
  std::array<double, kPowerClasses> kernels{};
  double idle = 0;

  double total() const;
  /// Of a time that consists of several, as Shares: each times its part of the whole.
  BoardWatts& operator+=(const BoardWatts& other);
  BoardWatts operator*(double part) const;
};

/// What a microbatch draws on its way through all stages of a schedule, of one board, the mean of the plan's.
/// All 0 where nothing is known of the power of the system's boards. `shared`: of feed-forward layers and
/// their sums alone, which compute the tokens of all attention groups.
struct PassEnergy {
  StepEnergy all, shared;
};
PassEnergy pass_energy(CostModel& cost, const Schedule& schedule);

/// Over a time in which kernels draw that; for a part of it, from 0 to 1, the board is off.
BoardWatts mean_watts(const BoardPower& power, const StepEnergy& kernels, Seconds time, double off = 0);
/// Of the schedule that `evaluator` has simulated last, in a step that takes `step`. All 0 where nothing is
/// known of the power of the system's boards.
BoardWatts board_watts(Evaluator& evaluator, Seconds step);

/// In parts of total(): the kernels of one law are off together, those of several apart, by squares.
ErrorRange watts_error(const BoardPower& power, const BoardWatts& watts);
/// [P32] Of watts / rate, in parts of it, where both may be off: by squares.
ErrorRange energy_error(const ErrorRange& watts, const ErrorRange& rate);

}  // namespace shardline
