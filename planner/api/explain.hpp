// explain: why a plan takes as long as it does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/api/plan_point.hpp"
#include "planner/api/setting.hpp"
#include "planner/api/simulate.hpp"

namespace shardline::api {

struct ExplainQuestion {
  std::string scenario;
  std::string scenario_text;
  std::string model;
  std::string plan;
};
template <>
struct Fields<ExplainQuestion> {
  static constexpr const char* name = "ExplainQuestion";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Which plan is explained.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = ExplainQuestion;
    field("scenario", &T::scenario, "name of a shipped scenario, or a file");
    field("scenario_text", &T::scenario_text, "the scenario itself, in YAML, in place of a file");
    field("model", &T::model, "which one of the scenario; empty: the first");
    field("plan", &T::plan, "its text");
  }
};

struct Bottleneck {
  std::string name;
  double time_s = 0;
  double share = 0;
  std::vector<TimePart> parts;
  std::string text;
};
template <>
struct Fields<Bottleneck> {
  static constexpr const char* name = "Bottleneck";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What one resource takes of the time of a step.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = Bottleneck;
    field("name", &T::name,
          "`HBM`, `tensor cores`, `overhead` (fixed times), `beyond peak rates` (of measured kernels), "
          "`exposed communication` (which what bounds it counts too), ...");
    field("time_s", &T::time_s, "its time on the critical path");
    field("share", &T::share, "of the step, 0 to 1; of `prompts of others` of TPOT");
    field("parts", &T::parts, "by part of a layer, those of 1 % or more");
    field("text", &T::text, "the same as a sentence, with what a change of it would do");
  }
};

struct Elasticity {
  std::string of;
  std::string means;
  std::optional<double> from_factor;
  std::optional<double> to_factor;
  std::optional<Estimate> time;
  std::optional<Estimate> ttft;
  std::optional<Estimate> tokens_per_s_gpu;
  std::string why;
};
template <>
struct Fields<Elasticity> {
  static constexpr const char* name = "Elasticity";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "By how much a time or a rate answers to a change of one thing: d ln / d ln, with its interval.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = Elasticity;
    field("of", &T::of, "what is changed");
    field("means", &T::means, "what that is of a system file, a fit or a scenario");
    field("from_factor", &T::from_factor,
          "lower end of the change that it was found by; null: it cannot be changed");
    field("to_factor", &T::to_factor, "upper end");
    field("time", &T::time, "of TTL, of TTFT (prefills), or of TPOT (served)");
    field("ttft", &T::ttft, "of the TTFT of a served workload; null: none is served");
    field("tokens_per_s_gpu", &T::tokens_per_s_gpu, "of throughput");
    field("why", &T::why, "of null: why it cannot be changed");
  }
};

struct Turnover {
  std::string of;
  std::optional<double> factor;
  std::string why;
};
template <>
struct Fields<Turnover> {
  static constexpr const char* name = "Turnover";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "From where on a change of one thing alone puts the other plan ahead.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = Turnover;
    field("of", &T::of, "what is changed");
    field("factor", &T::factor, "the least change that does; null: none");
    field("why", &T::why, "of null");
  }
};

struct Rival {
  std::string plan;
  std::string strategy;
  std::optional<Estimate> ttl_s;
  std::optional<Estimate> tpot_s;
  std::optional<Estimate> ttft_s;
  Estimate ratio;
  bool told_apart = false;
  std::vector<Turnover> turnovers;
};
template <>
struct Fields<Rival> {
  static constexpr const char* name = "Rival";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Another plan on as many GPUs for as many users.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = Rival;
    field("plan", &T::plan, "its text");
    field("strategy", &T::strategy, "its strategy");
    field("ttl_s", &T::ttl_s, "of a step that decodes; null: a prefill, or served");
    field("tpot_s", &T::tpot_s, "of a served user; null: not served");
    field("ttft_s", &T::ttft_s, "of a prefill; null: it decodes");
    field("ratio", &T::ratio, "of its time to that of the plan that is explained");
    field("told_apart", &T::told_apart, "whether that is more than prices may be off");
    field("turnovers", &T::turnovers, "what would put it ahead, or behind where it is ahead");
  }
};

struct Purchase {
  std::string what;
  std::string means;
  std::string plan;
  std::optional<double> users;
  std::optional<Estimate> ttl_s;
  std::optional<Estimate> tpot_s;
  std::optional<Estimate> ttft_s;
  std::optional<Estimate> tokens_per_s_gpu;
  std::optional<Estimate> time_ratio;
  std::optional<Estimate> tokens_per_s_gpu_ratio;
  std::optional<double> extrapolated;
  std::string why;
};
template <>
struct Fields<Purchase> {
  static constexpr const char* name = "Purchase";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "The plan on another machine.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = Purchase;
    field("what", &T::what, "`1.5x HBM bandwidth`, or the name of a system of the catalogue");
    field("means", &T::means, "what of the system file that is, or the device of the system");
    field("plan", &T::plan, "with a larger batch where that is what it buys");
    field("users", &T::users, "at once, of a prefill its requests; null: the plan cannot run there");
    field("ttl_s", &T::ttl_s, "of a step that decodes; null: a prefill, or served");
    field("tpot_s", &T::tpot_s, "of a served user; null: not served");
    field("ttft_s", &T::ttft_s,
          "of a prefill, or mean of a served workload, its ends null where their error was not measured; "
          "null: it decodes");
    field("tokens_per_s_gpu", &T::tokens_per_s_gpu, "decoded, of answers, or new tokens of a prefill");
    field("time_ratio", &T::time_ratio, "of its TTL, TPOT or TTFT (prefills) to that of the plan as it is");
    field("tokens_per_s_gpu_ratio", &T::tokens_per_s_gpu_ratio, "likewise");
    field("extrapolated", &T::extrapolated, "part of its step that is extrapolated or assumed");
    field("why", &T::why, "of null: why it cannot run there");
  }
};

struct ExplainResult {
  std::string version;
  std::string command;
  std::string scenario;
  ExplainQuestion question;
  std::optional<bool> met;
  Setting setting;
  std::string plan;
  bool fits = false;
  std::string misfit;
  std::optional<PlanPoint> outcome;
  std::optional<Served> served;
  std::vector<Bottleneck> bottlenecks;
  std::vector<Elasticity> elasticities;
  unsigned long long compared = 0;
  bool equal_users = true;
  std::vector<Rival> rivals;
  std::vector<Purchase> purchases;
  unsigned long long unmeasured = 0;
  std::vector<Diagnostic> warnings;
};
template <>
struct Fields<ExplainResult> {
  static constexpr const char* name = "ExplainResult";
  static constexpr const char* schema = "shardline.explain/2";
  static constexpr const char* about = "What `shardline explain` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = ExplainResult;
    field("version", &T::version, "of shardline");
    field("command", &T::command, "that gives the same, quoted for the shell; empty: the library was asked");
    field("scenario", &T::scenario, "its name");
    field("question", &T::question, "what was asked");
    field(
        "met", &T::met,
        "whether the plan meets the targets of the question of a line, which it was taken of or named with, "
        "or constraints.ttl and .ttft of its scenario; null: it was named, and there are none");
    field("setting", &T::setting, "what all numbers are of");
    field("plan", &T::plan, "its text");
    field("fits", &T::fits, "whether it fits memory; else what comes after `misfit` is null or empty");
    field("misfit", &T::misfit, "why not");
    field("outcome", &T::outcome, "its step: of a served workload the one that decodes between prompts");
    field("served", &T::served,
          "what users get of it; null: no workload, or prompts need a pool of their own");
    field("bottlenecks", &T::bottlenecks, "the longest first");
    field("elasticities", &T::elasticities, "of everything that can be changed, and why the rest cannot");
    field("compared", &T::compared, "plans on as many GPUs that it was compared with");
    field(
        "equal_users", &T::equal_users,
        "whether they are for as many users; else no other plan's groups share these users evenly, and they "
        "are for the next fewer and the next more");
    field("rivals", &T::rivals,
          "the best of them, and where that is of the same strategy the best of another");
    field("purchases", &T::purchases, "what to buy");
    field("unmeasured", &T::unmeasured,
          "systems of the catalogue that nothing was measured of, which are left out");
    field("warnings", &T::warnings, "as on standard error");
  }
};

std::string to_json(const ExplainResult& result);

}  // namespace shardline::api
