// One valid step of any model, batch and plan, made of the bytes of an input.
#pragma once

#include "planner/plan/case.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/fuzz/choices.hpp"

namespace shardline::fuzz {

/// A step that check_plan() takes. `small`: so few tokens and so narrow that it can be computed on the CPU.
struct StepCase {
  Case* study = nullptr;  // one of the machine's, kept: a copy of a calibration takes milliseconds
  int machine = 0;
  Plan plan;
  bool small = false;
};

/// Throws UserError where what the bytes say is refused: by a rule between fields of a model, because no plan
/// of it can be timed, or by check_plan().
StepCase step_case(Choices& choose);

/// Why the step's plan has no better name: its text with the model and the batch, for a report.
std::string text_of(const StepCase& step);

}  // namespace shardline::fuzz
