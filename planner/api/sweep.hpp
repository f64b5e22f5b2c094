// sweep: every valid plan and batch of a scenario, and those that nothing beats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/api/noise.hpp"
#include "planner/api/plan_point.hpp"
#include "planner/api/pools.hpp"
#include "planner/api/setting.hpp"

namespace shardline::api {

struct SweepQuestion {
  std::string scenario;
  std::string scenario_text;
  std::optional<double> most_ttl_s;
  std::optional<double> least_tokens_per_s_user;
  std::optional<double> most_ttft_s;
  std::optional<double> least_users;
  bool exhaustive = false;
  bool keep_all = false;
};
template <>
struct Fields<SweepQuestion> {
  static constexpr const char* name = "SweepQuestion";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What a sweep is asked.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using Q = SweepQuestion;
    field("scenario", &Q::scenario, "name of a shipped scenario, or a file");
    field("scenario_text", &Q::scenario_text,
          "the scenario itself, in YAML, in place of a file; empty: as `scenario` says");
    field("most_ttl_s", &Q::most_ttl_s, "target for TTL, or TPOT where a workload is served; null: none");
    field("least_tokens_per_s_user", &Q::least_tokens_per_s_user,
          "the same as the least tokens/s of a user; null: none");
    field("most_ttft_s", &Q::most_ttft_s, "target for TTFT, of prefills and workloads; null: the scenario's");
    field("least_users", &Q::least_users, "users to serve at once, at least; null: any");
    field("exhaustive", &Q::exhaustive, "simulate every feasible configuration, without pruning");
    field("keep_all", &Q::keep_all, "and keep them, as `all` of a ModelSweep");
  }
};

struct SweepCounts {
  std::uint64_t plans = 0;
  std::uint64_t configurations = 0;
  std::uint64_t infeasible = 0;
  std::uint64_t simulated = 0;
  std::uint64_t bounds = 0;
  std::uint64_t pruned = 0;
  std::uint64_t over_budget = 0;
  std::uint64_t partitions = 0;
  double seconds = 0;
};
template <>
struct Fields<SweepCounts> {
  static constexpr const char* name = "SweepCounts";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What a search looked at.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using C = SweepCounts;
    field("plans", &C::plans, "plans before the batch is chosen");
    field("configurations", &C::configurations, "plans x batches");
    field("infeasible", &C::infeasible, "of these, not fitting memory or serving too few users");
    field("simulated", &C::simulated, "by events");
    field("bounds", &C::bounds, "lower bounds that were computed");
    field("pruned", &C::pruned, "ruled out by a bound");
    field("over_budget", &C::over_budget, "simulated, and above a limit of the scenario");
    field("partitions", &C::partitions, "chains priced in search of partitions");
    field("seconds", &C::seconds, "wall clock; the one number that differs from run to run");
  }
};

struct Rejected {
  std::string reason;
  std::uint64_t configurations = 0;
};
template <>
struct Fields<Rejected> {
  static constexpr const char* name = "Rejected";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Configurations that do not fit.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("reason", &Rejected::reason, "why");
    field("configurations", &Rejected::configurations, "how many");
  }
};

struct NotStarted {
  std::string rule;
  std::uint64_t plans = 0;
  std::string says;
  std::string first;
  std::string source;
};
template <>
struct Fields<NotStarted> {
  static constexpr const char* name = "NotStarted";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "Plans that the engine does not start, by the first rule that refuses each.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("rule", &NotStarted::rule, "its name");
    field("plans", &NotStarted::plans, "how many it refuses");
    field("says", &NotStarted::says, "the rule in a sentence");
    field("first", &NotStarted::first, "what it has against the first of them");
    field("source", &NotStarted::source, "where the engine's source says so");
  }
};

struct WithoutPlans {
  std::string strategy;
  std::string reason;
};
template <>
struct Fields<WithoutPlans> {
  static constexpr const char* name = "WithoutPlans";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A strategy of which nothing was looked at.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("strategy", &WithoutPlans::strategy, "its name");
    field("reason", &WithoutPlans::reason, "why");
  }
};

struct BudgetPlan {
  double budget_s = 0;
  PlanPoint best;
  std::vector<std::string> maybe_better;
};
template <>
struct Fields<BudgetPlan> {
  static constexpr const char* name = "BudgetPlan";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "The plan with most tokens/s/GPU within a budget of TTL or TPOT.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("budget_s", &BudgetPlan::budget_s, "the budget");
    field("best", &BudgetPlan::best, "the plan");
    field("maybe_better", &BudgetPlan::maybe_better,
          "other strategies that may be the best here, as prices may be off");
  }
};

struct FrontierPlan {
  PlanPoint point;
  std::vector<std::string> maybe_better;
};
template <>
struct Fields<FrontierPlan> {
  static constexpr const char* name = "FrontierPlan";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A plan that no other beats on both axes.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("point", &FrontierPlan::point, "the plan");
    field("maybe_better", &FrontierPlan::maybe_better,
          "other strategies that may be ahead on the y axis and as good on the x axis, as prices may be off");
  }
};

struct MeetingPlan {
  PlanPoint point;
  bool may_miss = false;
  bool ttft_error_unknown = false;
  bool maybe_first = false;
};
template <>
struct Fields<MeetingPlan> {
  static constexpr const char* name = "MeetingPlan";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A plan that meets the target.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("point", &MeetingPlan::point, "the plan");
    field("may_miss", &MeetingPlan::may_miss, "whether its interval reaches beyond the target");
    field("ttft_error_unknown", &MeetingPlan::ttft_error_unknown,
          "whether nobody knows that of its TTFT, whose error was not measured");
    field("maybe_first", &MeetingPlan::maybe_first,
          "whether it is not told apart from the first of the list, as prices may be off");
  }
};

struct GainPoint {
  double slack = 0;
  double gain = 0;
};
template <>
struct Fields<GainPoint> {
  static constexpr const char* name = "GainPoint";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Throughput of two groups within the same budget.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("slack", &GainPoint::slack, "TTL budget over the baseline's lowest TTL, less 1");
    field("gain", &GainPoint::gain, "tokens/s/GPU of the candidate over that of the baseline");
  }
};

struct Gain {
  std::vector<std::string> candidate;
  std::vector<std::string> baseline;
  Estimate interactivity;
  double throughput = 0;
  double geometric_mean = 0;
  std::vector<GainPoint> curve;
};
template <>
struct Fields<Gain> {
  static constexpr const char* name = "Gain";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "The best of some strategies over the best of others, as ratios.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("candidate", &Gain::candidate, "strategies");
    field("baseline", &Gain::baseline, "strategies that they are held against");
    field("interactivity", &Gain::interactivity, "lowest TTL of the baseline over that of the candidate");
    field("throughput", &Gain::throughput, "of tokens/s/GPU at the baseline's lowest TTL");
    field("geometric_mean", &Gain::geometric_mean,
          "of the same over budgets of 1 to 2 times the baseline's lowest TTL");
    field("curve", &Gain::curve, "these budgets one by one");
  }
};

struct ModelSweep {
  Setting setting;
  bool met = false;
  std::string x_axis;
  std::string y_axis;
  SweepCounts counts;
  std::vector<Rejected> rejected;
  std::vector<NotStarted> not_started;
  std::vector<WithoutPlans> without_plans;
  std::vector<std::string> unused_values;
  std::vector<PlanPoint> points;
  std::vector<FrontierPlan> frontier;
  std::optional<std::vector<PlanPoint>> all;
  std::vector<MeetingPlan> meeting;
  std::vector<BudgetPlan> budgets;
  std::optional<PlanPoint> nearest;
  std::optional<Gain> gain;
  std::vector<PoolPair> pools;
  std::optional<NoiseSpec> noise;
  std::vector<NoisyPlan> noisy;
  std::vector<Diagnostic> warnings;
};
template <>
struct Fields<ModelSweep> {
  static constexpr const char* name = "ModelSweep";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "The sweep of one model of a scenario.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using M = ModelSweep;
    field("setting", &M::setting, "what all numbers are of");
    field("met", &M::met, "whether a plan fits and, where there is a target, one meets it");
    field("x_axis", &M::x_axis, "metric of the frontier, as `frontier.x` of a scenario names it");
    field("y_axis", &M::y_axis, "the other");
    field("counts", &M::counts, "what was looked at");
    field("rejected", &M::rejected, "what does not fit, by reason");
    field("not_started", &M::not_started, "plans that the engine does not start, by rule, most first");
    field("without_plans", &M::without_plans, "strategies without any plan");
    field("unused_values", &M::unused_values, "values of options that no plan has: `chunks 8`");
    field("points", &M::points,
          "each strategy's own frontier: the rows of frontier.csv; `on_frontier` marks those that nothing "
          "beats");
    field("frontier", &M::frontier,
          "the frontier of all strategies; prefills: least cost or fewest GPUs first");
    field("all", &M::all, "every configuration, if asked for");
    field("meeting", &M::meeting, "what meets the target, the best first, five at most");
    field("budgets", &M::budgets, "steps that decode: the best plan per budget, each plan once");
    field("nearest", &M::nearest,
          "where no plan has a first token soon enough: the one with the lowest TTFT");
    field("gain", &M::gain, "of a scenario with `compare`, where both sides have plans");
    field("pools", &M::pools, "prompts and answers on pools of their own: the best pair per TPOT budget");
    field("noise", &M::noise, "traffic of others, of scenarios that have it");
    field("noisy", &M::noisy, "the points beside that traffic");
    field("warnings", &M::warnings, "as on standard error");
  }
};

struct SweepResult {
  std::string version;
  std::string command;
  std::string scenario;
  std::string summary;
  SweepQuestion question;
  bool met = false;
  std::vector<ModelSweep> models;
};
template <>
struct Fields<SweepResult> {
  static constexpr const char* name = "SweepResult";
  static constexpr const char* schema = "shardline.sweep/1";
  static constexpr const char* about = "What `shardline sweep` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = SweepResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell; empty: the library was asked");
    field("scenario", &R::scenario, "its name");
    field("summary", &R::summary, "what it says of itself");
    field("question", &R::question, "what was asked");
    field("met", &R::met, "whether the command ends with exit code 0");
    field("models", &R::models, "one per model of the scenario");
  }
};

/// The document, indented, ending with a newline.
std::string to_json(const SweepResult& result);

}  // namespace shardline::api
