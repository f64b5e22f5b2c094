// verify: strategies on real tensors. validate: predictions beside published figures.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "planner/api/values.hpp"

namespace shardline::api {

struct VerifiedStrategy {
  std::string strategy;
  bool exact = true;
  std::size_t cases = 0;
  std::size_t failed = 0;
  double error_double = 0;
  double error_float = 0;
  double pairs = 0;
  double messages = 0;
  std::optional<double> least_distance;
  std::optional<double> most_distance;
};
template <>
struct Fields<VerifiedStrategy> {
  static constexpr const char* name = "VerifiedStrategy";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A strategy that was run on all its cases.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using V = VerifiedStrategy;
    field("strategy", &V::strategy, "its name");
    field("exact", &V::exact, "held against plain attention, else against its own definition");
    field("cases", &V::cases, "that were run; 0: it is timed only");
    field("failed", &V::failed, "of these");
    field("error_double", &V::error_double, "the largest, relative, in double precision");
    field("error_float", &V::error_float, "likewise in single precision");
    field("pairs", &V::pairs, "(query, key) pairs of all heads and cases");
    field("messages", &V::messages, "of all cases");
    field("least_distance", &V::least_distance,
          "approximate: |output - exact| / |exact|, the least of all cases");
    field("most_distance", &V::most_distance, "likewise the largest");
  }
};

struct Mutation {
  std::string name;
  std::string what;
  int tried = 0;
  int found = 0;
};
template <>
struct Fields<Mutation> {
  static constexpr const char* name = "Mutation";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Schedules that were broken on purpose.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("name", &Mutation::name, "of the fault");
    field("what", &Mutation::what, "what is broken");
    field("tried", &Mutation::tried, "how often");
    field("found", &Mutation::found, "how often the fault was found");
  }
};

struct VerifyResult {
  std::string version;
  std::string command;
  bool passed = false;
  double limit_double = 0;
  double limit_float = 0;
  std::vector<VerifiedStrategy> strategies;
  std::vector<std::string> faults;
  std::optional<std::vector<Mutation>> mutations;
};
template <>
struct Fields<VerifyResult> {
  static constexpr const char* name = "VerifyResult";
  static constexpr const char* schema = "shardline.verify/1";
  static constexpr const char* about = "What `shardline verify` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = VerifyResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell");
    field("passed", &R::passed, "whether no case failed and every mutation was found");
    field("limit_double", &R::limit_double, "largest error that is taken for rounding, in double precision");
    field("limit_float", &R::limit_float, "likewise in single precision");
    field("strategies", &R::strategies, "that were asked for");
    field("faults", &R::faults, "lines; those below a case are indented");
    field("mutations", &R::mutations, "null: not asked for");
  }
};

struct PaperGroup {
  std::string name;
  std::string counted;
  std::size_t values = 0;
  double median_error = 0;
  double largest_error = 0;
  std::size_t fitted = 0;
  std::string finding;
  std::string goal;
  std::string verdict;
  std::string reason;
};
template <>
struct Fields<PaperGroup> {
  static constexpr const char* name = "PaperGroup";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Published values that are judged together.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using G = PaperGroup;
    field("name", &G::name, "of the group");
    field("counted", &G::counted, "standing of the values that errors are of, as in PaperValue");
    field("values", &G::values, "how many these are");
    field("median_error", &G::median_error, "of |ours / published - 1|; 0.01 is 1 %");
    field("largest_error", &G::largest_error, "likewise");
    field("fitted", &G::fitted, "values that a parameter was fitted to, in no error");
    field("finding", &G::finding, "in place of errors, where they are not relative errors of values");
    field("goal", &G::goal, "empty: none");
    field("verdict", &G::verdict,
          "`met`, `missed`, `explained` (left out of the goal, with a reason), `open` (far off, unexplained) "
          "or `none`");
    field("reason", &G::reason, "why values lie outside");
  }
};

struct PaperValue {
  std::string group;
  std::string series;
  std::string label;
  std::string unit;
  double published = 0;
  double ours = 0;
  double error = 0;
  std::string standing;
  std::optional<double> assumed;
};
template <>
struct Fields<PaperValue> {
  static constexpr const char* name = "PaperValue";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "One published value beside ours.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using V = PaperValue;
    field("group", &V::group, "name of its PaperGroup");
    field("series", &V::series, "table or figure of the paper");
    field("label", &V::label, "what it is");
    field("unit", &V::unit, "of both");
    field("published", &V::published, "by the paper");
    field("ours", &V::ours, "predicted");
    field("error", &V::error, "ours / published - 1");
    field("standing", &V::standing,
          "`held_out`: it tests the model; `calibration`: fitted to; `excluded` from the goal; `repeated`; "
          "`derived` "
          "from others");
    field("assumed", &V::assumed, "ours with the system file's parameters, where it also has measured costs");
  }
};

struct PaperResult {
  std::string id;
  std::string title;
  std::string source;
  std::vector<PaperGroup> groups;
  std::vector<PaperValue> values;
};
template <>
struct Fields<PaperResult> {
  static constexpr const char* name = "PaperResult";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "One published paper.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using P = PaperResult;
    field("id", &P::id, "its name on the command line");
    field("title", &P::title, "its title");
    field("source", &P::source, "where it is published");
    field("groups", &P::groups, "what is judged");
    field("values", &P::values, "one by one");
  }
};

struct ValidateResult {
  std::string version;
  std::string command;
  std::vector<PaperResult> papers;
};
template <>
struct Fields<ValidateResult> {
  static constexpr const char* name = "ValidateResult";
  static constexpr const char* schema = "shardline.validate/1";
  static constexpr const char* about = "What `shardline validate` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = ValidateResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell");
    field("papers", &R::papers, "that were asked for");
  }
};

std::string to_json(const VerifyResult& result);
std::string to_json(const ValidateResult& result);

}  // namespace shardline::api
