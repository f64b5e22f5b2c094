// calibrate, evaluate and accuracy: how far prices are from measurements.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "planner/api/values.hpp"

namespace shardline::api {

struct ErrorFigures {
  std::size_t rows = 0;
  double median = 0;
  double p90 = 0;
  double worst = 0;
  double bias = 0;
};
template <>
struct Fields<ErrorFigures> {
  static constexpr const char* name = "ErrorFigures";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "|predicted / measured - 1| over measured rows; 0.01 is 1 %.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using E = ErrorFigures;
    field("rows", &E::rows, "how many; 0: the numbers below say nothing");
    field("median", &E::median, "of them");
    field("p90", &E::p90, "90th percentile");
    field("worst", &E::worst, "largest");
    field("bias", &E::bias, "median of predicted / measured - 1");
  }
};

struct Band {
  std::size_t rows = 0;
  double low = kUnknown;
  double high = kUnknown;
  std::optional<double> covered;
};
template <>
struct Fields<Band> {
  static constexpr const char* name = "Band";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Nominal 90 % interval of measured / predicted - 1; 0.01 is 1 %.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("rows", &Band::rows, "that it was found from");
    field("low", &Band::low, "lower end");
    field("high", &Band::high, "upper end");
    field("covered", &Band::covered, "part of withheld rows inside bands of the others; null: not tried");
  }
};

struct KernelParameter {
  std::string name;
  double value = 0;
  double low = 0;
  double high = 0;
  std::string unit;
};
template <>
struct Fields<KernelParameter> {
  static constexpr const char* name = "KernelParameter";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A fitted number with its 95 % confidence interval.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using P = KernelParameter;
    field("name", &P::name, "of the form's parameter");
    field("value", &P::value, "in its unit");
    field("low", &P::low, "95 % from");
    field("high", &P::high, "to");
    field("unit", &P::unit, "its unit");
  }
};

struct FittedKernel {
  std::string name;
  std::string framework;
  bool derived = false;
  ErrorFigures roofline;
  ErrorFigures form;
  ErrorFigures corrected;
  std::optional<ErrorFigures> unseen_models;
  std::size_t knots = 0;
  Band interval;
  std::vector<KernelParameter> parameters;
};
template <>
struct Fields<FittedKernel> {
  static constexpr const char* name = "FittedKernel";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A kernel with the cost form that was fitted to it.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using K = FittedKernel;
    field("name", &K::name, "family and variant");
    field("framework", &K::framework, "whose kernel; empty: not said");
    field("derived", &K::derived, "whether its rows follow from others that were measured");
    field("roofline", &K::roofline, "errors of a roofline, for comparison");
    field("form", &K::form, "of the form on shapes that the fit had not seen");
    field("corrected", &K::corrected, "with its correction, likewise: what prices are made of");
    field("unseen_models", &K::unseen_models,
          "on models all of whose rows were withheld; null: not for this kernel");
    field("knots", &K::knots, "numbers of the correction");
    field("interval", &K::interval, "of prices among the shapes that were measured");
    field("parameters", &K::parameters, "of the form");
  }
};

struct CalibrateResult {
  std::string version;
  std::string command;
  std::string system;
  std::size_t tables = 0;
  int folds = 0;
  std::string source;
  std::string hash;
  std::string date;
  std::vector<FittedKernel> kernels;
  std::vector<std::string> notes;
};
template <>
struct Fields<CalibrateResult> {
  static constexpr const char* name = "CalibrateResult";
  static constexpr const char* schema = "shardline.calibrate/1";
  static constexpr const char* about = "What `shardline calibrate --system` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = CalibrateResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell");
    field("system", &R::system, "that was measured");
    field("tables", &R::tables, "how many were read");
    field("folds", &R::folds, "parts of the shapes that were withheld in turn");
    field("source", &R::source, "of the measurements");
    field("hash", &R::hash, "of the tables");
    field("date", &R::date, "of the fit");
    field("kernels", &R::kernels, "that were fitted");
    field("notes", &R::notes, "what was left out, and why");
  }
};

struct FittedPower {
  std::string operation;
  std::size_t rows = 0;
  double base_w = 0;
  double tensor_w = 0;
  double memory_w = 0;
  double median = 0;
  double p90 = 0;
  double low = 0;
  double high = 0;
  double covered = 0;
};
template <>
struct Fields<FittedPower> {
  static constexpr const char* name = "FittedPower";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "Mean power of a board while kernels of one kind run: base + tensor x (part of the arithmetic's peak) "
      "+ "
      "memory x (part of HBM's).";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using P = FittedPower;
    field("operation", &P::operation, "key of a system file's `power`: `gemm`, `attention_prefill`, ...");
    field("rows", &P::rows, "that were measured");
    field("base_w", &P::base_w, "in W");
    field("tensor_w", &P::tensor_w, "in W");
    field("memory_w", &P::memory_w, "in W");
    field("median", &P::median, "of |predicted / measured - 1| of shapes that were withheld; 0.01 is 1 %");
    field("p90", &P::p90, "90th percentile of the same");
    field("low", &P::low, "nominal 90 % of ln(measured / predicted) of withheld shapes, from");
    field("high", &P::high, "to");
    field("covered", &P::covered, "part of the rows inside the interval of the other folds, 0 to 1");
  }
};

struct CalibratePowerResult {
  std::string version;
  std::string command;
  std::string system;
  int folds = 0;
  std::string source;
  double idle_w = 0;
  double most_w = 0;
  std::vector<FittedPower> laws;
  std::vector<std::string> notes;
};
template <>
struct Fields<CalibratePowerResult> {
  static constexpr const char* name = "CalibratePowerResult";
  static constexpr const char* schema = "shardline.calibrate_power/1";
  static constexpr const char* about = "What `shardline calibrate --power` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = CalibratePowerResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell");
    field("system", &R::system, "whose boards were measured");
    field("folds", &R::folds, "parts of the shapes that were withheld in turn");
    field("source", &R::source, "of the measurements");
    field("idle_w", &R::idle_w, "least that was read, in W: taken for a board whose kernels wait");
    field("most_w", &R::most_w, "most that any kernel draws for long, in W");
    field("laws", &R::laws, "of three kinds of kernels");
    field("notes", &R::notes, "what was left out, and why");
  }
};

struct HostTimes {
  std::string without_model;
  double step_s = 0;
  double request_s = 0;
  double prompt_token_s = 0;
  double path_s = 0;
};
template <>
struct Fields<HostTimes> {
  static constexpr const char* name = "HostTimes";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "The four numbers of an engine's profile.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using H = HostTimes;
    field("without_model", &H::without_model, "whose rows were left out; empty: fitted to all");
    field("step_s", &H::step_s, "of a step");
    field("request_s", &H::request_s, "of each request that decodes in it");
    field("prompt_token_s", &H::prompt_token_s, "of each token of prompts in it");
    field("path_s", &H::path_s, "of a request before and behind its steps");
  }
};

struct ServedError {
  std::string of;
  int rows = 0;
  double median = 0;
  double p90 = 0;
  double bias = 0;
};
template <>
struct Fields<ServedError> {
  static constexpr const char* name = "ServedError";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "|predicted / measured - 1| of served rows of models that the numbers were not fitted to; 0.01 is 1 %.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using E = ServedError;
    field("of", &E::of, "which rows");
    field("rows", &E::rows, "how many");
    field("median", &E::median, "of them");
    field("p90", &E::p90, "90th percentile");
    field("bias", &E::bias, "median of predicted / measured - 1");
  }
};

struct EngineErrors {
  std::vector<ServedError> errors;
  Band tpot;
  Band ttft_drawn;
  Band ttft_equal;
};
template <>
struct Fields<EngineErrors> {
  static constexpr const char* name = "EngineErrors";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "How far what an engine serves is from measurements.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using E = EngineErrors;
    field("errors", &E::errors, "of models left out in turn");
    field("tpot", &E::tpot, "of the time per output token");
    field("ttft_drawn", &E::ttft_drawn, "of the time to first token where lengths of requests are drawn");
    field("ttft_equal", &E::ttft_equal, "where all are equally long; of 0 rows nothing is known");
  }
};

struct CalibrateEngineResult {
  std::string version;
  std::string command;
  std::string engine;
  std::string engine_version;
  std::size_t rows = 0;
  HostTimes host;
  std::vector<HostTimes> left_out;
  EngineErrors errors;
  std::vector<std::string> notes;
};
template <>
struct Fields<CalibrateEngineResult> {
  static constexpr const char* name = "CalibrateEngineResult";
  static constexpr const char* schema = "shardline.calibrate_engine/1";
  static constexpr const char* about = "What `shardline calibrate --engine` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = CalibrateEngineResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell");
    field("engine", &R::engine, "of the profile");
    field("engine_version", &R::engine_version, "its version");
    field("rows", &R::rows, "of measured serving");
    field("host", &R::host, "fitted to all");
    field("left_out", &R::left_out, "fitted to all models but one, for each");
    field("errors", &R::errors, "of these");
    field("notes", &R::notes, "what was left out, and why");
  }
};

}  // namespace shardline::api
