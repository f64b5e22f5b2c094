// The library: questions in, result structs out. Every struct has a field list (fields.hpp), from which its
// JSON derives.
#pragma once

#include "planner/api/checks.hpp"
#include "planner/api/columns.hpp"
#include "planner/api/compare.hpp"
#include "planner/api/conversation.hpp"
#include "planner/api/error.hpp"
#include "planner/api/evaluate.hpp"
#include "planner/api/explain.hpp"
#include "planner/api/handoff.hpp"
#include "planner/api/list.hpp"
#include "planner/api/options.hpp"
#include "planner/api/partition.hpp"
#include "planner/api/plan.hpp"
#include "planner/api/quantities.hpp"
#include "planner/api/run.hpp"
#include "planner/api/serve.hpp"
#include "planner/api/simulate.hpp"
#include "planner/api/sweep.hpp"
#include "planner/api/thresholds.hpp"

namespace shardline::api {

/// The plans around a target, of a request in one line; a sweep of the scenario that it writes for itself.
/// RunOptions::engine empty: the one with most measured points of the model on the system. Throws Error.
PlanResult plan(const PlanQuestion& question, const RunOptions& options = {});

/// Every valid plan and batch of a scenario that sweeps, per model. Throws Error.
SweepResult sweep(const SweepQuestion& question, const RunOptions& options = {});

/// One plan of such a scenario. Throws Error.
SimulateResult simulate(const SimulateQuestion& question, const RunOptions& options = {});

/// Why a plan takes as long as it does, and what would change that. Throws Error.
ExplainResult explain(const ExplainQuestion& question, const RunOptions& options = {});

/// A request's cache, from a plan that prefills to one that decodes. Throws Error.
HandoffResult handoff(const HandoffQuestion& question, const RunOptions& options = {});

/// Requests one by one on a plan, and what their users see. Without an engine vLLM runs a model on a system.
/// Throws Error.
ServeResult serve(const ServeQuestion& question, const RunOptions& options = {});

/// Two plans side by side. Throws Error.
CompareResult compare(const CompareQuestion& question, const RunOptions& options = {});

/// When rings should pass KV and when queries, of a scenario with thresholds; with a trace also what rules
/// lose on it. Throws Error.
ThresholdsResult thresholds(const ThresholdsQuestion& question, const RunOptions& options = {});

/// How many tokens each rank of a KV-Runahead chain takes, of a scenario with a partition. Throws Error.
PartitionResult partition(const PartitionQuestion& question, const RunOptions& options = {});

/// Every turn of a scenario with a conversation. Throws Error.
ConversationResult conversation(const ScenarioQuestion& question, const RunOptions& options = {});

/// What there is: models, systems, strategies, options (of plans) or scenarios. Throws Error.
ListResult list(const std::string& what, const RunOptions& options = {});

}  // namespace shardline::api
