// A strategy is a row of one explicit table. A new one touches its file, the table, CMake and one scenario.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/ir/schedule.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// The values that one degree of a plan may take.
struct DegreeRange {
  int Plan::*degree;
  std::vector<int> values;  // ascending
};

/// Which plans a sweep looks at, apart from GPU counts and batches.
struct SearchSpace {
  std::vector<int> chunks{1};        // HOP-B chunk counts to try; 1 is off
  std::vector<int> prefill_chunks;   // tokens per chunk to try, beside whole requests
  std::vector<int> stages;           // pipeline stages to try; empty: every divisor of the GPU count
  bool duplicate_kv = false;         // let TPA exceed the KV heads in sequence-sharded strategies
  std::vector<DegreeRange> degrees;  // plans outside any of them are left out
};

struct Strategy {
  StrategyId id;
  const char* name;
  const char* summary;
  const char* source;
  bool decodes, prefills;  // phases it is for
  bool context_parallel;   // shards tokens over plan.cp ranks
  /// Appends all plans for exactly `gpus` GPUs, batch 1, in a fixed order. Every one passes check.
  void (*enumerate)(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out);
  /// Rules of this strategy beyond the common ones: the reason why a plan is impossible.
  std::optional<std::string> (*check)(const Case& c, const Plan& plan);
  void (*lower)(Schedule& schedule, const Case& c, const Plan& plan);
  bool exact = true;  // computes the same function as one device does
  /// Approximate strategies: part of the exact mask's (query, key) pairs that is computed.
  double (*computed)(const Case& c, const Plan& plan) = nullptr;
};

std::span<const Strategy* const> strategies();
const Strategy& strategy(StrategyId id);
/// Throws UserError with did-you-mean.
const Strategy& strategy(const std::string& name);

/// Part of the exact attention's (query, key) pairs that the plan computes; 1 for exact strategies.
double attention_computed(const Case& c, const Plan& plan);

/// The plan of a text (parse_plan), with what the case decides where the text is silent: the layout of a ring
/// that passes KV. A batch has a request for each chunk at least. Throws UserError as parse_plan does.
Plan plan_of(const Case& c, std::string_view text);

/// Why the plan cannot be run on the case (degrees that do not multiply out, more GPUs than there are, ...),
/// or nothing.
std::optional<std::string> check_plan(const Case& c, const Plan& plan);

/// Appends `plan` with each of these chunks that is shorter than the longest request, one microbatch in
/// flight.
void with_prefill_chunks(const Case& c, Plan plan, const SearchSpace& space, std::vector<Plan>& out);

/// Divisors of n, ascending.
std::vector<int> divisors(int n);
/// Appends `plan` with every (EP, TPF) that multiplies to `ranks`; EP is 1 for dense models.
void with_expert_splits(const Case& c, Plan plan, int ranks, std::vector<Plan>& out);

}  // namespace shardline
