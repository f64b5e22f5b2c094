// evaluate: measured rows beside what a calibrated system predicts. accuracy: how far every calibration is
// from measurements.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "planner/api/measured.hpp"

namespace shardline::api {

struct EvaluatedKernel {
  std::string name;
  ErrorFigures errors;
  std::size_t extrapolated_rows = 0;
  std::size_t covered_rows = 0;
};
template <>
struct Fields<EvaluatedKernel> {
  static constexpr const char* name = "EvaluatedKernel";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Rows of one kernel.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using K = EvaluatedKernel;
    field("name", &K::name, "family and variant");
    field("errors", &K::errors, "of its rows");
    field("extrapolated_rows", &K::extrapolated_rows, "beyond the shapes that were fitted");
    field("covered_rows", &K::covered_rows, "inside the nominal 90 % interval of their price");
  }
};

struct EvaluatedRow {
  std::string file;
  std::size_t row = 0;
  std::string kernel;
  double measured_s = 0;
  Estimate predicted_s;
  bool extrapolated = false;
};
template <>
struct Fields<EvaluatedRow> {
  static constexpr const char* name = "EvaluatedRow";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "One measured row.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = EvaluatedRow;
    field("file", &R::file, "of the table");
    field("row", &R::row, "from 1, the header not counted");
    field("kernel", &R::kernel, "family and variant");
    field("measured_s", &R::measured_s, "median of the measurement");
    field("predicted_s", &R::predicted_s, "its price");
    field("extrapolated", &R::extrapolated, "whether it lies beyond the shapes that were fitted");
  }
};

struct EvaluateResult {
  std::string version;
  std::string command;
  std::string system;
  std::string source;
  std::string hash;
  std::string date;
  std::vector<EvaluatedKernel> kernels;
  std::vector<EvaluatedRow> rows;
  std::vector<std::string> notes;
};
template <>
struct Fields<EvaluateResult> {
  static constexpr const char* name = "EvaluateResult";
  static constexpr const char* schema = "shardline.evaluate/1";
  static constexpr const char* about = "What `shardline evaluate` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = EvaluateResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell");
    field("system", &R::system, "whose calibration predicts");
    field("source", &R::source, "of the measurements that it was fitted to");
    field("hash", &R::hash, "of those tables");
    field("date", &R::date, "of the fit");
    field("kernels", &R::kernels, "with rows in the tables");
    field("rows", &R::rows, "in the order of the tables");
    field("notes", &R::notes, "what was left out, and why");
  }
};

struct JudgedKernel {
  std::string name;
  ErrorFigures errors;
  bool unseen_models = false;
  double goal_median = 0;
  double goal_p90 = 0;
  std::string verdict;
};
template <>
struct Fields<JudgedKernel> {
  static constexpr const char* name = "JudgedKernel";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A kernel's errors beside what is aimed at.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using K = JudgedKernel;
    field("name", &K::name, "family and variant");
    field("errors", &K::errors, "on rows that the fit had not seen");
    field("unseen_models", &K::unseen_models,
          "whether these are all rows of a model, else some shapes of each");
    field("goal_median", &K::goal_median, "aimed at; 0.01 is 1 %");
    field("goal_p90", &K::goal_p90, "likewise");
    field("verdict", &K::verdict, "`met`, `missed` or `unknown`");
  }
};

struct SystemAccuracy {
  std::string system;
  std::string source;
  std::string hash;
  std::string date;
  std::vector<JudgedKernel> kernels;
};
template <>
struct Fields<SystemAccuracy> {
  static constexpr const char* name = "SystemAccuracy";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A system with a calibration of its own.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using S = SystemAccuracy;
    field("system", &S::system, "its name, and `.framework` where it is of one framework's kernels alone");
    field("source", &S::source, "of the measurements");
    field("hash", &S::hash, "of the tables");
    field("date", &S::date, "of the fit");
    field("kernels", &S::kernels, "in the order of the calibration");
  }
};

struct Borrowed {
  std::string system;
  std::string from;
};
template <>
struct Fields<Borrowed> {
  static constexpr const char* name = "Borrowed";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A system that uses the calibration of another.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("system", &Borrowed::system, "its name");
    field("from", &Borrowed::from, "the system that was measured");
  }
};

struct EngineAccuracy {
  std::string engine;
  std::string engine_version;
  EngineErrors errors;
};
template <>
struct Fields<EngineAccuracy> {
  static constexpr const char* name = "EngineAccuracy";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "An engine's profile.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("engine", &EngineAccuracy::engine, "its name");
    field("engine_version", &EngineAccuracy::engine_version, "its version");
    field("errors", &EngineAccuracy::errors, "of what it serves");
  }
};

struct AccuracyResult {
  std::string version;
  std::string command;
  std::vector<SystemAccuracy> systems;
  std::vector<Borrowed> borrowed;
  std::vector<EngineAccuracy> engines;
  std::string report;
  std::vector<std::string> notes;
};
template <>
struct Fields<AccuracyResult> {
  static constexpr const char* name = "AccuracyResult";
  static constexpr const char* schema = "shardline.accuracy/1";
  static constexpr const char* about = "What `shardline accuracy` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = AccuracyResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell");
    field("systems", &R::systems, "of the catalogue");
    field("borrowed", &R::borrowed, "systems without measurements of their own");
    field("engines", &R::engines, "profiles");
    field("report", &R::report, "the whole in Markdown, with what `--measurements` adds");
    field("notes", &R::notes, "what was left out, and why");
  }
};

std::string to_json(const CalibrateResult& result);
std::string to_json(const CalibrateEngineResult& result);
std::string to_json(const CalibratePowerResult& result);
std::string to_json(const EvaluateResult& result);
std::string to_json(const AccuracyResult& result);

}  // namespace shardline::api
