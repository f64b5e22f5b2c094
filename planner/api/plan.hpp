// plan: a request and a target in, the plans around that target out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/api/simulate.hpp"
#include "planner/api/sweep.hpp"

namespace shardline::api {

struct PlanQuestion {
  std::string model;
  std::string system;
  long long input_tokens = 0;
  std::optional<long long> output_tokens;
  std::optional<long long> gpus;
  std::optional<long long> nodes;
  std::optional<long long> users;
  std::optional<double> most_ttl_s;
  std::optional<double> most_ttft_s;
};
template <>
struct Fields<PlanQuestion> {
  static constexpr const char* name = "PlanQuestion";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A request and a target. What is null has a default.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using Q = PlanQuestion;
    field("model", &Q::model,
          "name of the catalogue, repository on Hugging Face, or path of a config.json or .yaml");
    field("system", &Q::system, "name of the catalogue, or a .yaml file");
    field("input_tokens", &Q::input_tokens, "of a request");
    field("output_tokens", &Q::output_tokens, "of its answer; null: the prefill alone");
    field("gpus", &Q::gpus, "at most; null: those of `nodes`, else of a node, eight at most");
    field("nodes", &Q::nodes, "at most, in place of `gpus`");
    field("users", &Q::users, "at once, each with a request; null: any");
    field("most_ttl_s", &Q::most_ttl_s,
          "target for TPOT of served users, for TTL of bare kernels; null: none");
    field("most_ttft_s", &Q::most_ttft_s, "target for TTFT; null: none");
  }
};

struct PlannedPlan {
  PlanPoint point;
  bool meets = false;
};
template <>
struct Fields<PlannedPlan> {
  static constexpr const char* name = "PlannedPlan";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A plan of the answer.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("point", &PlannedPlan::point, "the plan");
    field("meets", &PlannedPlan::meets,
          "whether it meets the target; true of every plan where there is none");
  }
};

struct Miss {
  std::string what;
  double part = 0;
  double time_s = 0;
};
template <>
struct Fields<Miss> {
  static constexpr const char* name = "Miss";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "By how much the nearest plan misses the target.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("what", &Miss::what, "what it misses by most: `TPOT`, `TTL` or `TTFT`");
    field("part", &Miss::part, "time / target - 1; 0.01 is 1 %");
    field("time_s", &Miss::time_s, "the time");
  }
};

struct BestPlan {
  MemoryUse memory;
  Breakdown breakdown;
  std::optional<double> prefill_share;
};
template <>
struct Fields<BestPlan> {
  static constexpr const char* name = "BestPlan";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What bounds the first plan of an answer.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("memory", &BestPlan::memory, "per GPU");
    field("breakdown", &BestPlan::breakdown,
          "of a step that decodes (of served users: between prompts), or of the prefill");
    field("prefill_share", &BestPlan::prefill_share, "prompts of others, of TPOT, 0 to 1; null: not served");
  }
};

struct WiderPlan {
  PlannedPlan best;
  long long gpus = 0;
  long long most_gpus = 0;
};
template <>
struct Fields<WiderPlan> {
  static constexpr const char* name = "WiderPlan";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What more GPUs than were asked for give.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("best", &WiderPlan::best,
          "of the fewest GPUs on which a plan meets the target; else the nearest of all looked at");
    field("gpus", &WiderPlan::gpus, "on how many");
    field("most_gpus", &WiderPlan::most_gpus, "that were looked at");
  }
};

struct PlanResult {
  std::string version;
  std::string command;
  PlanQuestion question;
  std::string title;
  std::string scenario_text;
  std::string engine_why;
  std::string gpus_note;
  bool met = false;
  std::vector<PlannedPlan> plans;
  std::optional<Miss> miss;
  std::optional<BestPlan> best;
  std::optional<WiderPlan> wider;
  ModelSweep sweep;
};
template <>
struct Fields<PlanResult> {
  static constexpr const char* name = "PlanResult";
  static constexpr const char* schema = "shardline.plan/1";
  static constexpr const char* about = "What `shardline plan` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = PlanResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell; empty: the library was asked");
    field("question", &R::question, "what was asked");
    field("title", &R::title, "the same in a line, with the GPUs that were looked at");
    field("scenario_text", &R::scenario_text,
          "the question as a scenario, which `--save` writes: `sweep` and `simulate` take it");
    field("engine_why", &R::engine_why, "why the engine of `sweep.setting` was chosen; empty: it was named");
    field("gpus_note", &R::gpus_note, "where the number of GPUs asked for is none that is handed out");
    field("met", &R::met, "whether a plan fits and meets the target: the command ends with exit code 0");
    field("plans", &R::plans,
          "five at most: those that meet the target, the best first, then the nearest that do not; without "
          "a target from end to end of the frontier");
    field("miss", &R::miss, "of the first of `plans`, where none meets the target");
    field("best", &R::best, "of the first of `plans`");
    field("wider", &R::wider, "where none meets the target; null: no plan fits more GPUs, either");
    field("sweep", &R::sweep, "the sweep of the scenario, of which `plans` are the part around the target");
  }
};

/// The document, indented, ending with a newline.
std::string to_json(const PlanResult& result);

}  // namespace shardline::api
