// compare: two plans side by side.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/api/plan_point.hpp"
#include "planner/api/setting.hpp"
#include "planner/api/simulate.hpp"

namespace shardline::api {

struct CompareQuestion {
  std::string scenario;
  std::string scenario_text;
  std::string model;
  std::vector<std::string> plans;
};
template <>
struct Fields<CompareQuestion> {
  static constexpr const char* name = "CompareQuestion";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Which two plans are compared.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = CompareQuestion;
    field("scenario", &T::scenario, "name of a shipped scenario, or a file");
    field("scenario_text", &T::scenario_text, "the scenario itself, in YAML, in place of a file");
    field("model", &T::model, "which one of the scenario; empty: the first");
    field("plans", &T::plans, "their texts, two");
  }
};

struct ComparedPlan {
  std::string plan;
  bool fits = false;
  std::string misfit;
  std::optional<Refusal> refusal;
  MemoryUse memory;
  std::optional<PlanPoint> outcome;
  std::optional<Served> served;
  std::vector<Collective> collectives;
};
template <>
struct Fields<ComparedPlan> {
  static constexpr const char* name = "ComparedPlan";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "One of two plans, as SimulateResult has it.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = ComparedPlan;
    field("plan", &T::plan, "its text");
    field("fits", &T::fits, "whether it fits memory; else what comes after `memory` is null or empty");
    field("misfit", &T::misfit, "why not");
    field("refusal", &T::refusal, "why the engine does not start it, though it is priced");
    field("memory", &T::memory, "per GPU");
    field("outcome", &T::outcome, "its step");
    field("served", &T::served, "what users get of it");
    field("collectives", &T::collectives, "each kind of message once");
  }
};

struct ComparedRow {
  std::string of;
  std::string name;
  double first = 0;
  double second = 0;
};
template <>
struct Fields<ComparedRow> {
  static constexpr const char* name = "ComparedRow";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A number of both plans.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = ComparedRow;
    field("of", &T::of,
          "`tpot` (seconds of a served token), `part`, `kind`, `basis` or `communication` (seconds of the "
          "step), or "
          "`memory` (bytes per GPU)");
    field("name", &T::name, "of the part");
    field("first", &T::first, "of the first plan; 0: it has none");
    field("second", &T::second, "of the second");
  }
};

struct CompareResult {
  std::string version;
  std::string command;
  std::string scenario;
  CompareQuestion question;
  std::optional<bool> met;
  Setting setting;
  std::vector<ComparedPlan> plans;
  std::vector<ComparedRow> rows;
  std::optional<Estimate> time_ratio;
  std::optional<Estimate> tokens_per_s_gpu_ratio;
  std::optional<bool> told_apart;
  std::optional<bool> told_apart_unrelated;
  std::vector<Diagnostic> warnings;
};
template <>
struct Fields<CompareResult> {
  static constexpr const char* name = "CompareResult";
  static constexpr const char* schema = "shardline.compare/2";
  static constexpr const char* about = "What `shardline compare` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = CompareResult;
    field("version", &T::version, "of shardline");
    field("command", &T::command, "that gives the same, quoted for the shell; empty: the library was asked");
    field("scenario", &T::scenario, "its name");
    field("question", &T::question, "what was asked");
    field("met", &T::met,
          "whether the first plan meets the targets of the question of a line, which both were taken of or "
          "named with, or constraints.ttl and .ttft of their scenario; null: they were named, and there are "
          "none");
    field("setting", &T::setting, "what all numbers are of");
    field("plans", &T::plans, "both, in the order of the question");
    field("rows", &T::rows, "side by side; where one does not fit, memory alone");
    field("time_ratio", &T::time_ratio,
          "of TTL, TPOT (served) or TTFT (prefills), the second over the first; null: one does not fit");
    field("tokens_per_s_gpu_ratio", &T::tokens_per_s_gpu_ratio, "likewise");
    field("told_apart", &T::told_apart,
          "whether the order of the times is more than prices may be off, if a fit errs alike in both");
    field("told_apart_unrelated", &T::told_apart_unrelated,
          "the same if it errs in each as it likes: the truth lies between");
    field("warnings", &T::warnings, "as on standard error");
  }
};

std::string to_json(const CompareResult& result);

}  // namespace shardline::api
