// Tables over the rows of strategies: what a new degree or option adds to them stands nowhere else.
#pragma once

#include <string>
#include <vector>

#include "planner/strategies/strategy.hpp"

namespace shardline {

/// Names of the degrees, then of the options, that some strategy for such steps may set; in the order of
/// plans' text and of the table of strategies.
std::vector<std::string> plan_columns(StepKind kind);
/// Of a plan, under plan_columns(): empty for what its strategy does not read or the plan does not give a
/// value.
std::vector<std::string> plan_cells(const Plan& plan, StepKind kind);

/// A key of a plan's text beyond the degrees, for people.
struct OptionRow {
  std::string key, strategies, values, help;
};
std::vector<OptionRow> option_rows();
/// "pp, tpa, ep, tpf, in_flight; prefill_chunk": all that a plan of the strategy may set.
std::string keys_text(const Strategy& s);
/// "decode, prefill, mixed": the kinds of steps that it is for, as `phase` of a scenario names them.
std::string kinds_text(const Strategy& s);

}  // namespace shardline
