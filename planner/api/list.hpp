// list: what there is to choose from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/api/values.hpp"

namespace shardline::api {

struct ListedModel {
  std::string name;
  std::string source;
  double parameters = 0;
  double active_parameters = 0;
  int layers = 0;
  long long max_context_tokens = 0;
  double kv_bytes_per_token_fp4 = 0;
  double kv_local_bytes_fp4 = 0;
  std::string attention;
};
template <>
struct Fields<ListedModel> {
  static constexpr const char* name = "ListedModel";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A model of the catalogue.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using M = ListedModel;
    field("name", &M::name, "as scenarios name it");
    field("source", &M::source, "where its shape is from");
    field("parameters", &M::parameters, "how many");
    field("active_parameters", &M::active_parameters, "how many a token meets");
    field("layers", &M::layers, "how many");
    field("max_context_tokens", &M::max_context_tokens, "that its configuration allows");
    field("kv_bytes_per_token_fp4", &M::kv_bytes_per_token_fp4,
          "cache of a token in FP4, of layers that keep all tokens");
    field("kv_local_bytes_fp4", &M::kv_local_bytes_fp4,
          "cache of a request at most in FP4, of layers that keep a window or a chunk");
    field("attention", &M::attention, "`GQA`, `MLA`, or the kinds of its layers");
  }
};

struct ListedSystem {
  std::string name;
  std::string summary;
  int gpus = 0;
  double memory_bytes_per_gpu = 0;
  double memory_bytes_per_s_gpu = 0;
  std::string calibration;
};
template <>
struct Fields<ListedSystem> {
  static constexpr const char* name = "ListedSystem";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A system of the catalogue.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using S = ListedSystem;
    field("name", &S::name, "as scenarios name it");
    field("summary", &S::summary, "what it is");
    field("gpus", &S::gpus, "that it has");
    field("memory_bytes_per_gpu", &S::memory_bytes_per_gpu, "HBM");
    field("memory_bytes_per_s_gpu", &S::memory_bytes_per_s_gpu, "its peak bandwidth");
    field("calibration", &S::calibration, "`none`, `own`, or `like` the system that was measured");
  }
};

struct ListedStrategy {
  std::string name;
  std::string summary;
  std::string source;
  std::vector<std::string> phases;
  bool exact = true;
  std::vector<std::string> engines;
};
template <>
struct Fields<ListedStrategy> {
  static constexpr const char* name = "ListedStrategy";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A strategy.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using S = ListedStrategy;
    field("name", &S::name, "as plans name it");
    field("summary", &S::summary, "what it does");
    field("source", &S::source, "where it is from");
    field("phases", &S::phases, "steps that it is for: `decode`, `prefill`, `mixed`");
    field("exact", &S::exact, "whether it computes exact attention");
    field("engines", &S::engines, "that run it, with the versions whose rules were read");
  }
};

struct ListedOption {
  std::string key;
  std::string values;
  std::string strategies;
  std::string help;
};
template <>
struct Fields<ListedOption> {
  static constexpr const char* name = "ListedOption";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A key of a plan's text beyond the degrees.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using O = ListedOption;
    field("key", &O::key, "as in a plan's text");
    field("values", &O::values, "that it may have");
    field("strategies", &O::strategies, "that read it");
    field("help", &O::help, "what it sets");
  }
};

struct ListedScenario {
  std::string name;
  std::string summary;
};
template <>
struct Fields<ListedScenario> {
  static constexpr const char* name = "ListedScenario";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A shipped scenario.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("name", &ListedScenario::name, "as commands take it");
    field("summary", &ListedScenario::summary, "what it asks");
  }
};

struct ListedAcceptance {
  std::string name;
  std::string model;
  std::string method;
  std::string thinking;
  double p = 1;
  double g = 1;
  int fitted_drafts = 0;
  double median_error = 0;
  double largest_error = 0;
  std::vector<long long> drafts;
  std::vector<double> tokens_per_step;
  std::string source;
};
template <>
struct Fields<ListedAcceptance> {
  static constexpr const char* name = "ListedAcceptance";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "A published curve of accepted drafts.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using A = ListedAcceptance;
    field("name", &A::name, "as `speculative.acceptance` of scenarios takes it");
    field("model", &A::model, "that was measured");
    field("method", &A::method, "of drafting");
    field("thinking", &A::thinking, "`on` or `off`");
    field("p", &A::p, "of p g^(j-1), which the j-th draft is accepted with where all before it were");
    field("g", &A::g, "of the same");
    field("fitted_drafts", &A::fitted_drafts, "that p and g were fitted to: from 1 to this");
    field("median_error", &A::median_error, "of the fit, in parts");
    field("largest_error", &A::largest_error, "of the fit, in parts");
    field("drafts", &A::drafts, "whose published mean is used as it stands");
    field("tokens_per_step", &A::tokens_per_step, "these means");
    field("source", &A::source, "who published it");
  }
};

struct ListResult {
  std::string version;
  std::string command;
  std::string what;
  std::optional<std::vector<ListedModel>> models;
  std::optional<std::vector<ListedSystem>> systems;
  std::optional<std::vector<ListedStrategy>> strategies;
  std::optional<std::vector<ListedOption>> options;
  std::optional<std::vector<ListedScenario>> scenarios;
  std::optional<std::vector<ListedAcceptance>> acceptance;
};
template <>
struct Fields<ListResult> {
  static constexpr const char* name = "ListResult";
  static constexpr const char* schema = "shardline.list/1";
  static constexpr const char* about =
      "What `shardline list` answers: the list that was asked for; the others are null.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = ListResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell; empty: the library was asked");
    field("what", &R::what, "`models`, `systems`, `strategies`, `options`, `scenarios` or `acceptance`");
    field("models", &R::models, "by name");
    field("systems", &R::systems, "by name");
    field("strategies", &R::strategies, "in the order of the table of strategies");
    field("options", &R::options, "in the order of that table");
    field("scenarios", &R::scenarios, "by name");
    field("acceptance", &R::acceptance, "published curves, by model");
  }
};

std::string to_json(const ListResult& result);

}  // namespace shardline::api
