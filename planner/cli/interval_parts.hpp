// How far times and rates may be off, as text. hardware/README.md [H65].
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/scenario/scenario.hpp"
#include "planner/studies/plan_intervals.hpp"
#include "planner/studies/sweep.hpp"

namespace shardline::cli {

/// "  costs: fitted to measurements of ...", on as many lines as it takes.
std::string costs_line(const System& system);

/// Title of a column of intervals.
inline constexpr const char* kIntervalColumn = "90 %";

/// The title where prices are calibrated; else nothing.
std::vector<std::string> interval_header(const System& system);
/// Cells one after the other.
std::vector<std::string> joined_cells(std::initializer_list<std::vector<std::string>> parts);
/// "-11/+14 %"
std::string range_text(const ErrorRange& range);
/// "-11/+14 %" of a time or a rate where prices are calibrated; else nothing, since all are off alike.
std::vector<std::string> time_cells(const System& system, const ErrorTerms& errors);
std::vector<std::string> rate_cells(const System& system, const ErrorTerms& errors);
/// Those of a study's plans: of what is served, where it has a workload.
std::vector<std::string> time_cells(const Study& study, const ErrorTerms& errors);
std::vector<std::string> rate_cells(const Study& study, const ErrorTerms& errors);
/// "-31/+120 %", "not measured", or "off by up to 4.2x", which is no interval, where it would say nothing.
std::string ttft_range_text(const std::optional<ErrorRange>& range);
std::vector<std::string> ttft_cells(const Study& study, const Point& point, const ErrorTerms& errors);
/// Users of so many replicas of a plan: "64", or "64 (24 wait)" where memory has no room for some.
std::string users_text(const Case& c, const Point& point, long long replicas = 1);
/// What is taken for granted of attention data parallelism [P37].
const char* groups_text(const EngineProfile& engine, bool equal_lengths);
/// The same of a pool that prefills alone.
extern const char* const kPromptsTogether;
/// What is said of a plan that preempts().
extern const char* const kPreempts;
/// The rows that do: "row 2, 3: memory-capped: ..."; empty of none.
std::string capped_text(const Study& study, const std::vector<Point>& rows);
/// Rows whose attention groups an option of the engine would have hold prompts back for each other [P38];
/// empty of none.
std::string delayer_text(const Study& study, const std::vector<Point>& rows);
/// The same with the plans' texts, of tables that name no rows: the first of them, and how many more.
std::string capped_plans_text(const Study& study, const std::vector<Point>& points);
/// Which points the interval of a TTFT is of: "by 24 points of 5 to 16 users with drawn lengths, all of
/// llama-3.1-70b fp8"; or why it has none: "not measured: ...".
std::string ttft_evidence(const Study& study, const Point& point);
/// Whether points of a system are among those that an engine's profile was fitted to.
bool was_measured_on(const EngineProfile& engine, const System& system);
/// In which it is unlike all of these points, with what they were: "131,072 tokens of a prompt (922 to
/// 8,192), 72 GPUs (1 to 8)". Empty: in nothing.
std::string beyond_loops(const EngineProfile& engine, const ServedWorkload& load, double users, int gpus);
/// A line below tables of plans: what their intervals are, or which one all times have.
std::string interval_note(const Case& c);
std::string interval_note(const Study& study);
/// What throughputs of a study are of: ", served by vLLM 0.24.0", ", decode only under ...", ", ideal (bare
/// kernels".
std::string throughput_text(const Study& study);

/// time_error() where prices are calibrated; else nothing, likewise.
ErrorRange shown_error(const System& system, const ErrorTerms& errors);
/// The sources that make an interval, the widest first, at most three: "gemm nvfp4 torch_flow -5/+6 %, ...".
std::string sources_text(const System& system, const ErrorTerms& errors);

/// Lines of a sweep: where other strategies may be the best in truth. Empty where one strategy has plans, or
/// where no price is calibrated.
std::string open_budgets_text(const SweepAnswer& answer);
std::string open_rows_text(const Study& study, const SweepAnswer& answer);
/// Of the plans that meet a target: those that may miss its time, and those that may be ahead of the first.
std::string open_target_text(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked);
/// How much faster the candidate's fastest plan may be than the baseline's. Empty likewise, and without a
/// comparison.
std::string open_gain_text(const SweepAnswer& answer);

}  // namespace shardline::cli
